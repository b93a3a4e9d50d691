"""What the bench of fairness makes of the starts that handlers noted."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.lab.bench.child import Stalled
from kafka_keyshared.lab.bench.fair import FairPlan, FairRun, summary
from kafka_keyshared.lab.bench.fair_side import (
    START,
    FairTask,
    OtherKeyWaits,
    RecordStart,
    judge,
    starts_in,
)
from kafka_keyshared.lab.bench.paced import Paced, hot_records

MS = 1_000_000
SECOND = 1_000 * MS
RATE = 100
RECORDS = 300
BEGAN = 50 * SECOND
TASK = FairTask(
    side="keyshared",
    bootstrap="",
    topic="t",
    group="g",
    records=RECORDS,
    rate=RATE,
    hot_share=0.5,
    seconds=3.0,
    partitions=1,
    handler_ms=20.0,
    notebook="",
)
HOT = hot_records(RECORDS, 0.5)


def start(number: int, waited: int) -> RecordStart:
    due = BEGAN + number * SECOND // RATE
    return RecordStart(number, due, due + waited, number in HOT)


def test_about_the_share_of_records_has_the_hot_key_and_the_same_ones_on_every_run() -> None:
    assert hot_records(1_000, 0.0) == frozenset()
    assert 450 < len(hot_records(1_000, 0.5)) < 550
    assert hot_records(500, 0.5) == {each for each in hot_records(1_000, 0.5) if each < 500}


def test_only_other_keys_of_the_last_third_count() -> None:
    early = [start(number, 900 * MS) for number in range(200)]
    late = [start(number, (400 if number in HOT else 7) * MS) for number in range(200, RECORDS)]
    found = judge(TASK, [*early, *late], BEGAN + 5 * SECOND)
    assert (found.others_p50_ms, found.others_p99_ms, found.others_unseen) == (7.0, 7.0, 0)
    assert found.hot_per_s == pytest.approx(len(HOT) / 5)


def test_a_record_that_has_not_started_counts_with_what_it_has_waited_by_the_end() -> None:
    others = [number for number in range(200, RECORDS) if number not in HOT]
    seen = [start(number, 2 * MS) for number in range(RECORDS) if number != others[0]]
    found = judge(TASK, seen, BEGAN + 6 * SECOND)
    assert found.others_unseen == 1
    assert found.others_p99_ms == 6_000.0 - others[0] * 1_000 // RATE


def test_a_run_in_which_nothing_starts_is_no_result() -> None:
    with pytest.raises(Stalled, match="none of 300 records started"):
        judge(TASK, [], BEGAN)


def test_the_notes_of_all_threads_and_processes_are_read_from_one_file(tmp_path: Path) -> None:
    path = tmp_path / "starts"
    path.write_bytes(START.pack(3, 7, 9, True) + START.pack(1, 2, 4, False))
    assert list(starts_in(path)) == [RecordStart(3, 7, 9, True), RecordStart(1, 2, 4, False)]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"hot_share": 1.0}, "--hot-share 1"),
        ({"hot_share": -0.1}, "--hot-share -0.1"),
        ({"handler_ms": 0.0}, "--handler-ms 0"),
        ({"seconds": 1.0}, "--seconds 1"),
        ({"value_bytes": 8}, "--value-bytes 8"),
        ({"rate": 0}, "--rate 0"),
    ],
)
def test_a_plan_that_cannot_work_is_refused_by_name(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        FairPlan(**wrong).check()  # type: ignore[arg-type]


def test_a_summary_has_the_medians_of_runs_and_names_a_late_producer() -> None:
    runs = [
        FairRun(
            waits=OtherKeyWaits(
                others_p50_ms=p, others_p99_ms=10 * p, others_unseen=1, hot_per_s=48.0
            ),
            paced=Paced(late_p50_ms=0.0, late_p99_ms=late, late_max_ms=late),
        )
        for p, late in ((1.0, 0.1), (2.0, 30.0), (9.0, 0.1))
    ]
    found = summary(FairPlan(), "embedded", runs)
    assert (found["others_p50_ms"], found["others_p99_ms"]) == (2.0, 20.0)
    assert found["others_p99s_ms"] == [10.0, 20.0, 90.0]
    assert (found["overload"], found["hot_capacity_per_s"]) == (3.0, 50.0)
    assert found["suspect"] == ["run 2: the producer itself was 30.0 ms late at p99"]

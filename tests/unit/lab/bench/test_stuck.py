"""The arithmetic of the bench of one record that takes very long."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.lab.bench import stuck_side
from kafka_keyshared.lab.bench.child import Stalled
from kafka_keyshared.lab.bench.fair_side import RecordStart, starts_in
from kafka_keyshared.lab.bench.paced import HOT, STAMP, Paced
from kafka_keyshared.lab.bench.stuck import StuckPlan, StuckRun, summary
from kafka_keyshared.lab.bench.stuck_side import Punctual, StuckTask, judge

MS = 1_000_000
SECOND = 1_000 * MS
RATE = 100
RECORDS = 500
STUCK_AT = 200
BEGAN = 50 * SECOND
TASK = StuckTask(
    side="keyshared",
    bootstrap="",
    topic="t",
    group="g",
    records=RECORDS,
    rate=RATE,
    seconds=5.0,
    partitions=1,
    handler_ms=1.0,
    notebook="",
    stuck_at=STUCK_AT,
    stuck_seconds=2.0,
)


def start(number: int, waited_ms: int = 0) -> RecordStart:
    due = BEGAN + number * SECOND // RATE
    return RecordStart(number, due, due + waited_ms * MS, number == STUCK_AT)


def test_those_count_that_were_due_while_the_record_was_stuck() -> None:
    # Due before it, while it runs (2 s from its start), and behind it.
    late = [start(number, 300) for number in range(401, RECORDS)]
    found = judge(TASK, [start(number) for number in range(401)] + late, BEGAN + 9 * SECOND)
    assert found.others == 199
    assert (found.share, found.before_share, found.unseen, found.p99_ms) == (1.0, 1.0, 0, 0.0)


def test_a_record_is_late_beyond_a_tenth_of_a_second() -> None:
    def waited(number: int) -> int:
        if number < 150:
            return 900  # while it is warming up, and a half of what is due before
        return {0: 100, 1: 101}[number % 2] if number > STUCK_AT else 0

    starts = [start(number, waited(number)) for number in range(RECORDS)]
    found = judge(TASK, starts, BEGAN + 9 * SECOND)
    assert found.share == pytest.approx(99 / 199)
    assert found.before_share == 0.5
    assert found.p99_ms == 101.0


def test_a_record_that_has_not_started_is_late_and_one_that_starts_twice_counts_once() -> None:
    starts = [start(number) for number in range(RECORDS) if number != 300]
    starts += [start(number, 500) for number in range(210, 220)]
    found = judge(TASK, starts, BEGAN + 9 * SECOND)
    assert found.unseen == 1
    assert found.share == pytest.approx(198 / 199)


def test_a_run_without_the_stuck_record_or_without_others_is_no_result() -> None:
    with pytest.raises(Stalled, match="did not start"):
        judge(TASK, [start(number) for number in range(STUCK_AT)], BEGAN)
    with pytest.raises(Stalled, match="no other record was due"):
        judge(TASK, [start(STUCK_AT, 10_000)], BEGAN)


class FakeRecord:
    def __init__(self, number: int, key: bytes) -> None:
        self._number, self._key = number, key

    def value(self) -> bytes:
        return STAMP.pack(self._number, 7)

    def key(self) -> bytes:
        return self._key


def test_only_the_stuck_record_takes_long_on_threads_and_in_coroutines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(stuck_side.time, "sleep", slept.append)  # type: ignore[attr-defined]
    monkeypatch.setattr(stuck_side.asyncio, "sleep", sleep)  # type: ignore[attr-defined]
    path, times = str(tmp_path / "starts"), (0.001, 5, 30.0)
    records: list[Any] = [FakeRecord(4, b"key-1"), FakeRecord(5, HOT)]
    for record in records:
        stuck_side._handle(path, times, record)
        asyncio.run(stuck_side._handle_later(path, times, record))
    assert slept == [0.001, 0.001, 30.0, 30.0]
    noted = [(each.number, each.due, each.hot) for each in starts_in(Path(path))]
    assert noted == [(4, 7, False)] * 2 + [(5, 7, True)] * 2


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"stuck": 0.0}, "--stuck 0"),
        ({"lead": 0.1}, "--lead 0.1"),
        ({"handler_ms": -1.0}, "--handler-ms -1"),
        ({"rate": 1, "lead": 1.0}, "--rate 1"),
        ({"workers": ()}, "at least one pool"),
        ({"value_bytes": 3}, "--value-bytes 3"),
        ({"keys": 0}, "--keys 0"),
    ],
)
def test_a_plan_that_cannot_work_is_refused_by_name(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        StuckPlan(**wrong).check()  # type: ignore[arg-type]


def run(share: float, before: float = 1.0, late: float = 0.1) -> StuckRun:
    punctual = Punctual(others=100, share=share, p99_ms=5.0, unseen=1, before_share=before)
    return StuckRun(
        punctual=punctual, paced=Paced(late_p50_ms=0.0, late_p99_ms=late, late_max_ms=late)
    )


def test_a_summary_has_a_row_of_medians_for_each_pool_and_names_a_busy_machine() -> None:
    runs = {
        "thread:16": [run(0.9), run(1.0), run(0.99)],
        "process:2": [run(1.0), run(0.5, before=0.6), run(1.0, late=30.0)],
    }
    found = summary(StuckPlan(), "embedded", runs)
    threads, processes = found["rows"]
    assert (threads["workers"], threads["share"], threads["shares"]) == (
        "thread:16",
        0.99,
        [0.9, 1.0, 0.99],
    )
    assert (processes["share"], processes["unseen"], processes["others"]) == (1.0, 3, 300)
    assert threads["share_spread"] == "0.9900 (0.9000 to 1.0000)"
    assert found["suspect"] == [
        "process:2, run 2: only 60.00% of the records were on time before one was stuck: the "
        "machine is busy, or --rate too high",
        "process:2, run 3: the producer itself was 30.0 ms late at p99",
    ]

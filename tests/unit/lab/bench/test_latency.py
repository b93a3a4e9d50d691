"""What the latency bench makes of what it measured."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.lab.bench.child import Stalled
from kafka_keyshared.lab.bench.figures import percentile
from kafka_keyshared.lab.bench.latency import LatencyPlan, LatencyRun, summary
from kafka_keyshared.lab.bench.latency_side import Delays, LatencyTask, Notebook
from kafka_keyshared.lab.bench.paced import STAMP, Paced

MS = 1_000_000
PLAN = LatencyPlan(rate=100, seconds=3.0, warmup=1.0)


class FakeRecord:
    def __init__(self, number: int, due: int) -> None:
        self._value = STAMP.pack(number, due) + b"xx"

    def value(self) -> bytes:
        return self._value


def task(records: int, skip: int = 0) -> LatencyTask:
    return LatencyTask(
        side="bare", bootstrap="", topic="t", group="g", records=records, skip=skip, partitions=1
    )


def delays_of(made: LatencyTask, late_ms: Sequence[int | None]) -> Delays:
    notebook = Notebook(made)
    handle = notebook.handler()
    notebook.begin()
    for number, late in enumerate(late_ms):
        if late is not None:
            handle(FakeRecord(number, time.monotonic_ns() - late * MS))
    return notebook.result()


def run_with(
    p50_ms: float, p99_ms: float, *, seen: int = 200, late_p99_ms: float = 0.1
) -> LatencyRun:
    return LatencyRun(
        delays=Delays(seen=seen, p50_ms=p50_ms, p99_ms=p99_ms, max_ms=p99_ms, cpu_share=0.2),
        paced=Paced(late_p50_ms=0.0, late_p99_ms=late_p99_ms, late_max_ms=late_p99_ms),
    )


@pytest.mark.parametrize(
    ("count", "share", "expected"),
    [(1, 0.5, 1), (2, 0.5, 1), (3, 0.5, 2), (100, 0.99, 99), (101, 0.99, 100), (100, 0.07, 7)],
)
def test_a_percentile_is_the_nearest_rank(count: int, share: float, expected: int) -> None:
    assert percentile(range(1, count + 1), share) == expected


def test_a_delay_counts_from_when_the_record_was_due() -> None:
    delays = delays_of(task(3), [500, 1_000, 9_000])
    assert delays.seen == 3
    assert 1_000 <= delays.p50_ms < 5_000
    assert 9_000 <= delays.p99_ms == delays.max_ms < 60_000


def test_the_warm_up_does_not_count_and_neither_does_what_never_came() -> None:
    delays = delays_of(task(5, skip=2), [90_000, 90_000, 10, None, 10])
    assert delays.seen == 2
    assert 10 <= delays.max_ms < 60_000


def test_a_run_whose_records_never_came_is_no_result() -> None:
    with pytest.raises(Stalled, match="none of 3 records"):
        delays_of(task(3, skip=1), [1, None, None])


def test_the_processor_time_counts_from_the_first_record_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks = SimpleNamespace(wall=100.0, cpu=50.0)
    monkeypatch.setattr(
        "kafka_keyshared.lab.bench.latency_side.time.monotonic", lambda: clocks.wall
    )
    monkeypatch.setattr(
        "kafka_keyshared.lab.bench.latency_side.time.process_time", lambda: clocks.cpu
    )
    notebook = Notebook(task(1))
    notebook.begin()
    clocks.wall, clocks.cpu = 104.0, 51.0
    notebook.begin()
    notebook.handler()(FakeRecord(0, time.monotonic_ns()))
    assert notebook.result().cpu_share == 0.25


def test_pairs_are_compared_one_by_one_and_the_median_counts() -> None:
    result = summary(
        PLAN,
        "real",
        [
            {"bare": run_with(1.0, 4.0), "keyshared": run_with(1.2, 6.0)},
            {"bare": run_with(9.0, 90.0), "keyshared": run_with(9.3, 90.0)},
            {"bare": run_with(2.0, 5.0), "keyshared": run_with(2.1, 4.0)},
        ],
    )
    # The median of the differences and of the ratios; those of the medians are 0.1 and 1.2.
    assert result["added_p50s_ms"] == [0.2, 0.3, 0.1]
    assert result["added_p50_ms"] == 0.2
    assert result["p99_ratios"] == [1.5, 1.0, 0.8]
    assert result["p99_ratio"] == 1.0
    assert (result["bare_p50_ms"], result["keyshared_p50_ms"]) == (2.0, 2.1)
    assert (result["bare_p99_ms"], result["keyshared_p99_ms"]) == (5.0, 6.0)
    assert result["records"] == 200
    assert result["suspect"] == []


def test_too_few_records_and_a_late_producer_are_suspect() -> None:
    result = summary(
        PLAN,
        "real",
        [
            {"bare": run_with(1, 1, seen=198), "keyshared": run_with(1, 1, seen=197)},
            {"bare": run_with(1, 1, late_p99_ms=7.5), "keyshared": run_with(1, 1)},
        ],
    )
    few, late = result["suspect"]
    assert few.startswith("pair 1, keyshared: 197 of 200 records")
    assert late.startswith("pair 2, bare: the producer itself was 7.5 ms late")
    assert result["seen_least"] == 197


@pytest.mark.parametrize(
    ("plan", "named"),
    [
        (LatencyPlan(rate=0), "--rate 0"),
        (LatencyPlan(repeat=0), "--repeat 0"),
        (LatencyPlan(partitions=0), "--partitions 0"),
        (LatencyPlan(keys=0), "--keys 0"),
        (LatencyPlan(seconds=3.0, warmup=3.0), "--warmup 3"),
        (LatencyPlan(warmup=-1.0), "--warmup -1"),
        (LatencyPlan(value_bytes=15), "at least 16"),
        (LatencyPlan(handler_ms=-1.0), "--handler-ms"),
        (LatencyPlan(rate=1, seconds=0.5, warmup=0.0), "no record is left"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused_by_name(plan: LatencyPlan, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        plan.check()

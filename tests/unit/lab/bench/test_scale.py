"""The arithmetic of the bench of thread counts."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.lab.bench import scale
from kafka_keyshared.lab.bench.child import Stalled
from kafka_keyshared.lab.bench.resize_side import ResizeTimes, ScaleCall, Starts
from kafka_keyshared.lab.bench.scale import ScalePlan, lost_of, resized_of, share_of
from kafka_keyshared.lab.bench.sleeping_side import Makespan


def test_the_share_lost_is_a_median_over_turns_to_the_first_count() -> None:
    turns = [
        {2: 100.0, 8: 90.0, 64: 80.0},
        {2: 200.0, 8: 200.0, 64: 100.0},
        {2: 100.0, 8: 110.0, 64: 70.0},
    ]
    found = lost_of((2, 8, 64), turns)
    assert found["per_s"] == {"2": 100, "8": 110, "64": 80}
    assert found["lost"] == {"8": 0.0, "64": 0.3}
    assert found["losts"]["64"] == [0.2, 0.5, 0.3]
    assert found["workers_lost"] == 0.3


def test_the_share_of_bare_threads_is_of_the_pair_beside() -> None:
    def span(seconds: float) -> Makespan:
        return Makespan(seconds=seconds, records=1_000)

    found = share_of(ScalePlan(), 1_000, [(span(2.0), span(1.0)), (span(1.0), span(0.9))])
    assert found["sleep_shares"] == [0.5, 0.9]
    assert found["sleep_share"] == 0.7
    assert (found["sleep_per_s"], found["bare_sleep_per_s"]) == (750, 1_056)


def test_a_slot_that_drained_makes_a_resize_doubtful() -> None:
    runs = [
        ResizeTimes(first_ms=first, every_ms=9.0, call_ms=2.0, drained_slots=slots, new_threads=30)
        for first, slots in ((4.0, 0), (8.0, 7), (5.0, 0))
    ]
    found = resized_of(ScalePlan(), runs)
    assert (found["resize_first_ms"], found["resize_firsts_ms"]) == (5.0, [4.0, 8.0, 5.0])
    assert found["resize_drained_slots"] == 7
    assert found["suspect"] == ["resize, run 2: 7 slots drained, and none should"]


class FakeApp:
    """An app whose scale() has so many new threads start a record, or refuses."""

    def __init__(self, starts: Starts, error: Exception | None = None) -> None:
        self._starts, self._error = starts, error

    def scale(self, workers: int, timeout: float) -> None:
        if self._error is not None:
            raise self._error
        now = time.monotonic_ns()
        self._starts.first.update({-number: now + number for number in range(1, workers - 1)})


def starts_of_two() -> Starts:
    starts = Starts(0.0)
    starts.first.update({101: 5, 102: 6})
    return starts


def test_only_threads_without_a_record_before_the_call_are_new() -> None:
    starts = starts_of_two()
    app: Any = FakeApp(starts)
    order = ScaleCall(app, starts, 5)
    found = order.result(drained=0)
    assert order.over
    assert not order.failed
    assert found.new_threads == 3
    assert 0 <= found.first_ms <= found.every_ms


def test_a_call_that_is_refused_is_raised_where_the_result_is_asked_for() -> None:
    starts = starts_of_two()
    app: Any = FakeApp(starts, Stalled("no"))
    order = ScaleCall(app, starts, 5)
    with pytest.raises(Stalled, match="no"):
        order.result(drained=0)
    assert order.failed


def test_the_handler_notes_the_first_record_of_a_thread_and_no_later_one() -> None:
    starts = Starts(0.0)
    starts.handle(None)
    (first,) = starts.first.values()
    starts.handle(None)
    assert [*starts.first.values()] == [first]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"repeat": 0}, "--repeat 0"),
        ({"parts": ()}, "--parts : give some of threads,sleep,resize"),
        ({"parts": ("walk",)}, "--parts walk"),
        ({"threads": (2,)}, "--threads 2: give two"),
        ({"threads": (0, 2)}, "--threads 0,2"),
        ({"resize": (8, 8)}, "--resize 8,8"),
        ({"resize": (8,)}, "--resize 8"),
        ({"sleep_ms": 0.0}, "--sleep-ms 0"),
        ({"value_bytes": -1}, "--value-bytes -1"),
    ],
)
def test_a_plan_that_cannot_work_is_refused_by_name(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ScalePlan(**wrong).check()  # type: ignore[arg-type]


def test_the_most_threads_of_any_part_are_what_is_checked_beforehand() -> None:
    assert ScalePlan().workers == "thread:100"
    assert ScalePlan(resize=(2, 300)).workers == "thread:300"


def test_only_the_parts_that_are_asked_for_are_measured_each_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def measured(name: str) -> Callable[..., dict[str, Any]]:
        def measure(*_: object) -> dict[str, Any]:
            asked.append(name)
            return {name: 1, "suspect": [f"{name} is short"]}

        return measure

    monkeypatch.setattr(scale, "PARTS", {name: measured(name) for name in scale.PARTS})
    plan = ScalePlan(parts=("sleep", "threads", "sleep"))
    cluster: Any = SimpleNamespace(kind="real")
    found = scale.measure(plan, cluster, asked.append)
    assert asked == ["sleep", "threads"]
    assert (found["sleep"], found["threads"], found["kafka"]) == (1, 1, "real")
    assert found["suspect"] == ["sleep is short", "threads is short"]

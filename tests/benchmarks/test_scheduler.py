"""The cases of the scheduler: every figure that is judged is one that its bench returns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared.lab.bench import fair, scale, skew, stuck
from kafka_keyshared.lab.bench.fair import FairPlan
from kafka_keyshared.lab.bench.fair_side import OtherKeyWaits
from kafka_keyshared.lab.bench.noop import NoopPlan
from kafka_keyshared.lab.bench.paced import Paced
from kafka_keyshared.lab.bench.resize_side import ResizeTimes
from kafka_keyshared.lab.bench.scale import ScalePlan
from kafka_keyshared.lab.bench.skew import Pair, SkewPlan
from kafka_keyshared.lab.bench.sleeping_side import Makespan
from kafka_keyshared.lab.bench.stuck import StuckPlan
from kafka_keyshared.lab.bench.stuck_side import Punctual
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.benchmarks import before, scheduler, verify
from tests.benchmarks.before import HERE, BeforePlan
from tests.benchmarks.cases import Case, OnCluster, judged, table
from tests.benchmarks.coroutines import CoroutinePlan
from tests.benchmarks.scaling import held_bytes

PACED = Paced(late_p50_ms=0.1, late_p99_ms=0.2, late_max_ms=0.3)


def fair_result(plan: FairPlan, *_: object) -> dict[str, Any]:
    waits = OtherKeyWaits(others_p50_ms=1.0, others_p99_ms=40.0, others_unseen=0, hot_per_s=50.0)
    return fair.summary(plan, "real", [fair.FairRun(waits=waits, paced=PACED)] * plan.repeat)


def stuck_result(plan: StuckPlan, *_: object) -> dict[str, Any]:
    punctual = Punctual(others=9_000, share=0.9995, p99_ms=4.0, unseen=0, before_share=1.0)
    runs = [stuck.StuckRun(punctual=punctual, paced=PACED)] * plan.repeat
    return stuck.summary(plan, "real", dict.fromkeys(plan.workers, runs))


def skew_result(plan: SkewPlan, *_: object) -> dict[str, Any]:
    pairs = [Pair(cost=1.0, keyshared=1.05, bare=1.0)] * plan.repeat
    numbers = [0] * 15 + [*range(1, 2)]
    return {"rows": [skew.row_of(plan, each, numbers, pairs) for each in plan.distributions]}


def scale_result(plan: ScalePlan, *_: object) -> dict[str, Any]:
    resized = ResizeTimes(first_ms=8.0, every_ms=20.0, call_ms=1.0, drained_slots=0, new_threads=30)
    one, two = Makespan(seconds=10.0, records=100), Makespan(seconds=9.5, records=100)
    found = {
        "threads": scale.lost_of(plan.threads, [{2: 1_000.0, 64: 960.0}] * plan.repeat),
        "sleep": scale.share_of(plan, 100, [(one, two)] * plan.repeat),
        "resize": scale.resized_of(plan, [resized] * plan.repeat),
    }
    (part,) = plan.parts
    return found[part]


RESULTS: dict[Any, Callable[..., dict[str, Any]]] = {
    FairPlan: fair_result,
    StuckPlan: stuck_result,
    SkewPlan: skew_result,
    ScalePlan: scale_result,
}


@pytest.mark.parametrize(
    "case",
    [case for case in scheduler.LINES if isinstance(case.plan, scheduler.BenchPlan)],
    ids=lambda case: case.name,
)
def test_each_bench_returns_the_figures_that_are_judged(
    case: Case, embedded_cluster: Cluster
) -> None:
    plan = case.plan
    assert isinstance(plan, scheduler.BenchPlan)
    plan = scheduler.BenchPlan(plan.plan, RESULTS[type(plan.plan)], plan.shape)
    outcome = judged(case, plan.measure(embedded_cluster, 2, verify.note))
    assert outcome.missed == []
    for floor, row in zip(case.floors, table([outcome]).splitlines()[2:], strict=True):
        assert floor.goal is None or "reaches the goal" in row
        assert floor.runs is None or " | 2 | " in row


def test_a_comparison_with_before_returns_the_figures_that_are_judged() -> None:
    for case in [case for case in scheduler.LINES if isinstance(case.plan, BeforePlan)]:
        assert isinstance(case.plan, BeforePlan)
        sides = dict.fromkeys(case.plan.sides, 500_000.0)
        outcome = judged(case, before.figures_of([sides, sides]))
        assert outcome.missed == []
        assert table([outcome]).count(" | 2 | ") == len(case.floors)
        assert isinstance(case.plan.noop, NoopPlan)


def test_one_key_of_each_fair_plan_gets_three_times_its_capacity() -> None:
    plans = [
        case.plan.plan
        for case in scheduler.LINES
        if isinstance(case.plan, scheduler.BenchPlan) and isinstance(case.plan.plan, FairPlan)
    ]
    assert [plan.workers for plan in plans] == ["thread:16", "asyncio:1000", "process:2"]
    for plan in plans:
        assert plan.overload() == pytest.approx(3.0)
        others = plan.rate * (1 - plan.hot_share) * plan.handler_ms / 1e3
        count = int(plan.workers.rpartition(":")[2])
        assert others < count - 1, "beside the hot key there is room for the others"


def test_memory_is_measured_in_both_kinds_of_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "held_bytes", lambda _count, **how: float(len(how)))
    found = scheduler.measure_held(None)
    (case,) = [case for case in scheduler.LINES if case.name == "held"]
    assert {floor.figure for floor in case.floors} == found.keys()
    assert 0 < found["shards_kib"] <= 100
    assert scheduler.empty_shards_bytes(256) > scheduler.empty_shards_bytes(64)


@pytest.mark.parametrize(("header", "bound"), [(None, 30), ("key", 82)])
def test_a_record_that_threads_share_takes_no_more_than_one_of_a_worker(
    header: str | None, bound: float
) -> None:
    # The bound of a full measurement is 78 with derived keys. A fifth of the records has more of
    # what is there once.
    assert 16 < held_bytes(20_000, header) <= bound


def test_a_record_of_coroutines_takes_little_more() -> None:
    assert 16 < held_bytes(20_000, coroutines=True) <= 45


def test_the_long_runs_of_coroutines_have_their_length_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[CoroutinePlan] = []

    def measure(plan: CoroutinePlan) -> dict[str, Any]:
        asked.append(plan)
        return {"ratio": 1.6, "ratios": [1.6], "shortest_s": 9.0, "bare_per_s": 100_000}

    monkeypatch.setattr("tests.benchmarks.coroutines.measure", measure)
    (case,) = [case for case in scheduler.LINES if case.name == "coroutines-long"]
    assert case.run is not None
    outcome = judged(case, case.run(2))
    assert [floor.figure for floor in outcome.missed] == ["shortest_s"]
    assert (asked[0].pairs, asked[0].records) == (2, 2_000_000)


def test_the_scheduler_stands_for_its_cases_in_turn(capsys: pytest.CaptureFixture[str]) -> None:
    every = {case.name for case in verify.CASES}
    assert set(scheduler.NAMES) <= every
    chosen = verify.choose(["scheduler"], HERE)
    assert tuple(case.name for case in chosen) == scheduler.NAMES
    assert {case.name for case in scheduler.LINES} < set(scheduler.NAMES)
    compared = [case.plan for case in chosen if isinstance(case.plan, BeforePlan)]
    assert {plan.before for plan in compared} == {HERE}
    assert not capsys.readouterr().err
    left = verify.choose(["scheduler"], None)
    assert len(left) == len(chosen) - len(compared)
    assert "before-empty is left out: give --before PATH" in capsys.readouterr().err
    assert len(verify.choose([], None)) == len(every) - len(compared)


def test_a_case_that_lacks_its_checkout_is_not_measured(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert verify.main(["--case", "before-empty", "--json", str(tmp_path / "report")]) == 2
    assert "give --before PATH" in capsys.readouterr().err


def test_a_plan_that_is_not_known_is_refused(embedded_cluster: Cluster) -> None:
    with pytest.raises(TypeError, match="no measurement for 3"):
        verify.run_plan(3, embedded_cluster, None, verify.note)
    assert issubclass(BeforePlan, OnCluster)

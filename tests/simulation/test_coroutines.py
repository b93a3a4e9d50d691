"""The package's own coroutines in made-up time: what they go through, and that faults are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from kafka_keyshared.core.contract.events import Failed, Recalled
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.lab.simulator.coroutine_pool import SimTasks
from kafka_keyshared.lab.simulator.pool import PoolHabits
from kafka_keyshared.lab.simulator.run import SeedOutcome, run_seed
from tests.setup.faults import plan_of

DISTURBED = {
    "handlers hung": 5.0,
    "a worker died": 5.0,
    "a subscription was resized": 5.0,
    "a member was stopped": 3.0,
}


def run(seed: int = 1, steps: int = 600, *, summed: bool = False) -> SeedOutcome:
    """Run a seed whose workers are coroutines, with much of what is hard on them."""
    plan = plan_of(seed, "none")
    settings = SubscriptionSettings(workers=worker_names(3), individually=True, ack_timeout=1.0)
    pool = PoolHabits(wakes=0.02, kind="task", loop=True, at_once=10)
    member = replace(plan.member, subscriptions=(settings,), pool=pool, rests=0.1)
    habits = replace(plan.habits, failing=0.2, at_once=0.3, typical=0.02)
    plan = replace(plan, member=member, habits=habits, keys=20, backlog=200, burst=20)
    return run_seed(seed, steps, replace(plan, disturbances=DISTURBED), summed=summed)


def test_records_end_in_any_order_come_back_late_and_die_with_their_loop() -> None:
    found = run(3)
    assert not found.violations
    for state in (
        "record ended before one that began before it",
        "record begun while it was asked back",
        "worker death mid-record",
    ):
        assert found.sometimes[state], state


def test_the_same_seed_is_the_same_run() -> None:
    assert run(2, 200, summed=True).digest == run(2, 200, summed=True).digest != ""


class Over(NamedTuple):
    """Says of a slice that all of it has ended, whatever it does."""

    def outstanding(self, count: int) -> range:
        return range(0 * count)

    def running(self) -> range:
        return range(0)


def gives_back_what_runs(pool: Any, report: Any) -> Any:
    """Give back a record that has started, with those that have not."""
    if not isinstance(report, Recalled):
        return report
    place = report.subscription, report.worker
    runs = list(pool._telling.runs.get(place, ()))
    mine = [
        (id_, range(1)) for id_, slice_ in pool._telling.slices.items() if slice_.records[0] in runs
    ]
    return replace(report, slices=[*mine, *report.slices])


def forgets_failures(pool: Any, report: Any) -> Any:
    """Say nothing of what has failed."""
    del pool
    return None if isinstance(report, Failed) else report


@pytest.mark.parametrize(
    ("planted", "found_by"),
    [
        (gives_back_what_runs, ("I2", "I6", "InvariantError")),
        (forgets_failures, ("I3", "I4", "InvariantError")),
    ],
)
def test_reports_that_are_wrong_are_found(
    monkeypatch: pytest.MonkeyPatch,
    planted: Callable[[Any, Any], Any],
    found_by: tuple[str, ...],
) -> None:
    told = SimTasks._tell_owner

    def wrong(pool: SimTasks, report: Any) -> None:
        if (changed := planted(pool, report)) is not None:
            told(pool, changed)

    monkeypatch.setattr(SimTasks, "_tell_owner", wrong)
    violations = run().violations
    assert any(each.startswith(found_by) for each in violations), violations


def test_a_commit_past_what_still_runs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = SimTasks.progress
    monkeypatch.setattr(
        SimTasks,
        "progress",
        lambda pool: {
            id_: Over() if each.running() else each for id_, each in progress(pool).items()
        },
    )
    assert any(each.startswith("I4") for each in run().violations)


def test_two_of_a_key_at_once_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_keyshared.executors.failed_lanes.is_keyless", lambda lane: True)
    violations = run().violations
    assert any(each.startswith("I2") for each in violations), violations

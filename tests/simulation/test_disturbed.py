"""What goes wrong in the callbacks of users breaks nothing, and is counted."""

from __future__ import annotations

from dataclasses import replace

from kafka_keyshared.lab.simulator.pool import PoolHabits
from kafka_keyshared.lab.simulator.run import SeedOutcome, run_seed
from tests.setup.faults import plan_of

STEPS = 200
OFTEN = 20.0


def run(*what: str, habits: PoolHabits | None = None, hands_over: bool = False) -> SeedOutcome:
    """Run a seed in which these things go wrong often."""
    plan = plan_of(1, "none")
    settings = replace(plan.member.subscriptions[0], hands_over=hands_over)
    # Owners that rest let time pass in few rounds.
    member = replace(plan.member, subscriptions=(settings,), pool=habits or PoolHabits(), rests=0.1)
    plan = replace(plan, member=member, disturbances=dict.fromkeys(what, OFTEN), backlog=100)
    return run_seed(1, STEPS, plan, summed=False)


def test_a_callback_that_raises_ends_its_process_and_breaks_nothing() -> None:
    found = run("a callback raised", "a member was thrown out")
    assert not found.violations
    assert found.sometimes["a callback raised"]
    assert found.sometimes["process ended by a callback"]


def test_a_state_that_cannot_be_released_keeps_no_key_waiting() -> None:
    found = run("a subscription was resized", habits=PoolHabits(release_fails=1.0), hands_over=True)
    assert not found.violations
    assert found.sometimes["state that could not be released"]

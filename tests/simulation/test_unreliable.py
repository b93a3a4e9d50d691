"""Subscriptions without reliability in whole runs, and what checkers hold them to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_keyshared.core.contract.events import CommitResult
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers.no_repeats import NoRepeats
from kafka_keyshared.lab.simulator.plan_model import Plan
from kafka_keyshared.lab.simulator.rng import Chance
from kafka_keyshared.lab.simulator.run import run_seed
from kafka_keyshared.lab.simulator.seed_plan import plan_of, without_reliability
from tests.simulation.told import SUB, Told, text
from tests.simulation.watched import Story, assert_found, assert_right, begun, settings

STEPS = 600
SEEDS = range(1, 16)
UNRELIABLE = settings(delivery="at-most-once")
BESIDE = settings(name="beside", undecodable="drop")
"""A reliable one beside it, of which nothing is told."""


def plan_with(seed: int, *, beside: bool) -> Plan:
    """The seed's own plan, in which nothing is tracked, or half of it is not."""
    plan = plan_of(Chance(seed))
    first = plan.member.subscriptions[0]
    subs = [without_reliability(first)]
    subs += [replace(first, name="beside", delivery="at-least-once")] if beside else []
    # The package's own members and processes are drawn for what is reliable.
    pool = replace(plan.member.pool, own=False)
    return replace(plan, member=replace(plan.member, subscriptions=tuple(subs), pool=pool))


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a reliable one"])
def test_whole_runs_keep_what_is_left_of_the_contract(*, beside: bool) -> None:
    dropped = 0
    for seed in SEEDS:
        outcome = run_seed(seed, STEPS, plan_with(seed, beside=beside), summed=False)
        assert outcome.violations == [], f"seed {seed}"
        dropped += outcome.sometimes["record dropped without a worker"]
    assert dropped > 100


def test_some_seeds_have_one() -> None:
    drawn = [each for seed in range(200) for each in plan_of(Chance(seed)).member.subscriptions]
    share = sum(not each.at_least_once for each in drawn) / len(drawn)
    assert 0.05 < share < 0.2
    for each in drawn:
        each.check()


# --- what is dropped ---


def test_what_no_worker_has_may_be_passed_over_and_nothing_of_it_is_owed() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0, 1, 2)
        told.run(1, 1)
        told.finish()

    assert_right(story, UNRELIABLE)
    assert_found("OrderChecker", "before t-0@0", story)


def test_what_a_worker_has_may_not_be() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0, 1)
        told.hand(1, 0, 1)
        told.begin(1, 1)

    assert_found("OrderChecker", "before t-0@0", story, UNRELIABLE)


def test_what_was_passed_over_does_not_run_any_more() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0, 1)
        told.run(1, 1)
        told.run(1, 0)

    words = "dropped without a worker at .* in the same assignment"
    assert_found("NoRepeats", words, story, UNRELIABLE)


def test_what_fails_is_dropped_and_does_not_run_again() -> None:
    def failed(told: Told) -> None:
        begun(told)
        told.deliver(1, 0, 1)
        told.hand(1, 0)
        told.begin(1, 0)
        told.end(1, 0, "failed")
        told.run(1, 1)

    def again(told: Told) -> None:
        failed(told)
        told.run(1, 0)

    assert_right(failed, UNRELIABLE)
    words = "dropped by the policy at .* in the same assignment"
    assert_found("NoRepeats", words, again, UNRELIABLE)


def test_what_a_worker_has_starts_soon() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0)
        told.later(60.0)
        told.hand(1, 0)
        told.later(1.5)
        told.hand(1, worker=1)

    words = "worker 0 has it, and runs nothing"
    assert_found("Liveness", words, story, UNRELIABLE)


def test_a_rebalance_may_repeat_everything() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0)
        told.run(1, 0)
        told.revoke(1)
        told.assign(2)
        told.deliver(2, 0)
        told.run(2, 0)

    checkers = assert_right(story, UNRELIABLE)
    repeats = checkers["NoRepeats"]
    assert isinstance(repeats, NoRepeats)
    assert repeats.repeats == {"nothing is tracked": 1}
    assert_found("NoRepeats", "none was sent", story)


# --- what is committed ---


def committed(sub: str | None) -> Story:
    """A commit of what has not been delivered to anybody, with a set of that subscription."""

    def story(told: Told) -> None:
        begun(told)
        words = "" if sub is None else text(0, (1, 2), sub=sub)
        told.deliver(1, 0, 1, 2)
        told.run(1, 0, 1)
        told.send(1, 0, words=words)

    return story


def test_where_nothing_is_reliable_nothing_is_committed() -> None:
    words = "is sent, and no subscription is at-least-once"
    assert_found("SafeCommit", words, committed(None), UNRELIABLE)


def test_beside_a_reliable_one_nothing_is_said_of_what_is_not() -> None:
    assert_right(committed(None), UNRELIABLE, BESIDE)
    words = "says something of 'default', which is no promise"
    assert_found("SafeCommit", words, committed(SUB), UNRELIABLE, BESIDE)


def test_what_was_dropped_holds_no_commit_up_and_a_reliable_one_beside_it_does() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0, 1)
        told.run(1, 1)
        told.sub = "beside"
        told.run(1, 0)
        told.sub = SUB
        number = told.send(1, position, words="")
        told.tell(happened.CommitTold(1, number, CommitResult.ACCEPTED.value))

    position = 1
    assert_right(story, UNRELIABLE, BESIDE)
    position = 2
    assert_found("SafeCommit", "covers t-0@1 .* of 'beside'", story, UNRELIABLE, BESIDE)


def test_what_is_given_out_and_set_aside_passes_nothing_over() -> None:
    """It is given out before anybody has heard that what is ahead of it has failed."""

    def story(told: Told) -> None:
        begun(told, 4)
        told.deliver(1, 0, 1)
        told.hand(1, 0, 1)
        told.begin(1, 0)
        told.end(1, 0, "failed")
        told.take_back(1, 1)
        told.deliver(1, 2)
        told.hand(1, 2)
        told.take_back(1, 2)
        told.run(1, 1, 2)

    assert_right(story, UNRELIABLE)

"""Partitions that are paused by hand while a simulated member runs, and what comes of them then."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from kafka_keyshared.core.contract.dlq_limit import DlqLimit
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.pause_history import (
    PauseHeard,
    PauseOrdered,
    PauseRefused,
    PauseTaken,
)
from kafka_keyshared.lab.simulator.plan_model import Plan
from kafka_keyshared.lab.simulator.rng import Chance
from kafka_keyshared.lab.simulator.run import run_seed
from kafka_keyshared.lab.simulator.seed_plan import plan_of
from kafka_keyshared.model import TopicPartition
from tests.simulation.told import T0, T1, Told
from tests.simulation.watched import Story, assert_found, assert_right, begun, settings

PAUSED = "is paused by hand, and"
STEPS = 800
SEEDS = range(1, 21)
NAME = "somebody paused and resumed"

Named = Collection[TopicPartition] | Collection[str] | None


def order(told: Told, named: Named, *, paused: bool = True, member: int = 1) -> int:
    """Order it, of everything, of topics or of partitions; it is not answered yet."""
    number = told.history.count
    topics = [each for each in named or () if isinstance(each, str)]
    partitions = [each for each in named or () if not isinstance(each, str)]
    if named is None:
        told.tell(PauseOrdered(member, number, None, None, paused))
    else:
        told.tell(PauseOrdered(member, number, topics, partitions, paused))
    return number


def ordered(told: Told, named: Named, *, paused: bool = True, member: int = 1) -> None:
    """Order it, and have it answered."""
    number = order(told, named, paused=paused, member=member)
    told.tell(PauseTaken(member, number))


# --- nothing comes ---


@pytest.mark.parametrize("named", [None, ["t"], [T0]])
def test_nothing_comes_of_what_is_paused(named: Named) -> None:
    def story(told: Told) -> None:
        begun(told)
        ordered(told, named)
        told.deliver(1, 0)

    assert_found("Bounded", PAUSED, story)


@pytest.mark.parametrize("named", [["u"], [T1], []])
def test_what_is_not_named_comes_as_ever(named: Named) -> None:
    def story(told: Told) -> None:
        begun(told)
        ordered(told, named)
        told.deliver(1, 0)

    assert_right(story)


def test_until_the_order_is_answered_some_may_come() -> None:
    def story(told: Told) -> None:
        begun(told)
        order(told, None)
        told.deliver(1, 0)

    assert_right(story)


@pytest.mark.parametrize("named", [None, ["t"], [T0]])
def test_a_rebalance_does_not_lift_it(named: Named) -> None:
    def story(told: Told) -> None:
        begun(told)
        ordered(told, named)
        told.revoke(1)
        told.assign(1)
        told.deliver(1, 0)

    assert_found("Bounded", PAUSED, story)


def test_what_is_paused_in_one_process_is_not_in_another() -> None:
    def story(told: Told) -> None:
        begun(told)
        ordered(told, None)
        told.revoke(1)
        told.assign(2)
        told.deliver(2, 0)

    assert_right(story)


@pytest.mark.parametrize("first", [None, ["t"], [T0]])
@pytest.mark.parametrize("then", [None, ["t"], [T0]])
def test_the_last_order_counts_however_wide_it_is(first: Named, then: Named) -> None:
    def resumed(told: Told) -> None:
        begun(told)
        ordered(told, first)
        ordered(told, then, paused=False)
        told.deliver(1, 0)

    def paused(told: Told) -> None:
        begun(told)
        ordered(told, first, paused=False)
        ordered(told, then)
        told.deliver(1, 0)

    assert_right(resumed)
    assert_found("Bounded", PAUSED, paused)


def test_what_a_client_refuses_to_pause_may_come_until_it_does() -> None:
    def story(told: Told) -> None:
        begun(told)
        ordered(told, None)
        told.revoke(1)
        told.assign(1)
        told.tell(PauseRefused(1, [T0]))
        told.deliver(1, 0)

    def heard(told: Told) -> None:
        story(told)
        told.tell(PauseHeard(1, [T0]))
        told.deliver(1, 1)

    assert_right(story)
    assert_found("Bounded", PAUSED, heard)


# --- and all goes on ---


def after_the_faults(
    *, resumed: bool = True, healed: bool = True, busy: bool = False, stops: bool = False
) -> Story:
    """Nothing comes of a partition for half a minute, of which there is more to read."""

    def story(told: Told) -> None:
        begun(told, 2 + busy)
        told.deliver(1, *range(1 + busy))
        told.run(1, 0)
        ordered(told, None)
        if healed:
            told.tell(happened.Healed())
        if resumed:
            ordered(told, None, paused=False)
        if busy:
            told.hand(1, 1)
            told.begin(1, 1)
        if stops:
            told.tell(happened.StopRequested(1))
        for _ in range(4):
            told.commit(1, 1)
            told.later(10.0)

    return story


def test_what_is_resumed_is_read_on_where_its_member_has_nothing_to_do() -> None:
    assert_found("Liveness", "nothing of t-0 is read on from 1 since", after_the_faults())
    assert_right(after_the_faults(resumed=False))
    assert_right(after_the_faults(healed=False))
    assert_right(after_the_faults(busy=True))
    assert_right(after_the_faults(stops=True))
    limited = settings(dlq=True, dlq_limit=DlqLimit(consecutive=3))
    assert_right(after_the_faults(), limited)


# --- in whole runs ---


def plan_with_pauses(seed: int) -> Plan:
    """The seed's own plan, in which somebody pauses again and again, and members come and go."""
    plan = plan_of(Chance(seed))
    more = dict.fromkeys((NAME, "a member joined", "a member was stopped"), 3.0)
    return replace(plan, disturbances={**plan.disturbances, **more})


def test_whole_runs_keep_the_contract_while_somebody_pauses_and_resumes() -> None:
    paused = resumed = came = 0
    for seed in SEEDS:
        outcome = run_seed(seed, STEPS, plan_with_pauses(seed), summed=False)
        assert outcome.violations == [], f"seed {seed}"
        paused += outcome.sometimes[NAME]
        resumed += outcome.sometimes["paused by hand, then resumed"]
        came += outcome.sometimes["partition that came while it is paused by hand"]
    assert paused > 100
    assert resumed > 20
    assert came > 10

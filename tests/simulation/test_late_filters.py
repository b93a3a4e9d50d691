"""Workers that begin to filter while others run, or take other keys: who gets what is looked at."""

from __future__ import annotations

from dataclasses import replace

from kafka_keyshared.core.routing.modes import RoutingSettings
from kafka_keyshared.lab.simulator.member_events import FiltersDeclared, WorkerJoined
from kafka_keyshared.lab.simulator.plan_model import Plan
from kafka_keyshared.lab.simulator.rng import Chance
from kafka_keyshared.lab.simulator.routings import may_filter_later
from kafka_keyshared.lab.simulator.run import run_seed
from kafka_keyshared.lab.simulator.seed_plan import plan_of
from tests.simulation.told import SUB, Told
from tests.simulation.watched import Story, assert_found, assert_right, begun, settings

STEPS = 800
SEEDS = range(1, 9)
NAME = "filtering-0"
KINDS = ("a worker that filters was added", "a worker was given other filters")

SHARED = "k66493"
"""A key of the slot of k13."""


def plan_with(seed: int) -> Plan:
    """The seed's own plan, in which nobody filters at first, some do soon, and not the same."""
    plan = plan_of(Chance(seed))
    by = RoutingSettings("ring" if seed % 2 else "auto-split")
    subs = tuple(replace(each, routing=by, hands_over=False) for each in plan.member.subscriptions)
    disturbances = {**plan.disturbances, **dict.fromkeys(KINDS, 3.0)}
    member = replace(plan.member, subscriptions=subs)
    return replace(plan, member=member, disturbances=disturbances)


def test_whole_runs_keep_the_contract_while_workers_begin_to_filter() -> None:
    added = changed = given = 0
    for seed in SEEDS:
        outcome = run_seed(seed, STEPS, plan_with(seed), summed=False)
        assert outcome.violations == [], f"seed {seed}"
        added += outcome.sometimes[KINDS[0]]
        changed += outcome.sometimes[KINDS[1]]
        given += outcome.sometimes["record given to one that filters late"]
    assert added > 50
    assert changed > 200
    assert given > 100


def test_nobody_begins_to_filter_where_filters_cannot_be() -> None:
    for routing in ("sticky", "exclusive", "unordered"):
        assert not may_filter_later(settings(routing=RoutingSettings(routing)))
    assert not may_filter_later(settings(hands_over=True))
    assert not may_filter_later(settings(delivery="at-most-once"))
    filtered = RoutingSettings(filters={"worker-0": ["*1"]}, on_unmatched="skip")
    assert not may_filter_later(settings(routing=filtered))
    assert may_filter_later(settings())


# --- who may have what then ---


def joined(told: Told, patterns: list[str | bytes]) -> None:
    """Worker 2 joins, and takes what these patterns match."""
    told.tell(FiltersDeclared(1, SUB, NAME, patterns))
    told.tell(WorkerJoined(1, SUB, 2, NAME))


def given(patterns: list[str | bytes], key: str | None = "a") -> Story:
    """A record goes to one that takes what these patterns match."""

    def story(told: Told) -> None:
        told.write(key)
        told.join(1)
        told.assign(1)
        told.deliver(1, 0)
        joined(told, patterns)
        told.hand(1, 0, worker=2)

    return story


def test_who_filters_is_given_what_it_takes_and_nothing_else() -> None:
    assert_right(given(["b", "a*"]))
    words = f"was given to {NAME}, which does not take it"
    assert_found("OneOwner", words, given(["b"]))
    assert_found("OneOwner", words, given(["*"], key=None))


def meanwhile(key: str, *, filters: bool = True) -> Story:
    """A worker has a key of a slot; another one is given that key, or another one of the slot."""

    def story(told: Told) -> None:
        told.write("k13", key)
        told.join(1)
        told.assign(1)
        told.deliver(1, 0, 1)
        told.hand(1, 0)
        if filters:
            joined(told, [key])
        told.hand(1, 1, worker=2)
        told.begin(1, 0)
        told.end(1, 0)

    return story


def test_a_key_has_one_worker_and_its_slot_may_have_several_once_somebody_filters() -> None:
    words = "while worker 0 has 1 of that slot"
    assert_found("OneOwner", words, meanwhile("k13"))
    assert_right(meanwhile(SHARED))
    assert_found("OneOwner", words, meanwhile(SHARED, filters=False))


def test_what_is_declared_in_one_process_means_nothing_in_another() -> None:
    def story(told: Told) -> None:
        begun(told, 2)
        told.deliver(1, 0, 1)
        told.tell(FiltersDeclared(2, SUB, NAME, ["b"]))
        told.tell(WorkerJoined(1, SUB, 2, NAME))
        told.hand(1, 0, worker=2)

    assert_right(story)

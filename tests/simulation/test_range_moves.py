"""Ranges that are assigned while a simulated member runs; who gets what then is looked at."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_keyshared.core.routing.filters import OnUnmatched
from kafka_keyshared.core.routing.modes import RoutingSettings
from kafka_keyshared.hashing import SLOTS, slot_of
from kafka_keyshared.lab.simulator.plan_model import Plan
from kafka_keyshared.lab.simulator.range_history import RangeAssigned, SettledUnrun
from kafka_keyshared.lab.simulator.rng import Chance
from kafka_keyshared.lab.simulator.routings import whole_ranges, with_routing
from kafka_keyshared.lab.simulator.run import run_seed
from kafka_keyshared.lab.simulator.seed_plan import plan_of
from tests.simulation.told import SUB, T0, Told
from tests.simulation.watched import Story, assert_found, assert_right, begun, settings

SLOT = slot_of(b"a")
ALL_OF_THE_FIRST = settings(
    routing=RoutingSettings(
        "sticky", {"worker-0": [(0, SLOTS - 2)], "worker-1": [(SLOTS - 1, SLOTS - 1)]}
    )
)


def plan_with_moves(seed: int) -> Plan:
    """The seed's own plan by ranges, which are assigned anew again and again."""
    plan, chance = plan_of(Chance(seed)), Chance(seed)("ranges that move")
    subs = tuple(
        with_routing(replace(each, hands_over=chance.random() < 0.5), "sticky", chance)
        for each in plan.member.subscriptions
    )
    disturbances = {**plan.disturbances, "a range was assigned": 3.0}
    member = replace(plan.member, subscriptions=subs)
    return replace(plan, member=member, disturbances=disturbances)


# --- who may have what then ---


def given_to(worker: int, *, slot: int = SLOT, member: int = 1) -> Story:
    """A member is told that worker 1 has a slot now, and then gives a record to a worker."""

    def story(told: Told) -> None:
        begun(told, 2)
        told.deliver(1, 0, 1)
        told.run(1, 0)
        told.tell(RangeAssigned(member, SUB, slot, slot, "worker-1"))
        told.hand(1, 1, worker=worker)

    return story


def test_whoever_was_assigned_a_range_gets_it_and_nobody_else() -> None:
    assert_right(given_to(1), ALL_OF_THE_FIRST)
    words = "was given to worker-0, which does not take it"
    assert_found("OneOwner", words, given_to(0), ALL_OF_THE_FIRST)


def test_what_is_beside_the_range_stays_whose_it_was() -> None:
    beside = SLOT + 1
    assert_right(given_to(0, slot=beside), ALL_OF_THE_FIRST)
    words = "was given to worker-1, which does not take it"
    assert_found("OneOwner", words, given_to(1, slot=beside), ALL_OF_THE_FIRST)


def test_what_is_assigned_in_one_process_means_nothing_in_another() -> None:
    words = "was given to worker-1, which does not take it"
    assert_found("OneOwner", words, given_to(1, member=2), ALL_OF_THE_FIRST)


def test_the_latest_assignment_counts() -> None:
    def story(told: Told) -> None:
        given_to(1)(told)
        told.begin(1, 1, 1)
        told.end(1, 1, worker=1)
        told.write("a", start=2)
        told.deliver(1, 2)
        told.tell(RangeAssigned(1, SUB, 0, SLOTS - 1, "worker-0"))
        told.hand(1, 2, worker=0)

    assert_right(story, ALL_OF_THE_FIRST)


def test_what_was_made_nobodys_goes_to_no_worker_until_it_is_somebodys_again() -> None:
    def nobodys(told: Told) -> None:
        begun(told, 2)
        told.deliver(1, 0, 1)
        told.run(1, 0)
        told.tell(RangeAssigned(1, SUB, SLOT, SLOT, None))
        told.hand(1, 1)

    def again(told: Told) -> None:
        begun(told, 2)
        told.deliver(1, 0, 1)
        told.tell(RangeAssigned(1, SUB, SLOT, SLOT, None))
        told.tell(RangeAssigned(1, SUB, SLOT, SLOT, "worker-0"))
        told.run(1, 0, 1)

    words = "was given to worker-0, which does not take it"
    assert_found("OneOwner", words, nobodys, ALL_OF_THE_FIRST)
    assert_right(again, ALL_OF_THE_FIRST)


def skipping(*offsets: int, nobodys: bool = True, back: bool = False) -> Story:
    """A member skips what no worker has, and a commit says so of everything."""

    def story(told: Told) -> None:
        begun(told, 2)
        told.deliver(1, 0, 1)
        told.run(1, 0)
        if nobodys:
            told.tell(RangeAssigned(1, SUB, SLOT, SLOT, None))
        if back:
            told.tell(RangeAssigned(1, SUB, SLOT, SLOT, "worker-1"))
        told.tell(SettledUnrun(1, SUB, [(T0, offset, 1) for offset in offsets]))
        told.commit(1, 2)

    return story


def test_what_was_made_nobodys_may_be_skipped_and_nothing_else() -> None:
    assert_right(skipping(1), ALL_OF_THE_FIRST)
    assert_right(skipping(0, 1), ALL_OF_THE_FIRST)  # of what ran nobody hears that it did
    words = "which is not settled"
    for story in (skipping(), skipping(1, nobodys=False), skipping(1, back=True)):
        assert_found("SafeCommit", words, story, ALL_OF_THE_FIRST)


# --- in whole runs ---


def test_whole_runs_keep_the_contract_while_ranges_move() -> None:
    moved = 0
    for seed in (1, 2, 3):
        outcome = run_seed(seed, 1_000, plan_with_moves(seed))
        assert outcome.violations == [], f"seed {seed}"
        moved += outcome.sometimes["a range was assigned"]
    assert moved > 100


@pytest.mark.parametrize(
    ("on_unmatched", "sometimes"),
    [
        ("hold", "slots were nobody's for a while"),
        ("skip", "record skipped as nobody's by order"),
        ("error", "process ended by what is nobody's"),
    ],
)
def test_whole_runs_keep_the_contract_while_ranges_are_nobodys_and_come_back(
    on_unmatched: OnUnmatched, sometimes: str
) -> None:
    nobodys = 0
    for seed in (1, 2, 3, 4):
        plan, chance = plan_with_moves(seed), Chance(seed)("ranges that are withdrawn")
        subs = tuple(
            replace(each, routing=whole_ranges(each.workers, chance, on_unmatched))
            for each in plan.member.subscriptions
        )
        plan = replace(plan, member=replace(plan.member, subscriptions=subs))
        outcome = run_seed(seed, 1_000, plan)
        assert outcome.violations == [], f"seed {seed}"
        nobodys += outcome.sometimes[sometimes]
    assert nobodys > 15


def test_where_nobody_has_ranges_none_is_assigned() -> None:
    plan = plan_with_moves(1)
    subs = tuple(replace(each, routing=RoutingSettings()) for each in plan.member.subscriptions)
    plan = replace(plan, member=replace(plan.member, subscriptions=subs))
    assert run_seed(1, 200, plan).sometimes["a range was assigned"] == 0

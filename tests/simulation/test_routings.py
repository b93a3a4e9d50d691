"""Each routing inside a whole run, and that who gets what by it is looked at."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from kafka_keyshared.core.routing.modes import RoutingSettings
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.hashing import SLOTS, slot_of
from kafka_keyshared.lab.simulator.checkers.declared import Declared
from kafka_keyshared.lab.simulator.plan_model import Plan
from kafka_keyshared.lab.simulator.rng import Chance
from kafka_keyshared.lab.simulator.routings import KINDS, Kind, routed, with_routing
from kafka_keyshared.lab.simulator.run import run_seed
from kafka_keyshared.lab.simulator.seed_plan import plan_of
from tests.simulation.told import Told
from tests.simulation.watched import Story, assert_found, assert_right, begun, settings

SEEDS = range(1, 4)
STEPS = 1_500


def plan_with(kind: Kind, seed: int) -> Plan:
    plan = plan_of(Chance(seed))
    chance = Random(f"{kind}-{seed}")
    subs = tuple(with_routing(each, kind, chance) for each in plan.member.subscriptions)
    return replace(plan, member=replace(plan.member, subscriptions=subs))


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_run_keeps_the_contract_by_each_routing(kind: Kind) -> None:
    for seed in SEEDS:
        outcome = run_seed(seed, STEPS, plan_with(kind, seed))
        assert outcome.violations == [], f"seed {seed}"


def test_seeds_draw_every_routing() -> None:
    chance = Random(1)
    drawn = [routed(SubscriptionSettings(workers=worker_names(3)), chance) for _ in range(200)]
    for each in drawn:
        each.check()
    assert {each.routing.mode for each in drawn} == {
        *("ring", "sticky", "auto-split", "exclusive", "unordered")
    }
    assert any(each.routing.filters for each in drawn)
    assert any(each.routing.weights for each in drawn)
    rings = [each.routing.vnodes for each in drawn if each.routing.mode == "ring"]
    assert {*rings} == {5, 20, 200}


# --- who may have what, as checkers work it out ---


def declared(workers: int, routing: RoutingSettings) -> Declared:
    return Declared(SubscriptionSettings(workers=worker_names(workers), routing=routing))


def test_ranges_and_filters_both_have_to_take_a_key() -> None:
    half = SLOTS // 2
    low = next(key for n in range(99) if slot_of(key := b"key-%d" % n) < half)
    found = declared(
        2,
        RoutingSettings("sticky", {"worker-0": [(0, half)]}, {}, {"worker-0": ["key-*"]}, "skip"),
    )
    assert found.takers(low) == {"worker-0"}
    assert found.takers(b"x" + low) == found.takers(None) - {"worker-1"} == frozenset()
    assert found.takers(None) == {"worker-1"}


def test_keys_of_one_slot_that_others_want_are_told_apart() -> None:
    found = declared(2, RoutingSettings(filters={"worker-0": ["a"], "worker-1": ["b"]}))
    assert found.slot(b"a") % SLOTS == slot_of(b"a")
    assert found.slot(b"a") // SLOTS != found.slot(b"b") // SLOTS


def test_without_keys_everything_is_one_lane_or_each_is_one() -> None:
    assert declared(1, RoutingSettings("unordered")).alone(b"a")
    exclusive = declared(1, RoutingSettings("exclusive"))
    assert not exclusive.alone(None)
    assert exclusive.key(b"a") == exclusive.key(None) is not None


# --- the checkers ---

BOTH = RoutingSettings(
    "sticky", {"worker-0": [(0, SLOTS - 1)]}, {}, {"worker-0": ["a"]}, on_unmatched="skip"
)


def given_to(worker: int) -> Story:
    def story(told: Told) -> None:
        begun(told, 1)
        told.deliver(1, 0)
        told.hand(1, 0, worker=worker)

    return story


def test_a_worker_that_is_given_what_it_does_not_take_is_found() -> None:
    chosen = settings(routing=BOTH)
    assert_right(given_to(0), chosen)
    assert_found("OneOwner", "was given to worker-1, which does not take it", given_to(1), chosen)


def test_a_standby_that_is_given_anything_meanwhile_is_found() -> None:
    def story(told: Told) -> None:
        begun(told, 1)
        told.write("b", start=1)
        told.deliver(1, 0, 1)
        told.hand(1, 0)
        told.hand(1, 1, worker=1)

    assert_right(story)
    chosen = settings(routing=RoutingSettings("exclusive"))
    assert_found("OneOwner", "while worker 0 has 1 of that slot", story, chosen)

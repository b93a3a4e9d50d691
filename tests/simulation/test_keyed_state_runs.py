"""State follows its key through whole runs that are resized again and again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.lab.simulator.plan_model import Plan
from kafka_keyshared.lab.simulator.rng import Chance
from kafka_keyshared.lab.simulator.routings import Kind, with_routing
from kafka_keyshared.lab.simulator.run import run_seed
from kafka_keyshared.lab.simulator.seed_plan import plan_of


def plan_of_handlers_with_state(seed: int, kind: Kind) -> Plan:
    """The seed's own plan, of handlers that hand their state over, resized again and again."""
    plan = plan_of(Chance(seed))
    chance = Chance(seed)(f"states by {kind}")
    subs = tuple(
        with_routing(replace(each, hands_over=True), kind, chance)
        for each in plan.member.subscriptions
    )
    disturbances = {**plan.disturbances, "a subscription was resized": 3.0}
    member = replace(plan.member, subscriptions=subs)
    return replace(plan, member=member, disturbances=disturbances)


@pytest.mark.parametrize("kind", ["ring", "sticky", "exclusive"])
def test_state_follows_its_keys_through_every_resize_of_a_run(kind: Kind) -> None:
    for seed in (1, 4):
        outcome = run_seed(seed, 800, plan_of_handlers_with_state(seed, kind))
        assert outcome.violations == [], f"seed {seed}"
        assert outcome.sometimes["a subscription was resized"], f"seed {seed}"


def test_state_follows_its_keys_where_a_record_that_ran_on_has_ended() -> None:
    """All keys are one lane; the state of those that did not drain went before the record ended."""
    assert run_seed(3, 800, plan_of_handlers_with_state(3, "exclusive")).violations == []


def test_state_is_told_of_only_where_handlers_hand_it_over() -> None:
    assert not SubscriptionSettings().hands_over
    plan = plan_of(Chance(2))
    subs = tuple(replace(each, hands_over=False) for each in plan.member.subscriptions)
    without = replace(plan, member=replace(plan.member, subscriptions=subs))
    told = run_seed(2, 300, without).happenings
    assert told < run_seed(2, 300, plan_of_handlers_with_state(2, "ring")).happenings

"""Workers that are never idle beside a shard that is ready, and shards that have their turn."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.lab.simulator.plan_model import Plan
from kafka_keyshared.lab.simulator.pool import PoolHabits
from kafka_keyshared.lab.simulator.run import run_seed
from tests.setup.faults import plan_of

STEPS = 6_000


def plan_of_shared(seed: int, keys: int, leases: int) -> Plan:
    """Few workers with more to do than they can, and records that take long now and then."""
    plan = plan_of(seed, "none")
    settings = SubscriptionSettings(
        workers=worker_names(4), prefetch_records=leases, on_exhausted="drop", pooled=True
    )
    member = replace(plan.member, subscriptions=(settings,), pool=PoolHabits(later=0.0))
    habits = replace(plan.habits, failing=0.0, at_once=0.3, typical=0.004, hanging=0.005, hang=1.2)
    return replace(
        plan,
        disturbances={},
        members=1,
        partitions=2,
        keys=keys,
        null_share=0.0,
        backlog=300,
        burst=60,
        burst_every=0.05,
        member=member,
        habits=habits,
    )


@pytest.mark.parametrize(("keys", "leases"), [(40, 1), (40, 2), (12, 8), (6, 200)])
def test_no_worker_is_idle_beside_a_shard_that_is_ready_and_each_has_its_turn(
    keys: int, leases: int
) -> None:
    for seed in (1, 2, 3):
        outcome = run_seed(seed, STEPS, plan_of_shared(seed, keys, leases), summed=False)
        assert outcome.violations == []
        assert outcome.sometimes["record detached from its shard"]
        assert outcome.sometimes["shard taken by another worker than before"]

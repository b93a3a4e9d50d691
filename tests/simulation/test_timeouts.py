"""Records that run past the ack timeout, in made-up time, with every kind of pool."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from kafka_keyshared.lab.simulator.plan_model import Plan
from kafka_keyshared.lab.simulator.rng import Chance
from kafka_keyshared.lab.simulator.run import run_seed
from kafka_keyshared.lab.simulator.seed_plan import KINDS, plan_of
from kafka_keyshared.lab.simulator.stepped import PoolKind
from kafka_keyshared.lab.simulator.world import World

SEEDS = (3, 18, 20)
STEPS = 20_000


def hanging(seed: int, kind: PoolKind) -> Plan:
    """The plan of a seed, in which handlers hang often and for longer than they may."""
    plan = plan_of(Chance(seed))
    subscriptions = tuple(replace(each, ack_timeout=1.0) for each in plan.member.subscriptions)
    pool = replace(plan.member.pool, kind=kind)
    return replace(
        plan,
        habits=replace(plan.habits, hanging=0.03, hang=4.0, failing=0.2),
        member=replace(plan.member, subscriptions=subscriptions, pool=pool),
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", sorted(set(KINDS)))
def test_what_runs_for_too_long_breaks_no_rule(kind: PoolKind) -> None:
    reached: Counter[str] = Counter()
    for seed in SEEDS:
        outcome = run_seed(seed, STEPS, hanging(seed, kind))
        assert not outcome.violations, f"seed {seed}"
        reached += outcome.sometimes
    stuck = sum(count for name, count in reached.items() if name.startswith("lane STUCK"))
    assert bool(stuck) is (kind in ("thread", "instance", "task"))


def test_a_worker_that_comes_back_within_six_heartbeats_keeps_its_keys() -> None:
    world = World(20, hanging(20, "thread"))
    world.start()
    world.timeline.run(world.timeline.now + 5.0)
    member = world.present()[0]
    sub = member.instance.core.subscriptions["default"]
    owners = list(sub.table.owners)
    place = next(iter(member.pool.workers))
    member.pool.replaceable = False
    member.pool.kill(*place)
    world.timeline.run(world.timeline.now + 2.0)
    assert member.pool.dead() == [place]
    member.pool.replaceable = True
    world.timeline.run(world.timeline.now + 2.0)
    assert member.pool.dead() == []
    assert list(sub.table.owners) == owners
    assert sub.workers[place[1]].restarts > 1

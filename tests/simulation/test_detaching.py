"""Shared shards in a simulation, and records that are detached from them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from kafka_keyshared.lab.simulator.detachments import RARE
from kafka_keyshared.lab.simulator.plan_model import Draw, Plan
from kafka_keyshared.lab.simulator.rng import Chance
from kafka_keyshared.lab.simulator.run import run_seed
from kafka_keyshared.lab.simulator.scenarios import shared
from kafka_keyshared.lab.simulator.seed_plan import plan_of

STEPS = 700
SEEDS = (4, 45, 48, 51, 60)


def plan_that_detaches(seed: int) -> Plan:
    """The seed's own plan, whatever it is about, with shared shards and records that take long.

    Every record has a key.
    """
    plan = plan_of(Chance(seed))
    pool = replace(plan.member.pool, own=False, loop=False)
    plan = replace(plan, null_share=0.0, member=replace(plan.member, pool=pool))
    return shared(plan, Draw(Chance(seed)))


def test_whole_runs_keep_the_contract_while_records_are_detached() -> None:
    reached: Counter[str] = Counter()
    for seed in SEEDS:
        plan = plan_that_detaches(seed)
        outcome = run_seed(seed, STEPS, plan, summed=False)
        assert outcome.violations == [], f"seed {seed}"
        reached.update({name: outcome.sometimes[name] for name in RARE})
    assert {name for name in RARE if not reached[name]} == set(), reached

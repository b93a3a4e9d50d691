"""Full chunks one upon the other in a simulation, of which workers are served in turn."""

from __future__ import annotations

from kafka_keyshared.sim.chance import Chance
from kafka_keyshared.sim.emphases import full_chunks
from kafka_keyshared.sim.plan import Draw, Plan, plan_of
from kafka_keyshared.sim.run import run_seed
from kafka_keyshared.sim.shifts import MOVED, REVOKED, WAITED

STEPS = 600
SEEDS = (3, 4, 6, 8, 10)


def plan_with_full_chunks(seed: int) -> Plan:
    """The seed's own plan, whatever it is about, with full chunks."""
    return full_chunks(plan_of(Chance(seed)), Draw(Chance(seed)))


def test_whole_runs_keep_the_contract_while_workers_are_served_in_turn() -> None:
    waited = revoked = moved = 0
    for seed in SEEDS:
        outcome = run_seed(seed, STEPS, plan_with_full_chunks(seed), summed=False)
        assert outcome.violations == [], f"seed {seed}"
        waited += outcome.sometimes[WAITED]
        revoked += outcome.sometimes[REVOKED]
        moved += outcome.sometimes[MOVED]
    assert waited > 500
    assert revoked > 3
    assert moved > 5

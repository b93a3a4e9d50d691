"""Whole lives of a member against an adversary, one for each seed.

Seeds fix everything, so a failure repeats by its seed. ``KEYSHARED_SEEDS`` multiplies the number of
seeds of a run (default 1: about 1,000 lives of 300 steps).
"""

from __future__ import annotations

import os
from collections import Counter

from kafka_keyshared.core.metadata import SET_BUDGET
from tests.support.adversary import Adversary

STEPS = 300
SCALE = max(1, int(os.environ.get("KEYSHARED_SEEDS", "1")))

SMALL_BUDGET = 44
"""Characters for settled sets, so small that a handful of gaps fills them."""


def live(
    seeds: range, kind: type[Adversary] = Adversary, set_budget: int = SET_BUDGET
) -> Counter[str]:
    """Run one life per seed; return the rare states that were reached."""
    reached: Counter[str] = Counter()
    for seed in seeds:
        life = kind(seed, set_budget=set_budget)
        try:
            life.run(STEPS)
        except Exception as error:
            error.add_note(f"{kind.__name__}({seed}, set_budget={set_budget}).run({STEPS})")
            raise
        reached += life.reached
        life.member.discard()
    return reached


def expect_reached(reached: Counter[str], *states: str) -> None:
    missing = [state for state in states if not reached[state]]
    assert not missing, f"no seed reached {missing}; reached: {dict(reached)}"

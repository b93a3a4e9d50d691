"""The whole system in made-up time: many seeds, and what has to hold in each."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from kafka_keyshared.lab.simulator.many import WHOLE_SEEDS, WHOLE_STEPS, SeedsReport, run_seeds
from tests.support.seeds import patience, seeds

SEEDS = seeds(WHOLE_SEEDS, first=1)

pytestmark = pytest.mark.timeout(patience(3_600))


@pytest.fixture(scope="module")
def report() -> SeedsReport:
    """What the seeds come to."""
    return run_seeds(SEEDS, WHOLE_STEPS, os.cpu_count() or 1, lambda outcome: None)


def test_no_seed_breaks_the_contract(report: SeedsReport) -> None:
    assert report.seeds == len(SEEDS)
    assert report.steps >= len(SEEDS) * WHOLE_STEPS
    assert not report.broken


def test_every_rare_state_is_met_a_hundred_times(report: SeedsReport) -> None:
    assert report.whole
    assert report.seldom() == {}


def test_the_same_seed_is_the_same_run_whatever_hashes_are() -> None:
    digests = {digest_with(hash_seed) for hash_seed in ("0", "1", "4711")}
    assert len(digests) == 1


def digest_with(hash_seed: str) -> str:
    command = [sys.executable, "-m", "kafka_keyshared.cli", "simulate"]
    ended = subprocess.run(
        [*command, "--seed", "11", "--steps", "1000", "--json"],
        capture_output=True,
        check=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        timeout=300,
    )
    told = json.loads(ended.stdout)
    assert told["violations"] == 0
    return str(told["digest"])

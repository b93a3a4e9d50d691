"""A seed is a run: the same in every process, whatever its hashes of strings are."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.simulated_members import PROTOCOLS, TOPIC, Simulation
from tests.tidy.sources import ROOT


def digest(protocol: str, seed: int) -> str:
    """Let a group live through everything, and sum up what happened."""
    simulation = Simulation(protocol, seed=seed, partitions=5)
    cluster = simulation.cluster
    faults = cluster.faults
    faults.commit_refused = faults.commit_partly = faults.commit_late = 0.1
    faults.commit_unheard = faults.commit_dropped = faults.commit_given_up = 0.1
    faults.slow = faults.bounds_unanswered = faults.fetch_errors = 0.05
    first, second = simulation.join(), simulation.join()
    for _ in range(20):
        simulation.write(30)
        simulation.run(0.5)
        first.commit()
    simulation.join()
    cluster.throw_out(second.client)
    simulation.run(5.0)
    cluster.compact(cluster.partitions([TOPIC])[0], 0.5)
    first.kill()
    cluster.add_partition(TOPIC)
    cluster.outage(3.0)
    simulation.run(20.0)
    cluster.remake(TOPIC)
    simulation.write(3)
    simulation.run(20.0)
    return f"{simulation.history.count} {simulation.history.digest()}"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_run_is_the_same_under_other_hashes(protocol: str) -> None:
    script = f"from tests.simulation.test_replay import digest; print(digest({protocol!r}, 3))"
    found = set()
    for hashes in ("1", "2"):
        environ = {**os.environ, "PYTHONHASHSEED": hashes, "PYTHONPATH": str(ROOT)}
        ran = subprocess.run(
            [sys.executable, "-c", script], env=environ, check=True, capture_output=True, timeout=60
        )
        found.add(ran.stdout.decode().strip())
    assert found == {digest(protocol, 3)}
    assert found != {digest(protocol, 4)}

"""What the figures of being watched are made of, once and tiny; speed is for verify.py."""

from __future__ import annotations

import pytest

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.lab.bench.noop import NoopPlan
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.benchmarks import exposition, loris, telling, watched


def test_a_run_that_nobody_has_watched_is_no_measurement(embedded_cluster: Cluster) -> None:
    """It is over before a second snapshot comes."""
    said: list[str] = []
    with pytest.raises(KeySharedError, match="nobody has watched"):
        watched.measure(NoopPlan(records=400, repeat=1, keys=10), embedded_cluster, said.append)
    assert any("snapshots" in line for line in said)


def test_a_run_that_hardly_tells_anything_is_no_measurement(embedded_cluster: Cluster) -> None:
    """It is over with its first beat, if not before."""
    said: list[str] = []
    plan = NoopPlan(records=400, repeat=1, keys=10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(telling, "LEAST", 1_000)  # a slow start tells of itself, too
        with pytest.raises(KeySharedError, match="hardly anything was told"):
            telling.measure(plan, embedded_cluster, said.append)
    assert any("busier" in line for line in said)


def test_a_run_that_hardly_anybody_disturbed_is_no_measurement(embedded_cluster: Cluster) -> None:
    said: list[str] = []
    plan = NoopPlan(records=400, repeat=1, keys=10)
    with pytest.raises(KeySharedError, match="too little has disturbed it"):
        loris.measure(plan, embedded_cluster, said.append)
    assert any("connections" in line for line in said)


def test_a_scrape_has_every_partition() -> None:
    found = exposition.measure(repeat=1)
    assert found["series"] > exposition.PARTITIONS
    assert found["median_ms"] == found["worst_ms"] > 0

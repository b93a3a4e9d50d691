"""The measurement beside one other system, tiny; with Java it is in tests/integration."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.benchmarks.beside import BesidePlan, measure

PLAN = BesidePlan("keyshared:thread:4", "thread-pool:4", "sleep-1ms", 1_000, limit=30.0, pairs=2)


def test_both_take_turns_and_are_told_as_a_ratio(embedded_cluster: Cluster) -> None:
    found = measure(PLAN, embedded_cluster, lambda line: None)
    assert len(found["ratios"]) == 2
    assert min(found["ratios"]) <= found["ratio"] <= max(found["ratios"])
    assert found["ours_per_s"] > 0 and found["other_per_s"] > 0


def test_one_that_is_not_there_is_no_figure(
    embedded_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_keyshared.lab.bench.systems.find_spec", lambda name: None)
    with pytest.raises(KeySharedError, match="aiokafka: aiokafka is not installed"):
        measure(replace(PLAN, other="aiokafka"), embedded_cluster, lambda line: None)

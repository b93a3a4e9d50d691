"""The measurement of a reader beside a bare loop, tiny: both sides read everything."""

from __future__ import annotations

import pytest

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.hashing import slot_of
from kafka_keyshared.lab.bench.common import key_of, produce_all
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.benchmarks import reading
from tests.benchmarks.reading import ReadPlan, measure

TINY = ReadPlan(records=4_000, partitions=4, keys=100, pairs=1)


def test_it_measures_two_sides_that_read_every_record(embedded_cluster: Cluster) -> None:
    found = measure(TINY, embedded_cluster, lambda _: None)
    half = sum(slot_of(key_of(number)) <= 32_767 for number in range(100))
    assert found["chosen"] == 40 * half
    assert found["ratio"] > 0
    assert min(found["bare_per_s"], found["keyshared_per_s"]) > 0


def test_a_side_that_did_not_read_everything_is_no_measurement(
    embedded_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_few(bootstrap: str, topic: str, _: object, partitions: int, value_bytes: int) -> None:
        produce_all(bootstrap, topic, [b"k"] * 3_999, partitions, value_bytes)

    monkeypatch.setattr(reading, "produce_all", too_few)
    plan = ReadPlan(records=4_000, partitions=4, pairs=1)
    # The bare loop would wait for the last one for ever.
    monkeypatch.setattr(reading, "sides_of", lambda _: ("keyshared", "bare"))
    with pytest.raises(KeySharedError, match="the keyshared side read 3999 of 4000 records"):
        measure(plan, embedded_cluster, lambda _: None)

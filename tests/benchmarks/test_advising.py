"""The measurement of `keyshared advise`, tiny: it counts everything, in a process of its own."""

from __future__ import annotations

import pytest

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.benchmarks.advising import AdvisePlan, measure, measured
from tests.support.live_cluster import write


def test_it_measures_a_process_that_counted_every_key(embedded_cluster: Cluster) -> None:
    found = measure(AdvisePlan(records=3_000, partitions=4), embedded_cluster, lambda _: None)
    assert found["keys"] == found["records"] == 3_000
    assert 10 < found["peak_mib"] < 200
    assert 0 <= found["reading_s"] < found["seconds"]


def test_a_run_that_does_not_count_right_is_no_measurement(
    embedded_cluster: Cluster, topic: str
) -> None:
    embedded_cluster.create_topic(topic, 1)
    write(embedded_cluster, topic, [(b"a", b""), (b"a", b"")])
    with pytest.raises(KeySharedError, match=r"\(2, 1, True\)"):
        measured(embedded_cluster.bootstrap, topic, 2)

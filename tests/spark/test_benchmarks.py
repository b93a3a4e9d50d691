"""The measurement of batches beside a plain job, tiny: both run all that there is."""

from __future__ import annotations

import pytest

from kafka_keyshared.spark.session import Session
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.benchmarks.on_spark import an_app, beside_plain, parse, timed


def test_a_batch_and_a_plain_job_run_the_same_records(
    session: Session, real_cluster: Cluster
) -> None:
    found = beside_plain(session, real_cluster, 400, 1)
    (pair,) = found["pairs"]
    for side in ("keyshared", "plain"):
        assert pair[side]["seconds"] > 0
    assert found["ratio"] > 0
    assert {"cpu_ratio", "ratio"} <= found.keys()
    # Everything is done in this group: a run that finds less than it should is no measurement.
    with pytest.raises(RuntimeError, match="'records': 0"):
        timed(session, an_app(real_cluster, "plain-drop", "plain-drop-0", parse, "drop"), 400)

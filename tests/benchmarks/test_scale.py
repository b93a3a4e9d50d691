"""The bench of thread counts runs once, tiny: every part measures what it says."""

from __future__ import annotations

import msgspec
import pytest

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.lab.bench import scale
from kafka_keyshared.lab.bench.scale import ScalePlan
from kafka_keyshared.testing.clusters.cluster import Cluster

TINY = ScalePlan(
    repeat=1,
    records=800,
    threads=(1, 4),
    sleep_records=3_000,
    sleep_threads=6,
    resize=(2, 8),
    partitions=2,
    keys=200,
)


def test_every_part_is_measured_on_an_embedded_cluster(embedded_cluster: Cluster) -> None:
    said: list[str] = []
    result = scale.measure(TINY, embedded_cluster, said.append)
    assert result["kafka"] == "embedded"
    assert result["records"] == TINY.records
    assert all(result["per_s"][count] > 0 for count in ("1", "4"))
    assert result["workers_lost"] == result["lost"]["4"] == result["losts"]["4"][0] < 1
    # No thread sleeps less than it was told, however busy the machine is.
    most = TINY.sleep_threads / (TINY.sleep_ms / 1e3)
    assert 0 < result["sleep_per_s"] <= most
    assert 0 < result["bare_sleep_per_s"] <= most
    assert result["sleep_records"] == TINY.sleep_records
    assert 0 < result["resize_first_ms"] <= result["resize_every_ms"]
    assert result["resize_call_ms"] > 0
    # The two that ran before are not counted as new, and nothing waited for their records.
    assert result["resize_new_threads"] == 6
    assert result["resize_drained_slots"] == 0
    assert [line.partition(",")[0] for line in said] == ["threads", "sleep", "resize"]
    assert any("commit intervals" in reason for reason in result["suspect"])


def test_a_backlog_that_ends_before_all_new_threads_have_run_is_no_result(
    embedded_cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    plan = msgspec.structs.replace(TINY, parts=("resize",), sleep_records=20, resize=(2, 30))
    with pytest.raises(KeySharedError, match="the measured side ended with status 1"):
        scale.measure(plan, embedded_cluster, lambda _: None)
    assert "give more records" in capfd.readouterr().err

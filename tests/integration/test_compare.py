"""Libraries and the Java peer of bench compare: each does every record, in the order it claims."""

from __future__ import annotations

import json

import pytest

from kafka_keyshared.lab.bench import compare
from kafka_keyshared.lab.bench.compare import ComparePlan
from kafka_keyshared.lab.bench.jars import PEER_JARS
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.cli import in_process

RECORDS = 400
OTHERS = (
    *("keyshared:asyncio:100", "keyshared:process:2", "process-pool:2"),
    *("aiokafka", "faststream:2", "parallel-consumer:4"),
)


@pytest.fixture
def java_peer() -> None:
    if PEER_JARS.find() is None:
        pytest.skip("no parallel-consumer: run `python -m kafka_keyshared.lab.bench.jars`")


@pytest.mark.usefixtures("java_peer")
def test_libraries_and_the_java_peer_do_every_record_in_the_order_they_claim(
    real_cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--traffic", "zipf", "--work", "empty", "--records", RECORDS, "--runs", 1)
    ended = in_process(
        capsys,
        *("bench", "compare", "--systems", ",".join(OTHERS), *arguments),
        *("--seconds", 0, "--check", 200, "--limit", 60, "-b", real_cluster.bootstrap, "--json"),
    )
    assert ended.status == 0, ended.err
    result = json.loads(ended.out)
    assert result["failed"] == []
    assert result["left_out"] == []
    assert [row["system"] for row in result["rows"]] == list(OTHERS)
    assert all(row["complete"] for row in result["rows"])
    assert {row["ratio"] for row in result["rows"]} == {None}
    claims = {each["system"]: each["key_order"] for each in result["systems"]}
    for found in result["checked"]:
        assert (found["records"], found["missing"]) == (200, 0)
        if claims[found["system"]]:
            assert (found["out_of_order"], found["overlapping"]) == (0, 0)


@pytest.mark.usefixtures("java_peer")
def test_latency_counts_from_when_a_record_was_due(real_cluster: Cluster) -> None:
    said: list[str] = []
    plan = ComparePlan(
        systems=("bare", "parallel-consumer:4"),
        traffic=("uniform",),
        work=("empty",),
        records=10,
        runs=1,
        rate=100,
        seconds=1.0,
        check=0,
    )
    result = compare.measure(plan, real_cluster, said.append)
    assert result["failed"] == []
    bare, java = result["latency"]
    assert (bare["system"], bare["added_p50_ms"]) == ("bare", 0.0)
    # Two processes, two languages, one clock: else these would be hours, or below nothing.
    assert 0 < java["p50_ms"] <= java["p99_ms"] < 60_000
    assert java["added_p50_ms"] == pytest.approx(java["p50_ms"] - bare["p50_ms"], abs=0.002)

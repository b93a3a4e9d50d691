"""bench compare runs once, tiny, and what fails or is not there costs a line and nothing else.

The systems that need a real broker, or Java, are in tests/integration/test_compare.py.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.lab.bench import compare
from kafka_keyshared.lab.bench.compare import ComparePlan
from kafka_keyshared.lab.bench.compare_run import MeasuredRun, PeerError, run_system
from kafka_keyshared.lab.bench.jars import JARS_VARIABLE
from kafka_keyshared.lab.bench.systems import FAMILIES, System, every_system
from kafka_keyshared.lab.bench.workloads import BenchJob
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.integration.test_compare import OTHERS

RECORDS = 400
BUILT_IN = ("bare", "keyshared:thread:4", "thread-pool:4", "asyncio-tasks")


def test_every_system_has_a_tiny_run_below() -> None:
    measured = {name.partition(":")[0] for name in (*BUILT_IN, *OTHERS)}
    left = {family.name for family in FAMILIES} - measured
    # These run on Python 3.12 and newer only, and are named on others.
    assert left == {"pyrallel-consumer", "pyrallel-processes"}
    if sys.version_info < (3, 12):
        for system in [each for each in every_system() if each.family.name in left]:
            assert "needs Python 3.12" in str(system.missing())


def test_what_python_has_is_compared_on_an_embedded_cluster(embedded_cluster: Cluster) -> None:
    said: list[str] = []
    plan = ComparePlan(
        systems=BUILT_IN,
        traffic=("uniform",),
        work=("empty",),
        records=RECORDS,
        runs=1,
        seconds=0,
        check=RECORDS,
    )
    result = compare.measure(plan, embedded_cluster, said.append)
    assert result["failed"] == result["left_out"] == []
    assert [row["system"] for row in result["rows"]] == list(BUILT_IN)
    assert all(row["complete"] and row["records"] == RECORDS for row in result["rows"])
    assert result["rows"][0]["ratio"] == 1.0
    assert all(row["peak_mib"] > 10 for row in result["rows"])
    assert any("run 1 of 1: thread-pool:4" in line for line in said)
    for found in result["checked"]:
        assert (found["records"], found["missing"]) == (plan.check, 0)
        if found["system"] in BUILT_IN[:2]:
            assert (found["out_of_order"], found["overlapping"]) == (0, 0)
    tasks = result["checked"][-1]
    assert tasks["overlapping"] > 0, "the check would notice what has no order"


def test_a_hot_key_is_sent_to_each_system_and_the_others_are_timed(
    embedded_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As long as a busy machine may need between the first record and the producer's.
    monkeypatch.setattr(compare, "HOT_GRACE", 3.0)
    plan = ComparePlan(
        systems=("keyshared:thread:8",),
        records=0,
        runs=1,
        seconds=0,
        check=0,
        hot_seconds=3.0,
    )
    result = compare.measure(plan, embedded_cluster, lambda line: None)
    assert result["failed"] == []
    (row,) = result["hot_key"]
    assert row["system"] == "keyshared:thread:8"
    assert 0 < row["others_p50_ms"] <= row["others_p99_ms"]
    assert row["hot_per_s"] > 0


def test_one_that_fails_is_named_and_the_others_go_on(
    embedded_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(system: System, job: BenchJob, java: object) -> MeasuredRun:
        if system.family.name == "thread-pool":
            raise PeerError("it ended with status 1: out of threads")
        return run_system(system, job)

    monkeypatch.setattr(compare, "run_system", run)
    said: list[str] = []
    plan = ComparePlan(
        systems=("thread-pool:2", "bare"),
        traffic=("zipf",),
        work=("empty",),
        records=10,
        runs=2,
        seconds=0,
        check=20,
    )
    result = compare.measure(plan, embedded_cluster, said.append)
    assert [(each["system"], each["scenario"]) for each in result["failed"]] == [
        ("thread-pool:2", "zipf/order"),
        ("thread-pool:2", "zipf/empty"),
    ]
    assert [row["system"] for row in result["rows"]] == ["bare"]
    assert len(result["rows"][0]["per_s_runs"]) == 2
    line = "zipf/empty: thread-pool:2 failed: it ended with status 1: out of threads"
    assert said.count(line) == 1


def test_jars_that_do_not_compile_leave_out_the_java_peer_alone(
    embedded_cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("parallel-consumer-core-1.jar", "kafka-clients-1.jar"):
        (tmp_path / name).write_bytes(b"")
    monkeypatch.setenv(JARS_VARIABLE, str(tmp_path))
    said: list[str] = []
    plan = ComparePlan(
        systems=("parallel-consumer:4", "bare"),
        traffic=("uniform",),
        work=("empty",),
        records=10,
        runs=1,
        seconds=0,
        check=0,
    )
    result = compare.measure(plan, embedded_cluster, said.append)
    assert [row["system"] for row in result["rows"]] == ["bare"]
    (left,) = result["left_out"]
    # Without a compiler, or without Java, it is left out one step earlier.
    assert re.search("be compiled|needs Java", left["why"])


def test_with_nothing_that_can_run_it_says_so(
    embedded_cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(JARS_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    plan = ComparePlan(systems=("parallel-consumer:4",), seconds=0)
    with pytest.raises(KeySharedError, match="none of the systems"):
        compare.measure(plan, embedded_cluster, lambda line: None)

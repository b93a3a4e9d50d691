"""The bench of skewed backlogs runs once, tiny: every record is handled, and the bound holds."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.lab.bench import skew
from kafka_keyshared.lab.bench.common import run_child
from kafka_keyshared.lab.bench.skew import Pair, SkewPlan, row_of
from kafka_keyshared.lab.bench.sleeping import run_sleeping
from kafka_keyshared.lab.bench.sleeping_side import Makespan, SleepTask
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.cli import in_process

TINY = SkewPlan(
    records=200,
    keys=50,
    workers="thread:4",
    sleep_ms=5.0,
    distributions=("zipf:1.1", "uniform"),
    repeat=1,
    partitions=2,
)


def test_no_run_beats_its_lower_bound(embedded_cluster: Cluster) -> None:
    said: list[str] = []
    result = skew.measure(TINY, embedded_cluster, said.append)
    assert result["kafka"] == "embedded"
    assert result["sleep_call_ms"] >= TINY.sleep_ms
    assert [row["distribution"] for row in result["rows"]] == list(TINY.distributions)
    for row in result["rows"]:
        assert row["records"] == TINY.records
        assert len(row["ratios"]) == len(row["bare_ratios"]) == 1
        # By the sleep that was asked for, which none is shorter than, however busy the machine is.
        work = TINY.records * TINY.sleep_ms / 1e3 / TINY.threads()
        hottest = row["hottest_records"] * TINY.sleep_ms / 1e3
        assert row["makespan_s"] >= max(work, hottest)
        assert row["bare_makespan_s"] >= work
        assert row["bound_s"] >= max(work, hottest)
    skewed, even = result["rows"]
    assert (skewed["bound"], even["bound"]) == ("hottest key", "all work")
    assert skewed["hottest_records"] > even["hottest_records"] == 4
    assert any("zipf:1.1, pair 1 of 1" in line for line in said)


def test_the_embedded_cluster_gets_no_more_than_it_keeps(
    embedded_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skew, "embedded_room", lambda *_: 30)
    pairs = [Pair(cost=0.001, keyshared=0.1, bare=0.1)]
    monkeypatch.setattr(skew, "_pairs", lambda *_: pairs)
    said: list[str] = []
    plan = SkewPlan(
        records=400, sleep_ms=1.0, distributions=("uniform",), repeat=1, partitions=2, keys=10
    )
    (row,) = skew.measure(plan, embedded_cluster, said.append)["rows"]
    assert row["records"] == 60
    assert "embedded cluster: 60 records, because it holds no more" in said


def test_bare_threads_that_only_sleep_share_the_records(embedded_cluster: Cluster) -> None:
    span = run_sleeping("threads", embedded_cluster, "", records=41, workers="thread:4", sleep_ms=1)
    assert span.records == 41
    # One of four has eleven of them.
    assert span.seconds >= 0.01


def test_a_run_that_handled_too_few_is_no_result(
    embedded_cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def few(_module: str, task: SleepTask, *_: object) -> Makespan:
        return Makespan(seconds=1.0, records=task.records - 1)

    monkeypatch.setattr("kafka_keyshared.lab.bench.sleeping.run_child", few)
    with pytest.raises(KeySharedError, match="queue side: 9 of 10 records were handled"):
        run_sleeping("queue", embedded_cluster, topic, records=10, workers="2", sleep_ms=1)
    assert run_child is not few


def test_the_verb_prints_a_table_with_a_row_for_each_distribution(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(plan: SkewPlan, *_: object) -> dict[str, Any]:
        pairs = [Pair(cost=0.001, keyshared=0.012, bare=0.011)]
        rows = [row_of(plan, each, plan.numbers(each), pairs) for each in plan.distributions]
        return {"rows": rows, "suspect": ["the machine is busy"]}

    monkeypatch.setattr(skew, "measure_at", measured)
    shown = in_process(
        capsys, "bench", "skew", "--records", 160, "--distributions", "uniform,zipf:0.8"
    )
    assert shown.status == 0, shown.err
    assert all(word in shown.out for word in ("bench skew", "uniform", "zipf:0.8", "hottest"))
    assert "1.200 (1.200" in shown.out
    assert "suspect: the machine is busy" in shown.err

"""The bench of one record that takes very long runs once, short, on each kind of pool."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_keyshared.lab.bench import stuck
from kafka_keyshared.lab.bench.paced import Paced
from kafka_keyshared.lab.bench.stuck import StuckPlan, StuckRun
from kafka_keyshared.lab.bench.stuck_side import Punctual
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.cli import in_process

SHORT = StuckPlan(
    stuck=1.0,
    lead=0.5,
    rate=100,
    keys=500,
    workers=("thread:1", "asyncio:20", "process:2"),
    repeat=1,
    partitions=2,
)


@pytest.fixture(autouse=True)
def no_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stuck, "TAIL", 0.2)


def test_other_records_are_counted_that_are_due_meanwhile(embedded_cluster: Cluster) -> None:
    said: list[str] = []
    result = stuck.measure(SHORT, embedded_cluster, said.append)
    assert (result["kafka"], result["stuck_s"]) == ("embedded", 1.0)
    assert [row["workers"] for row in result["rows"]] == list(SHORT.workers)
    for row in result["rows"]:
        assert 0 < row["others"] <= SHORT.rate * SHORT.stuck + 1
        assert 0 <= row["share"] <= 1
        assert 0 <= row["before_share"] <= 1
        assert row["shares"] == [row["share"]]
        assert row["p99_ms"] > 0
    # With a single thread all others wait, however fast the machine is.
    assert result["rows"][0]["share"] < 0.5
    assert any("run 1 of 1, process:2" in line for line in said)


def test_the_verb_prints_a_table_with_a_row_for_each_pool(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(plan: StuckPlan, *_: object) -> dict[str, Any]:
        run = StuckRun(
            punctual=Punctual(others=8_997, share=0.5, p99_ms=1.5, unseen=0, before_share=1.0),
            paced=Paced(late_p50_ms=0.0, late_p99_ms=0.0, late_max_ms=0.0),
        )
        return stuck.summary(plan, "embedded", {workers: [run] for workers in plan.workers})

    monkeypatch.setattr(stuck, "measure_at", measured)
    shown = in_process(capsys, "bench", "stuck", "--workers", "thread:2,asyncio:9")
    assert shown.status == 0, shown.err
    for word in ("bench stuck", "thread:2", "asyncio:9", "8,997", "on time"):
        assert word in shown.out

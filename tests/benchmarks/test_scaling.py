"""The measurement of scaling, tiny."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.benchmarks import scaling, verify
from tests.benchmarks.scaling import AXES, ScalingPlan, held_bytes


def test_each_axis_has_two_ends_that_differ_in_nothing_else() -> None:
    plan = ScalingPlan()
    for axis in AXES:
        low, high = plan.ends(axis)
        differ = {
            each for each in low.__struct_fields__ if getattr(low, each) != getattr(high, each)
        }
        assert differ == {axis}
    (case,) = [case for case in verify.CASES if case.name == "scaling"]
    assert {floor.figure for floor in case.floors} == {
        *(f"{axis}_lost" for axis in (*AXES, "workers")),
        "held_bytes",
        "held_bytes_header",
    }


def test_a_tiny_run_has_every_figure_that_is_judged(
    embedded_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "_in_turn", lambda *_: [(0.6, 0.3), (0.5, 0.5), (0.8, 0.6)])
    plan = ScalingPlan(records=400, repeat=1, held=200)
    found = scaling.measure(plan, embedded_cluster, verify.note)
    (case,) = [case for case in verify.CASES if case.name == "scaling"]
    assert {floor.figure for floor in case.floors} <= found.keys()
    assert found["keys_lost"] == found["partitions_lost"] == 0.25
    assert [*found["workers_per_s"]] == ["2", "64"]


@pytest.mark.parametrize("header", [None, "key"])
def test_a_record_that_is_held_takes_little_beside_its_message(header: str | None) -> None:
    assert 16 < held_bytes(6_000, header) <= 250


def test_what_is_not_held_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dispatcher, "unsettled_count", lambda _self: 1)
    with pytest.raises(KeySharedError, match="1 of 100 records are held"):
        scaling.held_bytes(100)

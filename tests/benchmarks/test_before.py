"""The comparison with another checkout, tiny, with this one as the other."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.lab.bench.noop import NoopPlan
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.benchmarks.before import HERE, BeforePlan, figures_of, in_tree, require_tree

PLAN = BeforePlan(NoopPlan(records=1_000, partitions=2, keys=10), before=HERE)


def test_three_sides_take_turns_and_each_round_has_its_ratios(embedded_cluster: Cluster) -> None:
    said: list[str] = []
    found = PLAN.measure(embedded_cluster, 1, said.append)
    for name in ("of_before", "ratio", "before_ratio"):
        assert len(found[f"{name}s"]) == 1
        assert min(found[f"{name}s"]) <= found[name] <= max(found[f"{name}s"])
    assert found["now_per_s"] > 0 and found["before_per_s"] > 0
    assert "round 1 of 1: bare" in said[-1]
    assert any("commit intervals" in reason for reason in found["suspect"])


def test_without_the_bare_loop_there_is_one_ratio() -> None:
    assert replace(PLAN, bare=False).sides == ("before", "now")
    found = figures_of([{"before": 100.0, "now": 90.0}, {"before": 100.0, "now": 120.0}])
    assert (found["of_before"], found["of_befores"]) == (1.05, [0.9, 1.2])
    assert "ratio" not in found


def test_the_other_side_imports_from_the_other_checkout(tmp_path: Path) -> None:
    package = tmp_path / "kafka_keyshared"
    shutil.copytree(HERE / "kafka_keyshared", package, ignore=shutil.ignore_patterns("__pycache__"))
    assert require_tree(tmp_path) == tmp_path.resolve()
    where = Path.cwd()
    with in_tree(tmp_path):
        assert (Path.cwd(), os.environ["PYTHONPATH"]) == (tmp_path, str(tmp_path))
    assert Path.cwd() == where


def test_a_directory_without_the_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeySharedError, match="is not imported from there"):
        require_tree(tmp_path)
    with pytest.raises(KeySharedError, match="not a directory"):
        require_tree(tmp_path / "nowhere")


def test_without_a_checkout_there_is_nothing_to_compare_with(embedded_cluster: Cluster) -> None:
    with pytest.raises(KeySharedError, match="give --before PATH"):
        replace(PLAN, before=None).measure(embedded_cluster, 1, lambda _: None)

"""Beginning is measured in processes of its own, and takes no time that anybody would notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.benchmarks import start, verify
from tests.benchmarks.start import StartPlan


def floors_of(name: str) -> set[str]:
    (case,) = [case for case in verify.CASES if case.name == name]
    return {floor.figure for floor in case.floors}


def test_the_start_of_run_is_measured_to_its_first_record(real_cluster: Cluster) -> None:
    said: list[str] = []
    result = start.measure(StartPlan(repeat=1), real_cluster, said.append)
    assert floors_of("start") <= result.keys()
    assert result["kafka"] == "real"
    assert said[0].startswith("pair 1 of 1: bare ")
    # As lax as a busy machine may need; `make verify` holds it to 4 s.
    for side in ("bare", "keyshared"):
        assert 0 < result[f"{side}_s"] < 30
    assert result["slowest_s"] == result["keyshared_s"]


def test_a_run_that_reaches_no_record_is_no_measurement(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("")
    command = start._keyshared("127.0.0.1:1", "t", tmp_path / "empty.py")
    with pytest.raises(KeySharedError, match=r"run .*empty.py:handle: it ended without a record"):
        start._seconds_of(command)


def test_help_is_measured_for_every_verb() -> None:
    every = start.verbs()
    assert {(), ("run",), ("doctor",), ("routing", "where")} <= set(every)
    assert len(every) == len(set(every))
    result = start.measure_help(1, [(), ("doctor",)])
    assert floors_of("help") <= result.keys()
    assert result["verbs"] == 2
    assert 0 < result["median_s"] <= result["worst_s"] < 15
    assert result["medians_s"][result["worst_verb"]] == result["worst_s"]

"""A short soak: the machinery of ``make soak`` on a real broker, and a fault that it finds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_keyshared.testing.clusters.broker import RealCluster
from tests.chaos.soak_judge import context, judged
from tests.chaos.soak_run import Soak
from tests.chaos.soak_schedule import BLOCKED, MAIN, scenario_of
from tests.chaos.soak_table import table

FEW = {MAIN: 2_500, BLOCKED: 200}

PATIENT = 20.0
"""Seconds of a session. A broker that has just been started beside two busy loops may not answer
for 10 s, and if its clients then connect again and again, for much longer."""


@pytest.fixture
def directory(tmp_path: Path, kafka_parts: None) -> Path:
    return tmp_path


def test_a_short_soak_is_clean(directory: Path) -> None:
    """Somebody joins, somebody stops, somebody is killed, partitions are added, all under load."""
    scenario = replace(scenario_of(132, 22.0), session=PATIENT)
    assert {step.what for step in scenario.steps} == {"start", "stop", "kill", "grow"}
    with RealCluster(settings=scenario.broker_settings()) as cluster:
        evidence = Soak(scenario, cluster, directory, ahead=FEW).run()
    verdict = judged(evidence)
    told = table(evidence, verdict)
    assert verdict.clean, "\n".join([told, *context(evidence, verdict.violations[0])])
    assert verdict.judgement.totals.produced > 5_000
    assert len(evidence.lives) > len(scenario.first)
    assert evidence.dry < 5.0, told


def test_a_partition_that_nobody_resumes_is_found(directory: Path) -> None:
    """Planted: the client pauses one partition on its own account, and never says so."""
    scenario = replace(scenario_of(132, 16.0), steps=[], session=PATIENT)
    scenario.plans = {name: replace(each, pause=0.002) for name, each in scenario.plans.items()}
    with RealCluster(settings=scenario.broker_settings()) as cluster:
        soak = Soak(scenario, cluster, directory, fault="standing", ahead=FEW, drain_seconds=5.0)
        evidence = soak.run()
    verdict = judged(evidence, still=6.0)
    found = [each.text for each in verdict.violations if each.rule == "stand-still"]
    assert len(found) == 1, table(evidence, verdict)
    assert found[0].startswith(f"{MAIN}-0 stood still from ")
    assert "stops" not in verdict.rules(), "it said at its stop that all was well"
    assert {each.partition.partition for each in verdict.still} > {0}, "the others went on"

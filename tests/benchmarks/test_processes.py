"""Processor time and memory are those of a process and of all that come from it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

pytest.importorskip("pyspark")

from kafka_keyshared.lab.bench.processes import watched
from tests.benchmarks.cpu_meter import CpuMeter
from tests.benchmarks.on_spark import turns

HOLDS = "held = b'x' * (64 << 20); print('held', flush=True); input()"
COMPUTES = """
import time
while time.process_time() < 0.3:
    pass
"""


def test_memory_is_that_of_the_children_too() -> None:
    command = [sys.executable, "-c", HOLDS]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with watched(os.getpid()) as peak:
        child = subprocess.Popen(command, **pipes)  # type: ignore[call-overload]
        with child:
            assert child.stdout.readline() == "held\n"
            peak.look(os.getpid())
            child.communicate("\n")
    assert peak.largest("64 << 20") > 64 << 20
    assert peak.total() > peak.total("64 << 20") >= peak.largest("64 << 20")
    assert peak.largest("no such command") == 0


def test_processor_time_of_a_child_that_has_ended_counts() -> None:
    meter = CpuMeter(os.getpid())
    subprocess.run([sys.executable, "-c", COMPUTES], check=True)
    assert meter.seconds() >= 0.25


def test_either_side_is_first_in_turn() -> None:
    order: list[str] = []

    def side(name: str, seconds: float) -> Callable[[], float]:
        def run() -> float:
            order.append(name)
            # What has no processor time has no ratio of it.
            sum(range(5_000_000))
            return seconds

        return run

    found = turns(3, {"a": side("a", 3.0), "b": side("b", 2.0)})
    assert "".join(order) == "abbaab"
    assert found["ratio"] == 1.5
    assert found["pairs"][0]["a"]["seconds"] == 3.0

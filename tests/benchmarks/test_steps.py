"""The measurement of steps, tiny: each is timed by itself, and none is missed."""

from __future__ import annotations

import pytest

from kafka_keyshared.lab.bench.noop import NoopPlan
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.benchmarks import steps
from tests.benchmarks.steps import (
    CLIENT,
    CLOCK,
    COMMITS,
    FETCH,
    LOOP,
    SLICES,
    STEPS,
    WORKERS,
    Account,
)

SELDOM = {"heartbeat"}
"""Twice a second: the run may be over before."""


def test_the_time_of_a_step_inside_is_that_step_s_alone() -> None:
    time = 0
    account = Account(lambda: time)

    def inner() -> None:
        nonlocal time
        time += 7

    timed = account.timed("inner", inner)

    @lambda outer: account.timed("outer", outer)
    def outer() -> None:
        nonlocal time
        time += 5
        timed()
        timed()
        time += 3

    outer()
    assert account.own == {"outer": 8, "inner": 14}
    assert account.calls == {"outer": 1, "inner": 2}


def test_what_a_clock_takes_counts_to_no_step() -> None:
    time = 0

    def tick() -> int:
        nonlocal time
        time += 1
        return time

    account = Account(tick)
    inner = account.timed("inner", lambda: None)
    account.timed("outer", lambda: [inner() for _ in range(100)])()
    assert account.own == pytest.approx({"outer": 0, "inner": 0}, abs=0.1)
    assert account.overhead() == pytest.approx(202, abs=0.1)


def test_every_step_of_both_sides_is_timed(embedded_cluster: Cluster) -> None:
    plans = [NoopPlan(records=4_000, partitions=each, repeat=1) for each in (1, 2)]
    found = steps.measure(plans, embedded_cluster, lambda _text: None)
    for plan, sides in zip(plans, found, strict=True):
        (bare,), (ours,) = sides["bare"], sides["keyshared"]
        assert bare.result.records == ours.result.records == plan.records
        assert bare.own.keys() == {FETCH, COMMITS, LOOP, CLIENT}
        assert ours.calls.keys() - SELDOM == {*STEPS, SLICES} - SELDOM
        assert 0 < ours.calls[SLICES] <= plan.records
        assert ours.own[WORKERS] > 0
        assert ours.own[CLIENT] > 0
    lines = steps.table(plans, found).splitlines()
    assert lines[0].endswith("1 partitions, thread:8 | 2 partitions, thread:8 |")
    for step in (*STEPS, CLOCK):
        assert any(line.startswith(f"| keyshared: {step} |") for line in lines)

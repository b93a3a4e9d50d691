"""When the idle bench begins and ends to measure, and what it makes of it."""

from __future__ import annotations

import pytest

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.lab.bench.child import IDLE_LIMIT, Stalled
from kafka_keyshared.lab.bench.idle import IdlePlan, summary
from kafka_keyshared.lab.bench.idle_side import IdleTask, IdleWatch, Spent

TASK = IdleTask(
    side="keyshared",
    bootstrap="",
    topic="t",
    group="g",
    partitions=1,
    blocked=0,
    calm=3.0,
    seconds=20.0,
)


class Times:
    """A wall clock and a processor clock that stand still until they are moved."""

    def __init__(self) -> None:
        self.wall = 100.0
        self.cpu = 50.0

    def watch(self) -> IdleWatch:
        return IdleWatch(TASK, lambda: self.wall, lambda: self.cpu)

    def spend(self, wall: float, cpu: float) -> None:
        self.wall += wall
        self.cpu += cpu


def test_only_what_is_spent_after_settling_counts() -> None:
    times = Times()
    watch = times.watch()
    assert not watch.over(ready=False)
    times.spend(5.0, 4.0)
    assert not watch.over(ready=True)
    times.spend(2.9, 2.0)
    assert not watch.over(ready=True)
    times.spend(0.1, 0.5)
    assert not watch.over(ready=True)
    times.spend(19.9, 0.25)
    assert not watch.over(ready=True)
    times.spend(0.1, 0.05)
    assert watch.over(ready=True)
    spent = watch.spent(held=7)
    assert spent.wall_s == pytest.approx(20.0)
    assert spent.cpu_s == pytest.approx(0.3)
    assert spent.held == 7


def test_what_never_gets_ready_is_no_measurement() -> None:
    times = Times()
    watch = times.watch()
    times.spend(IDLE_LIMIT, 0.0)
    assert not watch.over(ready=False)
    times.spend(1.0, 0.0)
    with pytest.raises(Stalled, match="not ready"):
        watch.over(ready=False)
    with pytest.raises(Stalled, match="before the measurement began"):
        watch.spent(held=0)


def test_shares_are_of_one_core_in_percent() -> None:
    result = summary(
        IdlePlan(),
        "real",
        bare=Spent(cpu_s=0.05, wall_s=20.0, held=0),
        idle=Spent(cpu_s=0.1, wall_s=20.0, held=0),
        blocked=Spent(cpu_s=30.0, wall_s=20.0, held=50),
    )
    assert (result["bare_percent"], result["idle_percent"]) == (0.25, 0.5)
    assert result["blocked_percent"] == 150.0
    assert result["blocked_records"] == 50
    assert result["suspect"] == []


def test_a_short_wait_is_suspect_and_none_is_refused() -> None:
    spent = Spent(cpu_s=0.05, wall_s=5.0, held=0)
    (reason,) = summary(IdlePlan(seconds=5.0), "real", spent, spent, spent)["suspect"]
    assert "5 s are short" in reason
    with pytest.raises(ConfigError, match="--seconds 0"):
        IdlePlan(seconds=0.0).check()
    with pytest.raises(ConfigError, match="--partitions 0"):
        IdlePlan(partitions=0).check()

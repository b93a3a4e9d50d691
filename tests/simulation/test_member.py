"""Owners in a simulation: when they have rounds, and when they rest."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from unittest.mock import Mock

import pytest

from kafka_keyshared.core.contract.events import LaneAction, LaneOrder
from kafka_keyshared.core.records.lane_identity import NULL_KEY
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator import worker_faults
from kafka_keyshared.lab.simulator.handlers import Habits, Handlers
from kafka_keyshared.lab.simulator.plan_model import Plan
from kafka_keyshared.lab.simulator.rng import Chance
from kafka_keyshared.lab.simulator.run import run_seed
from kafka_keyshared.lab.simulator.seed_plan import plan_of
from kafka_keyshared.lab.simulator.world import World

CALM = Habits(failing=0.0, poisoned=0.0, dropping=0.0, hanging=0.0)


def calm(rests: float) -> Plan:
    """A run in which nothing goes wrong, with owners that may rest so long."""
    plan = plan_of(Chance(1))
    return replace(
        plan,
        burst=4,
        burst_every=0.1,
        disturbances={},
        habits=CALM,
        members=1,
        member=replace(plan.member, rests=rests),
    )


@pytest.mark.parametrize("rests", [0.0, 0.1, 20.0])
def test_an_owner_that_rests_goes_on_when_something_comes_for_it(rests: float) -> None:
    """Else records would wait longer than a second for it, which is found."""
    outcome = run_seed(1, 500, calm(rests), summed=False)
    assert not outcome.violations
    assert outcome.sometimes["partition OWNED RECEIVED"] > 10


def test_an_owner_that_rests_has_fewer_rounds_for_the_same_time() -> None:
    def rounds(rests: float) -> float:
        outcome = run_seed(1, 1_000, calm(rests), summed=False)
        return outcome.steps / outcome.simulated

    assert rounds(0.1) < 0.8 * rounds(0.0)


def test_a_member_may_be_killed_while_it_breaks_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A callback has raised, and closing its client takes a while, in which its process goes."""
    world = World(1, calm(0.0), summed=False)
    world.start()
    (member,) = world.present()

    def killed_meanwhile() -> None:
        member.kill()
        member.process.wait(0)

    monkeypatch.setattr(member.client, "close", killed_meanwhile)
    member.raises = True
    world.timeline.run(world.timeline.now + 10.0)
    assert not member.raises
    assert not world.present()


def test_an_order_for_the_lane_of_null_keys_is_told_as_one_of_no_key() -> None:
    """Its key equals the empty one, which has a lane of its own."""
    world = World(1, calm(0.0), summed=False)
    told: list[happened.LaneOrdered] = []
    world.history.listen(happened.LaneOrdered, told.append)
    world.start()
    (member,) = world.present()
    for key in (NULL_KEY, b""):
        member.ordered(LaneOrder("default", LaneAction.UNBLOCK, key))
    assert [each.key for each in told] == [None, b""]


@pytest.mark.parametrize("killed", [False, True])
def test_a_worker_that_joins_goes_only_where_its_process_is(killed: bool) -> None:
    world = World(1, calm(0.0), summed=False)
    died: list[object] = []
    world.history.listen(happened.WorkerDied, died.append)
    world.start()
    timeline = world.timeline
    timeline.run(timeline.now + 1.0)
    (member,) = world.present()
    before = len(member.pool.workers)
    dice = Mock(wraps=Random(1), random=lambda: 0.0)  # it dies
    assert worker_faults.come_and_go(world, dice)
    for _ in range(200):
        if len(member.pool.workers) == before:
            timeline.run(timeline.now + 0.01)
    assert len(member.pool.workers) > before
    if killed:
        member.kill()
    timeline.run(timeline.now + 1.0)
    assert len(died) == (not killed)


def test_what_is_stuck_is_so_each_time_until_it_is_mended() -> None:
    habits = replace(CALM, at_once=1.0, stuck=0.01)
    handlers = Handlers(habits, Chance(1)("handlers"), 0)
    stuck = [at for at in range(10_000) if handlers.call(0, at).hangs]
    assert len(stuck) == 100
    assert all(handlers.ending(0, at, hung=True) is not None for at in stuck for _ in range(3))
    assert [at for at in range(10_000) if handlers.call(0, at).seconds >= 7.0] == stuck
    handlers.habits = habits.healed()
    assert not any(handlers.call(0, at).hangs for at in stuck)


def test_handlers_hang_as_often_as_they_are_to() -> None:
    handlers = Handlers(replace(CALM, at_once=1.0), Chance(1)("handlers"), 0)
    handlers.hang(2, 7.0)
    assert [handlers.call(0, 0).seconds for _ in range(4)] == [7.0, 7.0, 0.0, 0.0]

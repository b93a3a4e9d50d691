"""Members that were told an id by a simulated coordinator and have not joined (KIP-394)."""

from __future__ import annotations

import pytest

from kafka_keyshared.lab.simulator.member_events import LeftGroup, PendingGivenUp, StoppedJoining
from tests.simulation.told import Told
from tests.simulation.watched import assert_found, assert_right, begun
from tests.support.simulated_members import Simulation

ROUNDS = ["eager", "cooperative"]

STEPS = [0.0, 0.001, 0.002, 0.003, 0.01, 0.03, 0.1]
"""Seconds after a join began; answers take a millisecond or two, and seldom twenty."""


@pytest.mark.parametrize("protocol", ROUNDS)
@pytest.mark.parametrize("seconds", STEPS)
def test_a_member_that_stops_at_any_step_of_its_join_keeps_nobody_waiting(
    protocol: str, seconds: float
) -> None:
    simulation = Simulation(protocol)
    given_up: list[PendingGivenUp] = []
    simulation.history.listen(PendingGivenUp, given_up.append)
    first = simulation.join()
    simulation.until(lambda: simulation.shared(first))
    second = simulation.join()
    second.polling = False  # it is closed between two polls
    left: list[bool] = []
    simulation.timeline.after(seconds, lambda: left.append(second.client.close()))
    simulation.until(lambda: bool(left))
    assert left == [True]
    third = simulation.join()
    simulation.until(lambda: simulation.shared(first, third), 5.0)
    simulation.run(30.0)
    assert given_up == []


@pytest.mark.parametrize("protocol", ROUNDS)
def test_no_round_ends_while_a_member_that_was_killed_is_pending(protocol: str) -> None:
    simulation = Simulation(protocol)
    given_up: list[PendingGivenUp] = []
    simulation.history.listen(PendingGivenUp, given_up.append)
    first = simulation.join()
    simulation.until(lambda: simulation.shared(first))
    second = simulation.join()
    waits: list[object] = []

    def kill_once_pending() -> None:
        if not waits and pending(simulation):
            waits.append(pending(simulation))
            second.kill()
        elif not waits:
            simulation.timeline.after(0.0005, kill_once_pending)

    kill_once_pending()
    simulation.until(lambda: bool(waits))
    third = simulation.join()
    simulation.run(5.0)
    assert not simulation.shared(first, third)
    simulation.until(lambda: simulation.shared(first, third), 20.0)
    assert len(given_up) == 1


def pending(simulation: Simulation) -> object:
    """Return the members that the coordinator waits for."""
    return simulation.cluster.group._pending  # type: ignore[attr-defined]


@pytest.mark.parametrize("protocol", ROUNDS)
def test_a_member_that_the_coordinator_does_not_answer_says_that_it_has_not_left(
    protocol: str,
) -> None:
    simulation = Simulation(protocol)
    told: list[object] = []
    for kind in (StoppedJoining, LeftGroup):
        simulation.history.listen(kind, told.append)
    first = simulation.join()
    simulation.until(lambda: simulation.shared(first))
    second = simulation.join()
    second.client.link.cut()
    began = simulation.timeline.now
    assert not second.client.close(3.0)
    assert simulation.timeline.now - began == pytest.approx(3.0, abs=0.1)
    assert told == [StoppedJoining(second.client.member)]


def test_a_pending_member_that_says_it_has_left_is_found() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.history.tell(LeftGroup(7))
        told.history.tell(PendingGivenUp(7))

    assert_found("Liveness", "it said that it had left its group", story)


def test_a_pending_member_that_was_killed_is_nobodys_fault() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.history.tell(PendingGivenUp(7))

    assert_right(story)

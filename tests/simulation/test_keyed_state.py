"""State follows its key: histories in which it does, and planted ones in which it does not."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.routing.modes import RoutingSettings
from kafka_keyshared.hashing import slot_of
from kafka_keyshared.lab.simulator import state_history as told_of
from kafka_keyshared.lab.simulator.identity import Site
from kafka_keyshared.lab.simulator.states import States
from kafka_keyshared.lab.simulator.timeline import SimulatedProcess
from tests.simulation.told import SUB, Told
from tests.simulation.watched import assert_found, assert_right, begun, settings

A, SLOT = b"a", slot_of(b"a")


def ran(told: Told, offset: int, runs: int, worker: int = 0) -> None:
    """A worker runs a record of the key, and remembers so many of it then."""
    told.run(1, offset, worker=worker)
    told.tell(told_of.Remembered(1, SUB, worker, A, runs))


def released(told: Told, worker: int, runs: int | None = 1) -> None:
    state = () if runs is None else ((A, runs),)
    told.tell(told_of.StateReleased(1, SUB, worker, [SLOT], state))


def adopted(told: Told, worker: int, runs: int | None = 1) -> None:
    told.tell(told_of.StateSent(1, SUB, worker, [SLOT]))
    state = () if runs is None else ((A, runs),)
    told.tell(told_of.StateAdopted(1, SUB, worker, [SLOT], state))


def lost(told: Told, worker: int, *, for_good: bool = False) -> None:
    told.tell(told_of.StateLost(1, SUB, worker, for_good))


def once_run(told: Told) -> Told:
    """Four records of one key, of which worker 0 has run the first."""
    begun(told, 4)
    told.deliver(1, 0, 1, 2, 3)
    ran(told, 0, 1)
    return told


# --- as it should be ---


def test_state_that_goes_there_and_back_is_right() -> None:
    def story(told: Told) -> None:
        once_run(told)
        released(told, 0)
        adopted(told, 1)
        ran(told, 1, 2, worker=1)
        released(told, 1, 2)
        adopted(told, 0, 2)
        ran(told, 2, 3)
        told.tell(told_of.WorkerEnded(1, SUB, 1))

    assert_right(story)


def test_state_that_its_worker_has_taken_with_it_begins_anew() -> None:
    def story(told: Told) -> None:
        once_run(told)
        lost(told, 0)
        ran(told, 1, 1)
        lost(told, 0, for_good=True)
        ran(told, 2, 1, worker=1)

    assert_right(story)


@pytest.mark.parametrize("saved", [True, False])
def test_state_on_its_way_to_a_worker_that_is_lost_may_be_lost_or_saved(saved: bool) -> None:
    def story(told: Told) -> None:
        once_run(told)
        released(told, 0)
        told.tell(told_of.StateSent(1, SUB, 1, [SLOT]))
        lost(told, 1, for_good=True)
        ran(told, 1, 2 if saved else 1)

    assert_right(story)


def test_state_on_its_way_to_a_worker_that_has_died_may_be_given_up_before_that_is_told() -> None:
    def story(told: Told) -> None:
        once_run(told)
        lost(told, 1)
        released(told, 0)
        told.tell(told_of.StateSent(1, SUB, 1, [SLOT]))
        ran(told, 1, 1)

    assert_right(story)


def test_a_process_that_comes_anew_remembers_nothing() -> None:
    def story(told: Told) -> None:
        once_run(told)
        told.commit(1, 1)
        told.kill(1)
        told.assign(2, position=1)
        told.deliver(2, 1)
        told.run(2, 1)
        told.tell(told_of.Remembered(2, SUB, 0, A, 1))

    assert_right(story)


# --- as it should not be ---


def test_a_record_that_runs_before_the_state_of_its_key_has_come_is_found() -> None:
    def story(told: Told) -> None:
        once_run(told)
        released(told, 0)
        told.tell(told_of.StateSent(1, SUB, 1, [SLOT]))
        told.run(1, 1, worker=1)

    words = (
        f"began at worker 1; the state of its slot {SLOT} is on its way from worker 0 to worker 1"
    )
    assert_found("KeyedState", words, story)


def test_a_record_that_runs_where_the_state_is_not_is_found() -> None:
    def story(told: Told) -> None:
        once_run(told)
        told.run(1, 1, worker=1)

    assert_found("KeyedState", f"began at worker 1; the state of its slot {SLOT} is at", story)


def test_where_all_is_one_lane_state_in_two_places_is_found_by_what_is_remembered() -> None:
    def story(told: Told) -> None:
        once_run(told)
        ran(told, 1, 1, worker=1)

    exclusive = settings(routing=RoutingSettings("exclusive"))
    words = f"worker 1 remembers b'a'; the state of its slot {SLOT} is at worker 0"
    assert_found("KeyedState", words, story, exclusive)


def test_state_that_is_lost_on_its_way_is_found() -> None:
    def story(told: Told) -> None:
        once_run(told)
        released(told, 0)
        adopted(told, 1, runs=None)
        ran(told, 1, 1, worker=1)

    assert_found("KeyedState", "has counted 1 of b'a', and 2 have run since", story)


def test_state_that_is_older_than_what_has_run_is_found() -> None:
    def story(told: Told) -> None:
        once_run(told)
        ran(told, 1, 2)
        released(told, 0, 1)
        adopted(told, 1, 1)
        ran(told, 2, 2, worker=1)

    assert_found("KeyedState", "has counted 2 of b'a', and 3 have run since", story)


def test_state_that_is_given_up_by_one_who_has_it_not_is_found() -> None:
    def story(told: Told) -> None:
        once_run(told)
        released(told, 1, None)

    words = f"worker 1 gives up the state of slot {SLOT}, which is at worker 0"
    assert_found("KeyedState", words, story)


def test_state_that_is_given_up_twice_is_found() -> None:
    def story(told: Told) -> None:
        once_run(told)
        released(told, 0)
        released(told, 0, None)

    words = f"worker 0 gives up the state of slot {SLOT}, which is on its way from worker 0"
    assert_found("KeyedState", words, story)


def test_state_that_is_sent_to_two_workers_is_found() -> None:
    def story(told: Told) -> None:
        once_run(told)
        released(told, 0)
        told.tell(told_of.StateSent(1, SUB, 1, [SLOT]))
        told.tell(told_of.StateSent(1, SUB, 2, [SLOT]))

    words = f"worker 2 is to adopt the state of slot {SLOT}, which is on its way from worker 0 to"
    assert_found("KeyedState", words, story)


def test_state_that_is_adopted_and_was_never_given_up_is_found() -> None:
    def story(told: Told) -> None:
        once_run(told)
        told.tell(told_of.StateAdopted(1, SUB, 1, [SLOT], ((A, 1),)))

    words = f"worker 1 has adopted the state of slot {SLOT}, which is at worker 0"
    assert_found("KeyedState", words, story)


def test_what_a_worker_still_runs_that_was_given_up_is_remembered_nowhere() -> None:
    """A record beside which it had gone on ends long after the worker."""
    told = Told()
    remembered: list[object] = []
    told.history.listen(told_of.Remembered, remembered.append)
    site = Site(1, SimulatedProcess(told.timeline), told.history)
    states = States(site, [settings(hands_over=True)])
    states.ran(SUB, 0, A)
    states.lost(SUB, 1, for_good=True)
    states.ran(SUB, 1, A)
    states.lost(SUB, 0, for_good=False)
    states.ran(SUB, 0, A)
    assert remembered == [told_of.Remembered(1, SUB, 0, A, 1)] * 2


def test_a_worker_that_ends_with_the_state_of_a_slot_is_found() -> None:
    def story(told: Told) -> None:
        once_run(told)
        told.tell(told_of.WorkerEnded(1, SUB, 0))

    words = rf"worker 0 has ended with the state of slot {SLOT}: \{{b'a': 1\}}"
    assert_found("KeyedState", words, story)

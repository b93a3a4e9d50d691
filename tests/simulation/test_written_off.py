"""Checkers where evicted workers take with them what they had in hand, and where letters stop."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.contract.dlq_limit import DlqLimit
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.member_events import LimitLifted
from tests.simulation.told import SUB, T0, Told
from tests.simulation.watched import assert_found, assert_right, begun, settings


def written_off(told: Told) -> None:
    """Worker 0 goes with the last two of three records of a lane, the first of which is done."""
    begun(told)
    told.deliver(1, 0, 1, 2)
    told.hand(1, 0, 1, 2)
    told.begin(1, 0)
    told.end(1, 0)
    those = [(T0, offset, told.assigned[1, T0]) for offset in (1, 2)]
    told.tell(happened.WorkerDied(1, SUB, 0), happened.TakenBack(1, SUB, 0, those, True))


def test_what_is_written_off_is_settled() -> None:
    def story(told: Told) -> None:
        written_off(told)
        told.commit(1, 3)
        told.stop(1)
        told.finish()

    assert_right(story)


def test_what_is_written_off_does_not_run_any_more() -> None:
    def story(told: Told) -> None:
        written_off(told)
        told.run(1, 1, worker=1)

    words = "t-0@1 .* began again at worker 1 .*: written off with its worker"
    assert_found("NoRepeats", words, story)


def test_what_comes_behind_it_in_its_lane_may_run() -> None:
    def story(told: Told) -> None:
        written_off(told)
        told.write("a", start=3)
        told.deliver(1, 3)
        told.run(1, 3, worker=1)

    assert_right(story)


# --- dead-letter limits ---

LIMITED = settings(
    retry=RetryPolicy(attempts=1),
    on_exhausted="dead_letter",
    dlq=True,
    dlq_limit=DlqLimit(0.5, 100, 2),
)


def lettered(told: Told, count: int) -> None:
    """So many records go to the dead-letter topic, and one waits."""
    told.write(*"abcdef")
    told.join(1)
    told.assign(1)
    told.deliver(1, *range(6))
    for offset in range(count):
        told.hand(1, offset)
        told.begin(1, offset)
        told.end(1, offset, "failed")
        told.letter(1, offset)


@pytest.mark.parametrize(("letters", "late"), [(1, True), (2, False)])
def test_at_its_dead_letter_limit_nothing_of_a_partition_has_to_start(
    letters: int, late: bool
) -> None:
    def story(told: Told) -> None:
        lettered(told, letters)
        told.later(10.0)
        told.write("g", start=6)

    if late:
        assert_found("Liveness", "could run since", story, LIMITED)
    else:
        assert_right(story, LIMITED)


def test_once_a_limit_is_lifted_a_partition_goes_on() -> None:
    def story(told: Told) -> None:
        lettered(told, 2)
        for offset in (6, 7, 8):
            told.later(1.5)
            told.write("g", start=offset)
            if offset == 6:
                told.tell(LimitLifted(1, [T0]))

    assert_found("Liveness", "could run since", story, LIMITED)

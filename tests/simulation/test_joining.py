"""Where new workers wait, who joins gets nothing new before all that came before is settled."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.routing.modes import RoutingSettings
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.member_events import (
    FiltersDeclared,
    WorkerJoined,
    WorkerLeft,
    WorkersResized,
)
from tests.simulation.told import SUB, T0, Told
from tests.simulation.watched import assert_found, assert_right, begun, settings

WAITS = settings(new_workers_wait=True)


def joined(told: Told) -> None:
    """A worker joins while record 0 is at worker 0; then record 1 comes, of another key."""
    begun(told, 2)
    told.deliver(1, 0)
    told.hand(1, 0)
    told.begin(1, 0)
    told.later(0.1)
    told.tell(WorkerJoined(1, SUB, 2, "worker-2"))
    told.write("b", start=2)
    told.later(0.1)
    told.deliver(1, 1, 2)


def test_who_joins_gets_nothing_new_while_something_older_is_unsettled() -> None:
    def early(told: Told) -> None:
        joined(told)
        told.hand(1, 2, worker=2)

    assert_found("Joining", r"t-0@2 .* was given to worker 2, which joined .* t-0@0", early, WAITS)
    assert_right(early, settings())


def test_who_joins_gets_all_once_what_came_before_is_settled() -> None:
    def in_time(told: Told) -> None:
        joined(told)
        told.end(1, 0)
        told.hand(1, 2, worker=2)

    assert_right(in_time, WAITS)


def test_what_follows_in_a_lane_goes_on_with_it() -> None:
    def granted(told: Told) -> None:
        joined(told)
        told.hand(1, 2, worker=2)

    assert_right(granted, settings(new_workers_wait=True, one_in_flight_per_key=True))


def test_what_only_those_who_join_take_for_filters_is_theirs_at_once() -> None:
    def keyless(told: Told) -> None:
        joined(told)
        told.write(None, start=3)
        told.deliver(1, 3)
        told.hand(1, 3, worker=2)

    declared = RoutingSettings(filters={"worker-0": ["*"]}, on_unmatched="skip")
    assert_right(keyless, settings(new_workers_wait=True, routing=declared))
    assert_found("Joining", "t-0@3 .* was given to worker 2", keyless, WAITS)

    def filtered_late(told: Told) -> None:
        told.tell(FiltersDeclared(1, SUB, "worker-0", ("*",)))
        keyless(told)

    assert_right(filtered_late, WAITS)


def test_who_joins_may_have_what_came_before() -> None:
    def older(told: Told) -> None:
        begun(told, 1)
        told.write("b", start=1)
        told.deliver(1, 0, 1)
        told.hand(1, 0)
        told.later(0.1)
        told.tell(WorkerJoined(1, SUB, 2, "worker-2"))
        told.hand(1, 1, worker=2)

    assert_right(older, WAITS)


@pytest.mark.parametrize("settled", ["before", "after", "never"])
def test_who_joined_earlier_is_somebody_else_once_it_waits_for_nothing(settled: str) -> None:
    """What worker 2 has waited for may settle before all others go, or after that."""

    def earlier(told: Told) -> None:
        joined(told)
        told.hand(1, 1)
        if settled == "before":
            told.end(1, 0)
        told.tell(WorkerJoined(1, SUB, 3, "worker-3"))
        told.write("c", start=3)
        told.later(0.1)
        told.deliver(1, 3)
        told.tell(WorkersResized(1, SUB, ["worker-2", "worker-3"]))
        if settled == "after":
            told.end(1, 0)
        told.hand(1, 2, worker=2)
        told.hand(1, 3, worker=3)

    if settled == "before":
        words = r"t-0@3 .* was given to worker 3, which joined .* t-0@1 "
        assert_found("Joining", words, earlier, WAITS)
    else:
        assert_right(earlier, WAITS)


@pytest.mark.parametrize("outcome", ["failed", "died", ""])
def test_what_has_run_and_runs_again_is_not_new(outcome: str) -> None:
    def again(told: Told) -> None:
        joined(told)
        if outcome:
            told.hand(1, 2, worker=1)
            told.begin(1, 2, worker=1)
            told.end(1, 2, outcome, worker=1)
        if outcome == "died":
            told.tell(happened.WorkerDied(1, SUB, 1))
        told.hand(1, 2, worker=2)

    waits = settings(new_workers_wait=True, retry=RetryPolicy(attempts=3, backoff=0.0))
    if outcome:
        assert_right(again, waits)
    else:
        assert_found("Joining", r"t-0@2 .* was given to worker 2, which joined", again, waits)


@pytest.mark.parametrize("offset", [1, 2])
def test_what_comes_again_with_its_partition_is_not_new(offset: int) -> None:
    """Offset 1 had come before the worker joined, and 2 had not, when the partition was lost."""
    other = T0._replace(partition=1)

    def again(told: Told) -> None:
        told.write("c", at=other)
        begun(told, 1)
        told.assign(1, other)
        told.deliver(1, 0, at=other)
        told.hand(1, 0, at=other)
        told.begin(1, 0, at=other)
        told.write("b", "d", start=1)
        told.deliver(1, 0, 1)
        told.later(0.1)
        told.tell(WorkerJoined(1, SUB, 2, "worker-2"))
        told.released(1, lost=True)
        told.later(0.1)
        told.assign(1)
        told.deliver(1, 0, 1, 2)
        told.hand(1, offset, worker=2)

    if offset == 1:
        assert_right(again, WAITS)
    else:
        assert_found("Joining", r"t-0@2 .* was given to worker 2, which joined", again, WAITS)


def test_what_went_with_its_partition_keeps_nobody_waiting() -> None:
    def gone(told: Told) -> None:
        joined(told)
        told.write("c", "d", at=T0._replace(partition=1))
        told.assign(1, T0._replace(partition=1))
        told.released(1, lost=True)
        told.deliver(1, 0, at=T0._replace(partition=1))
        told.hand(1, 0, worker=2, at=T0._replace(partition=1))

    assert_right(gone, WAITS)


@pytest.mark.parametrize(
    "others_go",
    [
        [WorkerLeft(1, SUB, 0), WorkerLeft(1, SUB, 1)],
        [happened.WorkerDied(1, SUB, 0), WorkerLeft(1, SUB, 1)],
        [WorkersResized(1, SUB, ["worker-2"])],
    ],
)
def test_where_everybody_else_has_gone_it_is_no_new_one(others_go: list[object]) -> None:
    def alone(told: Told) -> None:
        joined(told)
        told.tell(*others_go)
        told.hand(1, 2, worker=2)

    assert_right(alone, WAITS)


def test_who_is_new_too_is_nobody_else() -> None:
    def both(told: Told) -> None:
        joined(told)
        told.tell(WorkerJoined(1, SUB, 3, "worker-3"))
        told.tell(WorkersResized(1, SUB, ["worker-2", "worker-3"]))
        told.hand(1, 2, worker=2)

    assert_right(both, WAITS)


def test_what_waits_for_something_older_is_not_late() -> None:
    def waits(told: Told) -> None:
        joined(told)
        told.end(1, 0, "dead_letter")  # is blocked: there is no dead-letter topic
        told.later(5.0)
        told.write("c", start=3)

    assert_right(waits, settings(new_workers_wait=True))
    assert_found("Liveness", "t-0@2 .* could run since", waits, settings())

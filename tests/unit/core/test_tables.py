"""State tables as data: what they do not have is refused before anything has moved."""

from __future__ import annotations

import enum
from typing import Any

import pytest

from kafka_keyshared.core import events as ev
from kafka_keyshared.core.lanes import LANE_TABLE, LaneEvent, LaneState
from kafka_keyshared.core.partitions import PARTITION_TABLE, Ownership, PartitionEvent
from kafka_keyshared.core.tables import follow
from kafka_keyshared.core.workers import WORKER_TABLE, WorkerEvent, WorkerState
from kafka_keyshared.errors import InvariantError
from tests.support.harness import Harness
from tests.support.records import P0, P1, record

TABLES: list[tuple[Any, type[enum.Enum], type[enum.Enum]]] = [
    (LANE_TABLE, LaneState, LaneEvent),
    (WORKER_TABLE, WorkerState, WorkerEvent),
    (PARTITION_TABLE, Ownership, PartitionEvent),
]


class Door(enum.Enum):
    OPEN = "open"
    SHUT = "shut"


class Push(enum.Enum):
    HARD = "somebody leans on it"


DOORS = {Door.OPEN: {}, Door.SHUT: {Push.HARD: Door.OPEN}}


def test_what_a_table_has_follows() -> None:
    assert follow(DOORS, Door.SHUT, Push.HARD, "the door") is Door.OPEN


def test_a_refusal_says_what_is_in_which_state_and_what_cannot_be() -> None:
    with pytest.raises(InvariantError) as caught:
        follow(DOORS, Door.OPEN, Push.HARD, "the door")
    assert str(caught.value) == "the door is open; it cannot be that somebody leans on it"


@pytest.mark.parametrize(("table", "states", "events"), TABLES)
def test_a_table_has_a_row_for_each_state_and_a_way_in_for_each_event(
    table: Any, states: type[enum.Enum], events: type[enum.Enum]
) -> None:
    assert list(table) == list(states)
    assert {event for row in table.values() for event in row} == set(events)
    assert {state for row in table.values() for state in row.values()} <= set(states)


@pytest.mark.parametrize("state", Ownership)
@pytest.mark.parametrize("event", PartitionEvent)
def test_what_cannot_happen_to_a_partition_is_refused_by_name_and_changes_nothing(
    state: Ownership, event: PartitionEvent
) -> None:
    harness = Harness()
    harness.assign(P1)
    if state is not Ownership.ABSENT:
        harness.assign(P0)
        harness.fetch(record(0), record(1))
        harness.worker().start()
    if state is Ownership.CLOSING:
        harness.tell(ev.Revoking([P0]))
    before = seen_of(harness)
    told: dict[PartitionEvent, ev.Event] = {
        PartitionEvent.ASSIGNED: ev.Assigned({P0: ev.StartPoint(0)}),
        PartitionEvent.RECEIVED: ev.Fetched([], {P0: 2}),
        PartitionEvent.REVOKING: ev.Revoking([P0]),
        PartitionEvent.FORGOTTEN: ev.Forget([P0]),
    }
    if event in PARTITION_TABLE[state]:
        harness.tell(told[event])
        return
    with pytest.raises(InvariantError, match=f"^orders-0 {event.value}$"):
        harness.tell(told[event])
    assert seen_of(harness) == before
    harness.core.check()


def seen_of(harness: Harness) -> list[object]:
    sub = harness.sub()
    waits = [each.offset() for each in sub.waiting()]
    held = [len(leased) for leased in sub.leases()]
    return [sorted(harness.core.partitions), set(sub.closing), waits, held, sub.epochs.now]


@pytest.mark.parametrize("state", WorkerState)
def test_from_wherever_it_is_a_worker_can_be_got_rid_of(state: WorkerState) -> None:
    """Or its keys would stand still for ever."""
    reached = {state}
    while more := {each for one in reached for each in WORKER_TABLE[one].values()} - reached:
        reached |= more
    assert WorkerState.GONE in reached

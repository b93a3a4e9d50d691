"""State tables as data: what they do not have is refused before anything has moved."""

from __future__ import annotations

import enum
import importlib
import itertools
import pkgutil
from collections.abc import Callable
from typing import Any, Protocol

import pytest

import kafka_keyshared
from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.slices import SliceState
from kafka_keyshared.core.contract.transitions import follow
from kafka_keyshared.core.lanes.closed import LANE_TABLE, ClosedLane, LaneEvent, LaneState
from kafka_keyshared.core.partitions.assignment import (
    PARTITION_TABLE,
    PartitionEvent,
    PartitionOwnership,
)
from kafka_keyshared.core.records.lane_identity import lane_of
from kafka_keyshared.core.workers.worker import WORKER_TABLE, Worker, WorkerEvent, WorkerState
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.lab.simulator import transition_coverage
from tests.setup import states_page
from tests.support.core_harness import Harness
from tests.support.object_state import frozen
from tests.support.records import P0, P1, record
from tests.support.slices import slice_of

TABLES: dict[str, tuple[Any, type[enum.Enum], type[enum.Enum]]] = {
    "LANE_TABLE": (LANE_TABLE, LaneState, LaneEvent),
    "WORKER_TABLE": (WORKER_TABLE, WorkerState, WorkerEvent),
    "PARTITION_TABLE": (PARTITION_TABLE, PartitionOwnership, PartitionEvent),
}


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


@pytest.mark.parametrize(("table", "states", "events"), TABLES.values())
def test_a_table_has_a_row_for_each_state_and_a_way_in_for_each_event(
    table: Any, states: type[enum.Enum], events: type[enum.Enum]
) -> None:
    assert list(table) == list(states)
    assert {event for row in table.values() for event in row} == set(events)
    assert {state for row in table.values() for state in row.values()} <= set(states)


# --- each pair of each table, at what has the states ---


class Subject(Protocol):
    """Something that has the states of a table. ``held`` is all that an event could change."""

    @property
    def held(self) -> object:
        """Return that."""

    def state(self) -> enum.Enum:
        """Return the state that it is in."""

    def tell(self, event: Any, /) -> None:
        """Let that happen to it."""


class Lane:
    def __init__(self, state: LaneState) -> None:
        head = record(0, "k")
        self.held = ClosedLane(lane_of(head), b"k", state, head, P0, aside=[record(1, "k")])

    def state(self) -> LaneState:
        return self.held.state

    def tell(self, event: LaneEvent) -> None:
        self.held.on(event)


class AWorker:
    """A worker of which everything is in use that an event could spoil."""

    def __init__(self, state: WorkerState) -> None:
        self.held = worker = Worker("worker-7", 7, 100, state=state)
        worker.row.backlog.extend([record(3)])
        worker.row.front.append(record(2))
        worker.row.granted.append((lane_of(record(1)), record(1)))
        worker.lease(SliceState(slice_of(record(0), worker=7)))
        worker.recalls = 1

    def state(self) -> WorkerState:
        return self.held.state

    def tell(self, event: WorkerEvent) -> None:
        self.held.on(event)


class Partition:
    """A partition of a member that has another one, too, and runs something of both."""

    def __init__(self, state: PartitionOwnership) -> None:
        self._harness = harness = Harness()
        harness.assign(P1)
        harness.fetch(record(7, "other", P1))
        if state is not PartitionOwnership.ABSENT:
            harness.assign(P0)
            harness.fetch(record(0), record(1))
            harness.worker().start()
        if state is PartitionOwnership.CLOSING:
            harness.tell(ev.Revoking([P0]))
        self.held = harness.core

    def state(self) -> PartitionOwnership:
        closing = P0 in self.held.holds.held_back(Reason.CLOSING)
        here = PartitionOwnership.CLOSING if closing else PartitionOwnership.OWNED
        return here if P0 in self.held.partitions else PartitionOwnership.ABSENT

    def tell(self, event: PartitionEvent) -> None:
        events: dict[PartitionEvent, ev.Event] = {
            PartitionEvent.ASSIGNED: ev.Assigned({P0: ev.StartPoint(0)}),
            PartitionEvent.RECEIVED: ev.Fetched([], {P0: 2}),
            PartitionEvent.REVOKING: ev.Revoking([P0]),
            PartitionEvent.FORGOTTEN: ev.Forget([P0]),
        }
        self._harness.tell(events[event])


SUBJECTS: dict[str, Callable[[Any], Subject]] = {
    "LANE_TABLE": Lane,
    "WORKER_TABLE": AWorker,
    "PARTITION_TABLE": Partition,
}


@pytest.mark.parametrize("name", SUBJECTS)
def test_each_pair_leads_on_or_is_refused_by_name_and_then_nothing_has_changed(name: str) -> None:
    table, states, events = TABLES[name]
    tried = set()
    for state, event in itertools.product(states, events):
        subject = SUBJECTS[name](state)
        assert subject.state() is state
        before = frozen(subject.held)
        if (following := table[state].get(event)) is not None:
            subject.tell(event)
            assert subject.state() is following, f"{state} {event}"
        else:
            with pytest.raises(InvariantError) as refused:
                subject.tell(event)
            assert event.value in str(refused.value), f"{state} {event}"
            assert frozen(subject.held) == before, f"{state} {event}"
        tried.add((state, event))
    assert len(tried) == len(states) * len(events)


@pytest.mark.parametrize(
    ("state", "event"), [(state, event) for state, row in WORKER_TABLE.items() for event in row]
)
def test_what_happens_to_a_worker_leaves_what_it_holds_to_whoever_says_so(
    state: WorkerState, event: WorkerEvent
) -> None:
    subject = AWorker(state)
    worker = subject.held
    before = [worker.leased, [*worker.slices], worker.recalls, frozen([*worker.row.waiting()])]
    subject.tell(event)
    assert (worker.row.holder == 7) is (worker.state is WorkerState.ACTIVE)
    after = [worker.leased, [*worker.slices], worker.recalls, frozen([*worker.row.waiting()])]
    assert after == before


def test_no_table_of_the_package_is_left_out_here_on_the_page_or_by_the_simulation() -> None:
    found: dict[str, object] = {}
    for module in pkgutil.walk_packages(kafka_keyshared.__path__, "kafka_keyshared."):
        if module.name.startswith("kafka_keyshared.core."):
            names = vars(importlib.import_module(module.name))
            found |= {name: of for name, of in names.items() if name.endswith("_TABLE")}
    assert found == {name: table for name, (table, _, _) in TABLES.items()}
    assert found.keys() == SUBJECTS.keys()
    assert found.keys() == {name for _, name in transition_coverage.TABLES.values()}
    assert {f"{name.lower()}s" for name in transition_coverage.TABLES} == states_page.TABLES.keys()


@pytest.mark.parametrize("state", WorkerState)
def test_from_wherever_it_is_a_worker_can_be_got_rid_of(state: WorkerState) -> None:
    """Or its keys would stand still for ever."""
    reached = {state}
    while more := {each for one in reached for each in WORKER_TABLE[one].values()} - reached:
        reached |= more
    assert WorkerState.GONE in reached

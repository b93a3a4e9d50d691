"""What every routing owes the slot table: arcs over all slots, changes that are new values."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise

import pytest

from kafka_keyshared.core.routing import (
    AutoSplit,
    Exclusive,
    Move,
    Routing,
    SlotSpan,
    StickyRanges,
    Unordered,
    Unowned,
    VnodeRing,
    moved,
    moves,
)
from kafka_keyshared.core.routing.port import Owner
from kafka_keyshared.core.routing.slots import Slots
from kafka_keyshared.core.routing.table import SlotTable
from kafka_keyshared.core.workers.worker import Worker
from kafka_keyshared.errors import ConfigError, InvariantError
from kafka_keyshared.hashing import SLOTS
from kafka_keyshared.model import Record

ROUTINGS: list[Routing] = [
    VnodeRing(["a", "b", "c"], 7),
    StickyRanges({"a": [(0, 99), (200, 299)], "b": [(100, 150)]}, workers=["b", "c", "a"]),
    AutoSplit(["a", "b", "c"]),
    Exclusive(["a", "b", "c"]),
    Unordered(["a", "b", "c"]),
]


class Halves(Routing):
    """The first worker has the lower half; the upper one is as it is told."""

    def __init__(self, upper: int | Unowned, workers: Sequence[str] = ("a", "b")) -> None:
        self.workers = tuple(workers)
        self.upper = upper

    def arcs(self) -> Iterator[tuple[int, int]]:
        yield 0, SLOTS // 2
        yield self.upper, 0
        yield self.upper, SLOTS // 2

    def owner_among(self, slot: int, names: AbstractSet[str]) -> Owner:
        raise NotImplementedError

    def with_worker(self, name: str) -> Halves:
        return Halves(self.upper, (*self.workers, name))

    def without_worker(self, name: str) -> Halves:
        return Halves(self.upper, [other for other in self.workers if other != name])


def workers(*names: str) -> list[Worker]:
    return [Worker(name, 10 + at, 1000) for at, name in enumerate(names)]


# --- every routing ---


def by_partition(routing: Routing) -> list[Owner]:
    """Say by the table whose each slot is."""
    return [routing.workers[owner] if owner >= 0 else Unowned(owner) for owner in routing.table()]


@pytest.mark.parametrize("routing", ROUTINGS, ids=lambda each: type(each).__name__)
def test_arcs_table_spans_and_owner_say_the_same(routing: Routing) -> None:
    owners = by_partition(routing)
    assert len(owners) == sum(slots for _, slots in routing.arcs()) == SLOTS
    spans = list(routing.spans())
    assert [owner for first, last, owner in spans for _ in range(first, last + 1)] == owners
    assert all(one.owner != other.owner for one, other in pairwise(spans))
    for slot in [0, 1, SLOTS - 1, *range(5, SLOTS, 997)]:
        assert routing.owner(slot) == owners[slot]
    assert routing.share() == {name: owners.count(name) / SLOTS for name in routing.workers}


@pytest.mark.parametrize("routing", ROUTINGS, ids=lambda each: type(each).__name__)
def test_among_all_its_workers_a_slot_has_its_owner(routing: Routing) -> None:
    everybody = frozenset(routing.workers)
    for slot in range(0, SLOTS, 499):
        assert routing.owner_among(slot, everybody) == routing.owner(slot)
    for slot in (-1, SLOTS):
        with pytest.raises(IndexError, match=f"slot {slot} is not in 0..65535"):
            routing.owner(slot)
        with pytest.raises(IndexError, match=f"slot {slot} is not in 0..65535"):
            routing.owner_among(slot, everybody)


@pytest.mark.parametrize("routing", ROUTINGS, ids=lambda each: type(each).__name__)
def test_a_change_is_a_new_value_and_the_old_one_stays(routing: Routing) -> None:
    before, names = routing.table(), routing.workers
    joined = routing.with_worker("the new one")
    assert joined.workers == (*names, "the new one")
    assert joined.without_worker(names[0]).workers == (*names[1:], "the new one")
    assert (routing.table(), routing.workers) == (before, names)
    with pytest.raises(AttributeError):
        routing.workers = ()  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(joined)) == joined
    assert hash(pickle.loads(pickle.dumps(joined))) == hash(joined)
    assert joined != routing


@pytest.mark.parametrize("routing", ROUTINGS, ids=lambda each: type(each).__name__)
def test_workers_that_cannot_come_or_go_are_refused_by_name(routing: Routing) -> None:
    first = routing.workers[0]
    with pytest.raises(ConfigError, match=f"two workers named '{first}'"):
        routing.with_worker(first)
    with pytest.raises(ConfigError, match="empty name"):
        routing.with_worker("")
    with pytest.raises(ConfigError, match="worker 'nobody' is not in the"):
        routing.without_worker("nobody")
    for name in routing.workers[1:]:
        routing = routing.without_worker(name)
    with pytest.raises(ConfigError, match="no workers"):
        routing.without_worker(first)


# --- what has moved ---


def test_moves_name_both_parties_and_both_bounds() -> None:
    before, after = Halves(1, ("a", "b")), Halves(1, ("b", "c"))
    assert list(moves(before, after)) == [
        Move(0, SLOTS // 2 - 1, "a", "b"),
        Move(SLOTS // 2, SLOTS - 1, "b", "c"),
    ]


def test_owners_are_compared_by_name_and_not_by_place() -> None:
    assert moved(Halves(1, ("a", "b")), Halves(1, ("a", "b", "c"))) == []
    assert moved(Halves(1, ("a", "b")), Halves(2, ("a", "c", "b"))) == []


def test_slots_that_become_somebodys_or_nobodys_have_moved() -> None:
    there, away = Halves(1), Halves(Unowned.AWAY)
    half = list(range(SLOTS // 2, SLOTS))
    assert moved(there, away) == moved(away, there) == half
    assert moved(away, Halves(Unowned.UNASSIGNED)) == half
    assert next(moves(there, away)) == Move(SLOTS // 2, SLOTS - 1, "b", Unowned.AWAY)
    assert moved(away, away) == []
    assert moved(Halves(0), Halves(1)) == moved(Halves(1), Halves(0)) == half


def test_neighbours_with_one_owner_are_one_span() -> None:
    assert list(Halves(0).spans()) == [SlotSpan(0, SLOTS - 1, "a")]
    assert Halves(Unowned.ANYBODY).owner(SLOTS - 1) is Unowned.ANYBODY
    assert Halves(Unowned.UNASSIGNED).share() == {"a": 0.5, "b": 0}


# --- the table ---


def test_the_table_has_the_row_of_each_slots_worker() -> None:
    a, b = workers("a", "b")
    table = SlotTable([a, b], Halves(1))
    half = SLOTS // 2
    assert table.owners == [a.id] * half + [b.id] * half
    assert all(row is a.row.routed for row in [table.rows[slot] for slot in range(half)])
    assert all(row is b.row.routed for row in [table.rows[slot] for slot in range(half, SLOTS)])
    assert table.shares == {a.id: 0.5, b.id: 0.5}


def test_a_routing_keeps_what_it_knows_while_workers_come_and_go() -> None:
    a, b, c = workers("a", "b", "c")
    table = SlotTable([a, b], Halves(1))
    table.project([a, b, c])
    seen = [table.routing.workers]
    table.project([c, b])
    seen.append(table.routing.workers)
    assert seen == [("a", "b", "c"), ("b", "c")], "in the order in which they came"
    assert set(table.owners) == {b.id, c.id}
    assert table.version == 3


def test_another_routing_is_brought_to_the_workers_that_are_there() -> None:
    a, b = workers("a", "b")
    table = SlotTable([a, b], StickyRanges({"a": [(0, SLOTS - 1)]}, ["a", "b"]))
    old = table.routing
    assert isinstance(old, StickyRanges)
    table.project([a, b], old.taken_over(10, 19, "b"))
    assert [slot for slot, owner in enumerate(table.owners) if owner == b.id] == [*range(10, 20)]
    assert list(moves(old, table.routing)) == [Move(10, 19, "a", "b")]
    table.project([a, b], VnodeRing(["a", "b", "gone"]))
    assert table.routing == VnodeRing(["a", "b"])


def test_the_place_of_the_last_worker_can_be_taken() -> None:
    a, b = workers("a", "b")
    table = SlotTable([a])
    table.project([b])
    assert set(table.owners) == {b.id}
    assert VnodeRing(["a"]).brought_to(["b"]) == VnodeRing(["b"])


def test_only_what_changes_hands_is_written_and_what_was_closed() -> None:
    a, b = workers("a", "b")
    table = SlotTable([a, b], Halves(1))
    drains: list[Record] = []
    table.close({7}, drains)
    closed = Slots([(SLOTS - 3, SLOTS)])
    table.close(closed, drains)
    moves = table.project([a, b], Halves(0), closed=Slots([*closed.runs, (7, 8)]))
    assert {(was, now) for _, was, now in moves} == {(b.id, a.id)}
    assert Slots(run for run, _, _ in moves) == Slots([(SLOTS // 2, SLOTS)])
    assert table.slots_to(b.row.routed) == table.slots_to(drains) == set()


def test_what_is_no_workers_goes_where_it_is_told() -> None:
    a, b = workers("a", "b")
    held: list[Record] = []
    table = SlotTable([a, b], Halves(Unowned.AWAY), {Unowned.AWAY: held})
    assert table.rows[SLOTS - 1] is held
    assert table.owners[SLOTS - 1] == Unowned.AWAY
    assert table.shares == {a.id: 0.5, b.id: 0}


def test_a_table_with_a_slot_whose_records_would_be_lost_is_refused() -> None:
    a, b, c = workers("a", "b", "c")
    with pytest.raises(
        InvariantError, match=r"slot 32768 is no worker's .UNASSIGNED., and nothing"
    ):
        SlotTable([a, b], Halves(Unowned.UNASSIGNED), {Unowned.AWAY: []})
    table = SlotTable([a, b], Shrinking(1))
    owners, rows = table.owners, table.rows
    with pytest.raises(InvariantError, match=r"slot 32768 is no worker's .AWAY."):
        table.project([a, b, c])
    assert table.owners is owners
    assert table.rows is rows
    assert (table.version, table.routing.workers) == (1, ("a", "b")), "nothing has changed"


class Shrinking(Halves):
    """The upper half's worker is away as soon as another one comes."""

    def with_worker(self, name: str) -> Halves:
        return Halves(Unowned.AWAY, (*self.workers, name))

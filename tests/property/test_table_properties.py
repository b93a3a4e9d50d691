"""A slot table of which only what changes is written, beside one that is made anew each time."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_keyshared.core.routing import AutoSplit, Routing, VnodeRing
from kafka_keyshared.core.routing.slots import Slots
from kafka_keyshared.core.routing.table import SlotTable
from kafka_keyshared.core.workers.worker import Worker
from kafka_keyshared.hashing import SLOTS
from kafka_keyshared.model import Record
from tests.support.seeds import examples

NAMES = ("a", "b", "c", "d")

some_slots = st.frozensets(st.integers(0, SLOTS - 1), max_size=4)
runs = st.lists(st.tuples(st.integers(0, SLOTS), st.integers(0, SLOTS)), max_size=3)


@given(st.booleans(), st.data())
@settings(max_examples=examples(20), deadline=None)
def test_what_is_written_is_what_the_whole_table_would_be(ring: bool, data: st.DataObject) -> None:
    drains: list[Record] = []
    workers = [Worker(name, at, 100) for at, name in enumerate(NAMES)]
    there = workers[:2]
    routing: Routing = VnodeRing(["a", "b"], 10) if ring else AutoSplit(["a", "b"])
    table = SlotTable(there, routing)
    for _ in range(4):
        closed = Slots(data.draw(runs))
        opened = Slots(data.draw(runs))
        one_by_one = data.draw(some_slots)
        table.close(closed, drains)
        table.close(one_by_one, drains)
        table.open(opened, {worker.id: worker for worker in there})
        there = data.draw(st.lists(st.sampled_from(workers), min_size=1, unique=True))
        arcs = table.arcs
        every = Slots((*closed.runs, *Slots.single(one_by_one).runs))
        moves = table.project(there, closed=every)
        whole = SlotTable(there, table.routing)
        assert table.owners == whole.owners
        assert all(map(lambda one, other: one is other, table.rows, whole.rows))
        assert (table.arcs, table.shares) == (whole.arcs, whole.shares)
        old, new = owners_by(arcs), owners_by(table.arcs)
        found = [(slot, was, now) for run, was, now in moves for slot in range(*run)]
        assert found == [
            (slot, *each)
            for slot, each in enumerate(zip(old, new, strict=True))
            if each[0] != each[1]
        ]


def owners_by(arcs: object) -> list[int]:
    """Return whose each slot is by these arcs."""
    assert isinstance(arcs, list)
    found: list[int] = []
    for end, owner in arcs:
        found += [owner] * (end - len(found))
    return found

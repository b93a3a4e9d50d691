"""Draining slots: their lease counts and the records that wait for them.

PIP-379 keeps an entry for each draining hash. Here there is one array of counts, made for the first
slot that drains and gone with the last. One row without a holder has all waiting records. The
slot-table entry of a draining slot *is* the list of that row.
:mod:`kafka_keyshared.core.worker_changes.slot_draining` decides when slots drain, and what follows.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import compress
from typing import TypeAlias

from kafka_keyshared.core.keys.extraction import OwnKeys
from kafka_keyshared.core.lanes.closed import ClosedLane
from kafka_keyshared.core.lanes.single_inflight import Grant
from kafka_keyshared.core.workers.run_queue import RunQueue
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.hashing import SLOTS
from kafka_keyshared.model import Record, TopicPartition

Counts: TypeAlias = "array[int] | Counter[int]"
"""How many leases each slot waits for."""

NOTHING: array[int] = array("I")
"""The counts while no slot drains."""


class DrainingSlots:
    """Counts the leases that slots wait for, and holds the records that wait for the slots.

    ``count`` slots drain now; ``cleared_total`` have drained so far. ``cleared`` has the drained
    slots that records still wait for, until they are opened. That is at ``due`` (monotonic
    seconds), if it is set.
    """

    def __init__(self, keys: OwnKeys, *, wide: bool = False) -> None:
        self.row = RunQueue(None)
        self.count = 0
        self.cleared_total = 0
        self.cleared: set[int] = set()
        self.due: float | None = None
        self._keys = keys
        self._pending: Counts = NOTHING
        # The number of wide slots is not known.
        self._wide = wide
        self._typecode = "Q" if wide else "H"
        # The slots of the records in the backlog, in order, as far as computed.
        self._slots: array[int] = array(self._typecode)

    def widen(self) -> None:
        """Count by wide slots from now on; draining slots must be counted anew before use."""
        self._wide = True
        self._typecode = "Q"
        self._slots = array(self._typecode)
        self._pending, self.count = NOTHING, 0

    # --- counts ---

    def count_anew(self, slots: Iterable[int]) -> set[int]:
        """Count one lease for each of these; return the slots that have any, and so drain."""
        pending: Counts = NOTHING
        draining: set[int] = set()
        for slot in slots:
            if not pending:
                empty = bytes(NOTHING.itemsize * SLOTS)
                pending = Counter() if self._wide else array("I", empty)
            pending[slot] += 1
            draining.add(slot)
        before, self._pending = self._pending, pending
        if before:
            stay = sum(1 for slot in draining if before[slot])
            self.cleared_total += self.count - stay
        self.count = len(draining)
        self.cleared.clear()
        self.due = None
        return draining

    @property
    def counting(self) -> bool:
        """Whether there are counts: they are made for the first slot, and go with the last."""
        return bool(self._pending)

    def pending(self, slot: int) -> int:
        """Return how many leases the slot waits for."""
        return self._pending[slot] if self._pending else 0

    def draining(self) -> Iterator[int]:
        """Yield the draining slots, ascending."""
        if isinstance(self._pending, Counter):
            return iter(sorted(slot for slot, count in self._pending.items() if count))
        return compress(range(len(self._pending)), self._pending)

    def one_less(self, slot: int) -> bool:
        """Note the end of a lease that the slot waited for; return whether it was the last one.

        Raises :class:`InvariantError` for a lease that the slot does not wait for.
        """
        if not self.pending(slot):
            raise InvariantError(f"slot {slot} has drained, and one more of its leases has ended")
        self._pending[slot] -= 1
        if self._pending[slot]:
            return False
        self.count -= 1
        self.cleared_total += 1
        if not self.count:
            self._pending = NOTHING
        return True

    # --- waiting records ---

    def waiting(self) -> Iterator[Record]:
        """Yield every record that waits for a slot to drain."""
        return self.row.waiting()

    def empty(self) -> bool:
        """Return whether no record waits here."""
        return self.row.empty()

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the records of these partitions."""
        self.row.forget(partitions)
        del self._slots[:]

    def ask_slots_again(self) -> None:
        """Forget the slots of waiting records, because the slots of keys have changed."""
        del self._slots[:]

    def merge(self) -> None:
        """Put returned records before the others, as in every row before a record is leased."""
        known = self._slots_of_backlog()
        self._slots = array(self._typecode, map(self._slot_of, self.row.front))
        self._slots += known
        self.row.merge()

    def blocks(self, slot: int) -> bool:
        """Return whether any record waits for the slot."""
        row = self.row
        if slot in self._slots_of_backlog():
            return True
        first = (*row.front, *(record for _, record in row.granted), *_heads(row.retries))
        return any(self._slot_of(record) == slot for record in first)

    def blocked(self) -> Counter[int]:
        """Return how many records wait for each slot; those of closed lanes are not counted."""
        row = self.row
        found = Counter(self._slots_of_backlog())
        found.update(map(self._slot_of, row.front))
        found.update(self._slot_of(record) for _, record in row.granted)
        return found

    def take(
        self, wanted: Callable[[int], bool]
    ) -> tuple[list[Record], list[Grant], list[ClosedLane]]:
        """Take all that wait for these slots: records, oldest first, grants, lanes to run again."""
        row, slot_of = self.row, self._slot_of
        picked = [wanted(slot) for slot in self._slots_of_backlog()]
        taken = [record for record in row.front if wanted(slot_of(record))]
        if taken:
            row.front[:] = [record for record in row.front if not wanted(slot_of(record))]
        if any(picked):
            taken += row.backlog.pick(picked)
            kept = (slot for slot, out in zip(self._slots, picked, strict=True) if not out)
            self._slots = array(self._typecode, kept)
        granted = [each for each in row.granted if wanted(slot_of(each[1]))]
        if granted:
            row.granted = [each for each in row.granted if not wanted(slot_of(each[1]))]
        retries = [each for each in row.retries if each.head is None or wanted(slot_of(each.head))]
        for closed in retries:
            row.withdraw(closed)
        return taken, granted, retries

    def take_last(self, count: int) -> list[Record]:
        """Take ``count`` of the records that came last, or all."""
        taken = self.row.backlog.take_last(min(count, len(self.row.routed)))
        del self._slots[len(self.row.routed) :]
        return taken

    def _slots_of_backlog(self) -> array[int]:
        known, records = self._slots, self.row.routed
        if len(known) < len(records):
            known.extend(map(self._slot_of, records[len(known) :]))
        return known

    def _slot_of(self, record: Record) -> int:
        key = self._keys.key(record)
        if key is None:
            raise InvariantError(f"{record} has no key, and waits for a slot")
        return self._keys.slot(key)


def _heads(retries: Iterable[ClosedLane]) -> Iterator[Record]:
    return (closed.head for closed in retries if closed.head is not None)

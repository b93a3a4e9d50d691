"""The record queue of a worker that runs many batch calls.

A lane is in one call at a time. Later records of the lane wait *behind* that call, in order. They
are queued for another call when it has ended.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Container, Hashable, Iterable

from kafka_keyshared.core.records.lane_identity import Lane
from kafka_keyshared.executors.handling.batching import BatchRule
from kafka_keyshared.executors.key_chains import Given


class Gathering:
    """Queues records by lane, oldest lane first; a call takes whole lanes.

    A lane that is in no call has all its records in one row. All of them may start.
    """

    def __init__(self, rule: BatchRule) -> None:
        self._rule = rule
        self._lanes: OrderedDict[Hashable, deque[Given]] = OrderedDict()
        self._count = 0
        # The records behind the lanes that are in calls.
        self._behind: dict[Lane, deque[Given]] = {}
        # With one key per call: the lanes that have enough records for a call.
        self._full: dict[Hashable, None] = {}

    def add(self, given: Given) -> None:
        """Queue a record for a call."""
        behind = None if given.lane is None else self._behind.get(given.lane)
        if behind is None:
            self._gather(self._place(given), [given])
        else:
            behind.append(given)

    def due(self, now: float, *, at_once: bool = False) -> tuple[list[Given], float | None]:
        """Return the records of the next call, in lease order, and mark their lanes as in a call.

        A call is due when enough records wait, when the first record has waited long enough, or
        with ``at_once``. If none is due, return no records, and the seconds until one may be due.
        """
        if not self._lanes:
            return [], None
        rule = self._rule
        first = next(iter(self._lanes))
        if rule.same_key and self._full:
            first = next(iter(self._full))
        elif rule.same_key or self._count < rule.size:
            left = self._lanes[first][0].since + rule.wait - now
            if left > 0 and not at_once:
                return [], left
        batch: list[Given] = []
        while first is not None and len(batch) < rule.size:
            self._take(first, batch)
            first = None if rule.same_key else next(iter(self._lanes), None)
        batch.sort(key=_lease)
        return batch, None

    def _place(self, given: Given) -> Hashable:
        """Return the row of a record: its lane, or its own row if it has no key.

        With one key per call, all records without a key share a row.
        """
        if given.lane is not None:
            return given.lane
        return "" if self._rule.same_key else given.slice.id

    def _gather(self, place: Hashable, those: Collection[Given]) -> None:
        row = self._lanes.setdefault(place, deque())
        row.extend(those)
        self._count += len(those)
        if self._rule.same_key and len(row) >= self._rule.size:
            self._full[place] = None

    def _take(self, place: Hashable, batch: list[Given]) -> None:
        """Take as many records of a lane as fit in a call; the rest waits behind it."""
        row = self._lanes.pop(place)
        self._full.pop(place, None)
        self._count -= len(row)
        taken = [row.popleft() for _ in range(min(len(row), self._rule.size - len(batch)))]
        batch += taken
        if taken[0].lane is not None:
            self._behind[taken[0].lane] = row
        elif row:
            self._gather(place, row)

    def put_back(self, those: Iterable[Given]) -> None:
        """Put records that were in a call before all later records of their lanes."""
        for each in reversed(list(those)):
            if each.lane is None:
                self._gather(self._place(each), [each])
            else:
                self._behind[each.lane].appendleft(each)

    def free(self, lanes: Iterable[Lane], now: float) -> None:
        """Queue the records that arrived while these lanes were in a call that has ended."""
        for lane in lanes:
            if row := self._behind.pop(lane, None):
                self._gather(lane, row)
                if row[0].since + self._rule.wait <= now:  # its wait is already over
                    self._lanes.move_to_end(lane, last=False)

    def cut(self, lanes: Collection[Lane]) -> list[Given]:
        """Remove the records behind these lanes, whose calls no longer keep them."""
        rows = [self._behind.pop(lane, ()) for lane in lanes]
        return sorted((each for row in rows for each in row), key=_lease)

    def take_back(self, only: Container[int] | None = None) -> list[Given]:
        """Remove the waiting records of these slices, or all; return them in lease order."""
        back: list[Given] = []
        for row in self._behind.values():
            _part(row, only, back)
        for place in list(self._lanes):
            row = self._lanes[place]
            self._count -= len(row)
            _part(row, only, back)
            self._count += len(row)
            if len(row) < self._rule.size:
                self._full.pop(place, None)
            if not row:
                del self._lanes[place]
        back.sort(key=_lease)
        return back

    def clear(self) -> None:
        """Forget all waiting records."""
        self._lanes.clear()
        self._behind.clear()
        self._full.clear()
        self._count = 0


def _part(row: deque[Given], only: Container[int] | None, back: list[Given]) -> None:
    """Move the requested records from a row to ``back``."""
    kept = [each for each in row if only is not None and each.slice.id not in only]
    if len(kept) < len(row):
        back += (each for each in row if only is None or each.slice.id in only)
        row.clear()
        row.extend(kept)


def _lease(given: Given) -> int:
    return given.slice.id

"""What waits for a call with several records, where many calls run at once.

A lane is in one call at a time. What comes of it meanwhile waits *behind* that call, in order, and
is gathered for another one when it has ended.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Container, Hashable, Iterable

from kafka_keyshared.core.lane_identity import Lane
from kafka_keyshared.handling.batching import BatchRule
from kafka_keyshared.pools.chains import Given


class Gathering:
    """Gathers records by lanes, those that came first in front; a call takes whole lanes.

    So whoever is in no call finds all that there is of its lane, and nothing in between that may
    not start.
    """

    def __init__(self, rule: BatchRule) -> None:
        self._rule = rule
        self._lanes: OrderedDict[Hashable, deque[Given]] = OrderedDict()
        self._count = 0
        # By lanes that are in calls.
        self._behind: dict[Lane, deque[Given]] = {}
        # With one key to a call: the lanes that have as many records as a call takes.
        self._full: dict[Hashable, None] = {}

    def add(self, given: Given) -> None:
        """Let a record wait for its call."""
        behind = None if given.lane is None else self._behind.get(given.lane)
        if behind is None:
            self._gather(self._place(given), [given])
        else:
            behind.append(given)

    def due(self, now: float, *, at_once: bool = False) -> tuple[list[Given], float | None]:
        """Return the records of the next call, in the order of their leases, and mark their lanes.

        None of them, and in how many seconds some may be due, unless there are as many as a call
        takes, or the first has waited for its time; or ``at_once``.
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
        """Return where a record is gathered: without a key it is a lane of its own.

        With one key to a call all of these are one.
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
        """Take what a call has room for of a lane; what is left waits behind it."""
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
        """Have these, which were in a call, wait before all of their lanes that came later."""
        for each in reversed(list(those)):
            if each.lane is None:
                self._gather(self._place(each), [each])
            else:
                self._behind[each.lane].appendleft(each)

    def free(self, lanes: Iterable[Lane], now: float) -> None:
        """Gather what has come of these lanes while they were in a call that has ended."""
        for lane in lanes:
            if row := self._behind.pop(lane, None):
                self._gather(lane, row)
                if row[0].since + self._rule.wait <= now:  # it has waited for its time already
                    self._lanes.move_to_end(lane, last=False)

    def cut(self, lanes: Collection[Lane]) -> list[Given]:
        """Take out what waits behind the calls of these lanes, which are in none any more."""
        rows = [self._behind.pop(lane, ()) for lane in lanes]
        return sorted((each for row in rows for each in row), key=_lease)

    def take_back(self, only: Container[int] | None = None) -> list[Given]:
        """Take out what waits, of these slices or of all; return it in the order of the leases."""
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
        """Forget everything that waits."""
        self._lanes.clear()
        self._behind.clear()
        self._full.clear()
        self._count = 0


def _part(row: deque[Given], only: Container[int] | None, back: list[Given]) -> None:
    """Move what is asked for from a row to what goes back."""
    kept = [each for each in row if only is not None and each.slice.id not in only]
    if len(kept) < len(row):
        back += (each for each in row if only is None or each.slice.id in only)
        row.clear()
        row.extend(kept)


def _lease(given: Given) -> int:
    return given.slice.id

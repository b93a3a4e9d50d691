"""A member's cell: what a member that asks for records has, and says of them.

Each record is a lease of its own here, so that a member may settle its records in any order. Cells
are locked: members call from any thread, the owner from its own.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.dispositions import Disposition, Failure
from kafka_keyshared.core.events import Ended, Failed, Report, SetAside
from kafka_keyshared.core.lane_identity import Lane
from kafka_keyshared.core.slices import Serial, Slice
from kafka_keyshared.handling.failure import describe
from kafka_keyshared.model import Record, TopicPartition
from kafka_keyshared.pools.failed_lanes import FailedLanes


class LeaseTimeoutError(Exception):
    """A member had a record for longer than the ack timeout."""


class MemberLeftError(Exception):
    """A member left without having settled its record."""


class Cell:
    """What one member has: records that wait for it, and those that it has received.

    With ``ascending`` it never gets a record while it holds a later one of the same partition: its
    member says what is done by an offset, which speaks for everything below.
    """

    def __init__(
        self,
        name: str,
        post: Callable[[Report], None],
        clock: Clock,
        *,
        ascending: bool = False,
    ) -> None:
        self.name = name
        self.clock = clock
        self.left = False
        self.over = False
        self.dismissed = False
        # Whether it is in a loop that sees to its leaving, and whether it leaves broken when that
        # loop has come out with its exception; None while no exception has closed it.
        self.in_loop = False
        self.leaving: bool | None = None
        self._taker: threading.Thread | None = None
        self._post = post
        self._changed = threading.Condition()
        self._waiting: deque[Slice] = deque()
        # In the order in which they were received, with the time of that.
        self._received: dict[Slice, float] = {}
        self._ends: deque[Record] = deque()
        self._ascending = ascending
        # Per partition the highest offset received; never too low, and exact where that matters.
        self._highest: dict[TopicPartition, int] = {}
        self.failed = FailedLanes()
        # Those of the received ones whose leases are over, by the ids of their slices.
        self._lapsed: set[int] = set()
        self._late: list[Record] = []
        self._refused = 0
        self._wakers: list[Callable[[], None]] = []

    # --- the member's side ---

    def take(self, count: int, timeout: float | None) -> list[Slice]:
        """Receive up to ``count`` records, waiting for the first at most ``timeout`` seconds.

        None waits for ever. Nothing comes any more once the member has left or was dismissed, or
        the instance is over, and nothing before :meth:`take_ends` has taken what there is.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.closed or self._ends or self._next(1), timeout)
            if self.closed or self._ends:
                return []
            taken = self._next(count)
            self._taker = threading.current_thread()
            self._received.update(dict.fromkeys(taken, self.clock()))
            for slice_ in taken:
                if self._waiting[0] is slice_:
                    self._waiting.popleft()
                else:
                    self._waiting.remove(slice_)
                if self._ascending:
                    partition, offset = _place(slice_)
                    self._highest[partition] = offset
            return taken

    def take_ends(self, count: int) -> list[Record]:
        """Receive up to ``count`` events of partitions whose end has been reached, at once."""
        with self._changed:
            if self.closed:
                return []
            return [self._ends.popleft() for _ in range(min(count, len(self._ends)))]

    def _next(self, count: int) -> list[Slice]:
        """Return the first records that the member may receive now, up to ``count``."""
        if not self._ascending or not self._waiting:
            return list(islice(self._waiting, count))
        found = self._first_ascending(count)
        if len(found) < min(count, len(self._waiting)):
            # Something is held back, perhaps by a record that has been settled since.
            self._highest.clear()
            for partition, offset in map(_place, self._received):
                self._highest[partition] = max(offset, self._highest.get(partition, -1))
            found = self._first_ascending(count)
        return found

    def _first_ascending(self, count: int) -> list[Slice]:
        """Return up to ``count`` of these whose offsets rise above the highest one received.

        Behind one that is left out everything of its lane is, too.
        """
        found: list[Slice] = []
        ends, lane_of = dict(self._highest), self.failed.lane_of
        behind: set[Lane] = set()
        for slice_ in self._waiting:
            if len(found) >= count:
                break
            partition, offset = _place(slice_)
            if offset <= ends.get(partition, -1):
                behind.add(lane_of(slice_.records[0]))
            elif not behind or lane_of(slice_.records[0]) not in behind:
                ends[partition] = offset
                found.append(slice_)
        return found

    def when_ready(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` once, from any thread, as soon as :meth:`take` need not wait."""
        with self._changed:
            if not (self._next(1) or self.closed):
                self._wakers.append(wake)
                return
        wake()

    def forget(self, wake: Callable[[], None]) -> None:
        """Call that no more: whoever waited has gone."""
        with self._changed, suppress(ValueError):
            self._wakers.remove(wake)

    def settle(self, shares: Iterable[Slice]) -> list[Slice]:
        """Settle received records; return those whose lease was over already."""
        now = self.clock()
        late: list[Slice] = []
        with self._changed:
            for slice_ in shares:
                received = self._received.get(slice_)
                if received is None:
                    late.append(slice_)
                    continue
                if self._is_late(slice_):
                    late.append(slice_)
                # In this order: a lease that is neither held nor reported would look unstarted.
                self._post(Ended(slice_.id, now - received))
                del self._received[slice_]
            if self._ascending and self._waiting:
                self._wake()
            self._refused += len(late)
        return late

    def note_late(self, late: Iterable[Slice]) -> None:
        """Keep what was settled too late until somebody tells of it, for all members at once."""
        with self._changed:
            self._late += [slice_.records[0] for slice_ in late]

    def take_late(self) -> list[Record]:
        """Return what was settled too late since this was last asked."""
        with self._changed:
            late, self._late = self._late, []
            return late

    def fail(self, slice_: Slice, failure: Failure) -> bool:
        """Report a received record as failed; False when its lease was over already."""
        with self._changed:
            late = slice_ not in self._received or self._is_late(slice_)
            self._refused += late
            if slice_ in self._received:
                self._fail(slice_, failure)
            return not late

    def _is_late(self, slice_: Slice) -> bool:
        late = slice_.id in self._lapsed
        self._lapsed.discard(slice_.id)
        return late or self.over

    def _fail(self, slice_: Slice, failure: Failure) -> None:
        """Fail it, and hand back unrun what this member has behind it in its lane."""
        behind = self.failed.fail(slice_, 0)
        self._post(Failed(slice_.id, 0, failure))
        self._post(Ended(slice_.id, self.clock() - self._received[slice_]))
        del self._received[slice_]
        self._lapsed.discard(slice_.id)
        if behind:
            for other in [*self._received, *self._waiting]:
                self._set_aside(other)

    def _set_aside(self, slice_: Slice) -> bool:
        """Hand a record back unrun if its lane has failed; until the fence comes by."""
        if not self.failed.holds(slice_.came[0]):
            return False
        slice_.came.restore(0)
        self._post(SetAside(slice_.id, 0))
        self._post(Ended(slice_.id, 0.0))
        if self._received.pop(slice_, None) is None and slice_ in self._waiting:
            self._waiting.remove(slice_)
        return True

    def held(self) -> list[Slice]:
        """Return what is received and not settled, in order."""
        with self._changed:
            return list(self._received)

    def orphaned(self) -> str:
        """Return the thread that has ended with records in hand; nothing where there is none."""
        with self._changed:
            taker = self._taker
            return taker.name if taker and self._received and not taker.is_alive() else ""

    @property
    def closed(self) -> bool:
        """Say whether nothing comes any more."""
        return self.left or self.over or self.dismissed

    def dismiss(self) -> None:
        """Let nothing more be received; what has been may still be settled."""
        with self._changed:
            self.dismissed = True
            self._wake()

    def leave(self, *, broken: bool = False) -> None:
        """Take nothing any more, and hand back what is received: it runs again, in order.

        From a member that is ``broken`` that counts as a failed attempt, or a record on which
        members break would go round until none is left. One that was dismissed is the last.
        """
        failure = describe(MemberLeftError(self.name), self.clock)
        if not broken or self.dismissed:
            failure = replace(failure, disposition=Disposition.GIVEN_BACK)
        with self._changed:
            self.left = True
            while self._received:
                self._fail(next(iter(self._received)), failure)
            self._wake()

    # --- the owner's side ---

    def put(self, slice_: Slice) -> None:
        """Let a record wait for the member."""
        with self._changed:
            if not (self.failed.lanes and self._set_aside(slice_)):
                self._waiting.append(slice_)
                self._wake()

    def put_end(self, event: Record) -> None:
        """Tell the member of the end of a partition: all before it has settled."""
        with self._changed:
            if not self.closed:
                self._ends.append(event)
                self._wake()

    def recall(self, only: Collection[int] | None) -> list[tuple[int, range]]:
        """Take back what the member has not received, of these slices or of all."""
        with self._changed:
            back = [slice_ for slice_ in self._waiting if only is None or slice_.id in only]
            for slice_ in back:
                self._waiting.remove(slice_)
                self._post(Ended(slice_.id, 0.0))
            return [(slice_.id, range(len(slice_.records))) for slice_ in back]

    def lapse(self, ids: Iterable[int]) -> None:
        """Note that leases are over although their records are received."""
        with self._changed:
            self._lapsed.update({slice_.id for slice_ in self._received}.intersection(ids))

    def progress(self) -> dict[int, Serial]:
        """Return which records have been received."""
        with self._changed:
            waiting = dict.fromkeys([slice_.id for slice_ in self._waiting], Serial(0))
            return waiting | dict.fromkeys([slice_.id for slice_ in self._received], Serial(1))

    def end_leases(self, ids: Collection[int]) -> list[Slice]:
        """Fail what of these slices is received, because its time is over; return that."""
        failed: list[Slice] = []
        with self._changed:
            for slice_ in [each for each in self._received if each.id in ids]:
                if slice_ in self._received:  # else it was set aside behind one of the others
                    failed.append(slice_)
                    self._fail(slice_, replace(describe(_TIMED_OUT, self.clock), timed_out=True))
        return failed

    def take_refused(self) -> int:
        """Return how often something was settled or failed too late since this was last asked."""
        with self._changed:
            refused, self._refused = self._refused, 0
            return refused

    def pass_fence(self, lanes: Collection[Lane]) -> None:
        """Take records of these lanes again: everything behind the failed one is handed back."""
        with self._changed:
            self.failed.passed(lanes)

    def end(self) -> None:
        """Tell the member that nothing comes any more."""
        with self._changed:
            self.over = True
            self._wake()

    def forked(self) -> None:
        """Be over in the child of a fork, where nobody hears what it says of a record.

        With a new lock, because another thread of the parent may have had the old one.
        """
        self._changed = threading.Condition()
        self._waiting.clear()
        self._received.clear()
        self.over = True

    def _wake(self) -> None:
        self._changed.notify_all()
        wakers, self._wakers = self._wakers, []
        for wake in wakers:
            wake()


def _place(slice_: Slice) -> tuple[TopicPartition, int]:
    return slice_.came.partition_of(0), slice_.records[0].offset()


_TIMED_OUT = LeaseTimeoutError("the ack timeout passed before the record was settled")

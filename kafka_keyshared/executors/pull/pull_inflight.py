"""Cells of pull members: the records each member holds and acknowledges.

Each record is its own lease, so a member may settle its records in any order. Cells are locked,
because members call from any thread and the owner from its own.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract.events import Failed, Report, SetAside, SliceEnded
from kafka_keyshared.core.contract.outcomes import Disposition, Failure
from kafka_keyshared.core.contract.slices import SerialProgress, Slice
from kafka_keyshared.core.records.lane_identity import Lane
from kafka_keyshared.executors.failed_lanes import FailedLanes
from kafka_keyshared.executors.handling.failure import describe
from kafka_keyshared.model import Record, TopicPartition


class LeaseTimeoutError(Exception):
    """A member held a record longer than the ack timeout."""


class MemberLeftError(Exception):
    """A member left without settling its record."""


class Cell:
    """The records of one member: those that wait for it and those that it has received.

    With ``ascending`` the member never receives a record while it holds a later one of the same
    partition. Such a member acknowledges by offset, and an offset covers all records before it.
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
        # ``in_loop``: the member runs in a loop, which calls :meth:`leave` when it ends.
        # ``leaving``: None until an exception closes the member there. Then it says whether the
        # member leaves as broken, once the exception has ended the loop.
        self.in_loop = False
        self.leaving: bool | None = None
        self._taker: threading.Thread | None = None
        self._post = post
        self._changed = threading.Condition()
        self._waiting: deque[Slice] = deque()
        # In the order of receipt, with the time of receipt.
        self._received: dict[Slice, float] = {}
        self._ends: deque[Record] = deque()
        self._ascending = ascending
        # Highest received offset per partition; it may be too high, and is made exact when it
        # matters.
        self._highest: dict[TopicPartition, int] = {}
        self.failed = FailedLanes()
        # Ids of the slices of received records whose leases are over.
        self._lapsed: set[int] = set()
        self._late: list[Record] = []
        self._refused = 0
        self._wakers: list[Callable[[], None]] = []

    # --- the member's side ---

    def take(self, count: int, timeout: float | None) -> list[Slice]:
        """Receive up to ``count`` records; wait for the first at most ``timeout`` seconds.

        A timeout of None waits for ever. Nothing is delivered once the member has left or was
        dismissed, or the instance is over. Nothing is delivered before :meth:`take_ends` has taken
        the pending events.
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
        """Receive up to ``count`` end-of-partition events, without waiting."""
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
            # The cause of the delay may be a record that has been settled since.
            self._highest.clear()
            for partition, offset in map(_place, self._received):
                self._highest[partition] = max(offset, self._highest.get(partition, -1))
            found = self._first_ascending(count)
        return found

    def _first_ascending(self, count: int) -> list[Slice]:
        """Return up to ``count`` records with offsets above the highest received one.

        If a record is left out, all later records of its lane are left out too.
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
        """Cancel :meth:`when_ready` for this callback."""
        with self._changed, suppress(ValueError):
            self._wakers.remove(wake)

    def settle(self, shares: Iterable[Slice]) -> list[Slice]:
        """Settle received records; return those whose lease was already over."""
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
                self._post(SliceEnded(slice_.id, now - received))
                del self._received[slice_]
            if self._ascending and self._waiting:
                self._wake()
            self._refused += len(late)
        return late

    def note_late(self, late: Iterable[Slice]) -> None:
        """Collect late acknowledgements, for one log line about all members."""
        with self._changed:
            self._late += [slice_.records[0] for slice_ in late]

    def take_late(self) -> list[Record]:
        """Return the records that were settled too late since the previous call."""
        with self._changed:
            late, self._late = self._late, []
            return late

    def fail(self, slice_: Slice, failure: Failure) -> bool:
        """Report a received record as failed; return False if its lease was already over."""
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
        """Fail a record, and hand back unrun the later records of its lane."""
        behind = self.failed.fail(slice_, 0)
        self._post(Failed(slice_.id, 0, failure))
        self._post(SliceEnded(slice_.id, self.clock() - self._received[slice_]))
        del self._received[slice_]
        self._lapsed.discard(slice_.id)
        if behind:
            for other in [*self._received, *self._waiting]:
                self._set_aside(other)

    def _set_aside(self, slice_: Slice) -> bool:
        """Hand a record back unrun if its lane has failed and its fence has not passed."""
        if not self.failed.holds(slice_.came[0]):
            return False
        slice_.came.restore(0)
        self._post(SetAside(slice_.id, 0))
        self._post(SliceEnded(slice_.id, 0.0))
        if self._received.pop(slice_, None) is None and slice_ in self._waiting:
            self._waiting.remove(slice_)
        return True

    def held(self) -> list[Slice]:
        """Return the records that are received and not settled, in order."""
        with self._changed:
            return list(self._received)

    def orphaned(self) -> str:
        """Return the name of the polling thread if it ended with unsettled records, else ""."""
        with self._changed:
            taker = self._taker
            return taker.name if taker and self._received and not taker.is_alive() else ""

    @property
    def closed(self) -> bool:
        """Return whether the member receives nothing more."""
        return self.left or self.over or self.dismissed

    def dismiss(self) -> None:
        """Deliver nothing more; received records may still be settled."""
        with self._changed:
            self.dismissed = True
            self._wake()

    def leave(self, *, broken: bool = False) -> None:
        """Deliver nothing more and hand back the received records; they run again, in order.

        If the member is ``broken``, that counts as a failed attempt. Otherwise a record that breaks
        members would be passed on until no member is left. A dismissed member is the last one, so
        it counts no attempt.
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
        """Queue a record for the member."""
        with self._changed:
            if not (self.failed.lanes and self._set_aside(slice_)):
                self._waiting.append(slice_)
                self._wake()

    def put_end(self, event: Record) -> None:
        """Queue an end-of-partition event: all records before it are settled."""
        with self._changed:
            if not self.closed:
                self._ends.append(event)
                self._wake()

    def recall(self, only: Collection[int] | None) -> list[tuple[int, range]]:
        """Take back the records that the member has not received, of these slices or all."""
        with self._changed:
            back = [slice_ for slice_ in self._waiting if only is None or slice_.id in only]
            for slice_ in back:
                self._waiting.remove(slice_)
                self._post(SliceEnded(slice_.id, 0.0))
            return [(slice_.id, range(len(slice_.records))) for slice_ in back]

    def lapse(self, ids: Iterable[int]) -> None:
        """Mark the leases of received records as over."""
        with self._changed:
            self._lapsed.update({slice_.id for slice_ in self._received}.intersection(ids))

    def progress(self) -> dict[int, SerialProgress]:
        """Return which records have been received."""
        with self._changed:
            waiting = dict.fromkeys([slice_.id for slice_ in self._waiting], SerialProgress(0))
            return waiting | dict.fromkeys(
                [slice_.id for slice_ in self._received], SerialProgress(1)
            )

    def end_leases(self, ids: Collection[int]) -> list[Slice]:
        """Fail the received records of these slices, because they timed out; return them."""
        failed: list[Slice] = []
        with self._changed:
            for slice_ in [each for each in self._received if each.id in ids]:
                if slice_ in self._received:  # else set aside behind another of these
                    failed.append(slice_)
                    self._fail(slice_, replace(describe(_TIMED_OUT, self.clock), timed_out=True))
        return failed

    def take_refused(self) -> int:
        """Return the number of late acknowledgements and failures since the previous call."""
        with self._changed:
            refused, self._refused = self._refused, 0
            return refused

    def pass_fence(self, lanes: Collection[Lane]) -> None:
        """Accept records of these lanes again; those behind the failed one are handed back."""
        with self._changed:
            self.failed.passed(lanes)

    def end(self) -> None:
        """Close the cell because the instance is over."""
        with self._changed:
            self.over = True
            self._wake()

    def forked(self) -> None:
        """Close the cell in the child of a fork, where reports reach no owner.

        The lock is replaced, because another thread of the parent may have held the old one at the
        fork.
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

"""A slice that is sent to another process a batch at a time, and can be taken back from there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias

from kafka_keyshared.core.slices import Serial, Slice
from kafka_keyshared.handling.called import FAILED, OK, Outcome
from kafka_keyshared.model import Record
from kafka_keyshared.pools.board import Board
from kafka_keyshared.pools.port import Handover

Called: TypeAlias = Callable[[Record, float, float, Outcome], None]
"""Is told of a call with a record that has ended: from when until when it ran, and its outcome."""


class Sent(Handover):
    """A slice on its way through the process of a worker.

    The records before ``_at`` are through; those of the batch follow, as far as ``_until``, of
    which the board knows how far they are; then what was not sent, as far as ``_end``. What is
    behind that was taken back. All of it is guarded by a lock: the worker's thread sends and hears,
    the owner asks and takes back. ``called`` is told of each call under it, before anybody learns
    that it has ended.
    """

    __slots__ = ("_at", "_board", "_called", "_end", "_lock", "_told", "_until")

    def __init__(self, slice_: Slice, board: Board, called: Called | None = None) -> None:
        super().__init__(slice_)
        self._board = board
        self._called = called
        self._told = 0
        self._at = self._until = 0
        self._end = len(slice_.records)
        self._lock = threading.Lock()

    # --- the worker's thread ---

    def next(self) -> int | None:
        """Return the index of the next record to send or to set aside; None where there is none."""
        with self._lock:
            return self._at if self._at < self._end else None

    def send(self, count: int) -> range:
        """Take up to so many records into a batch; return which. Nothing of it has started."""
        with self._lock:
            self._until = min(self._at + count, self._end)
            self._board.begin()
            self._told = self._at
            return range(self._at, self._until)

    def tell(self, done: int, outcome: Outcome) -> None:
        """Tell of the calls of the batch: so many are done, and of the next this has become."""
        if self._called is None:
            return
        with self._lock:
            self._tell(done)
            if outcome != OK:
                self._called(self._record(), *self._board.times(done), outcome)
                self._told += 1

    def passed(self, count: int) -> None:
        """Be through with so many, which have ended. There is no batch now."""
        with self._lock:
            self._at += count
            self._until = self._at

    def sets_aside(self, at: int) -> bool:
        """Skip the next record without sending it; return False if it was taken back before.

        A record that was taken back must not be reported a second time.
        """
        with self._lock:
            if at >= self._end:
                return False
            self._at = self._until = at + 1
            return True

    def broken_off(self, now: float, *, counts: bool = True) -> int | None:
        """The process has died. Be through with all that it had ended; return what it was in.

        Where that ``counts`` as an attempt: else that record has not started.
        """
        with self._lock:
            if self._until == self._at:
                return None
            running = counts and (self._board.running() or self._board.garbled)
            started = self._board.ended() + running
            if self._called is not None:
                self._tell(self._board.ended())
                if running:
                    began, _ = self._board.times(started - 1)
                    self._called(self._record(), began, now, FAILED)
            self._at += started
            self._until = self._at
            return self._at - 1 if running else None

    def last(self) -> Record | None:
        """Return the last record that it is through with; None before the first."""
        with self._lock:
            return self.slice.records[self._at - 1] if self._at else None

    # --- the owner ---

    def holds_at(self, index: int) -> bool:
        """Have the batch end with the record that runs; say whether that is this one."""
        with self._lock:
            if self._until == self._at:
                return False
            return self._at + self._board.freeze() == index + 1 and self._board.running()

    def progress(self) -> Serial:
        """Return how far the process has got."""
        with self._lock:
            if self._until == self._at:
                return Serial(self._at)
            started = self._board.started()
            if self._called is not None:  # what is known to have ended may be committed
                self._tell(self._board.ended())
            return Serial(self._at + started)

    def take_back(self) -> range:
        """Take every unstarted record back; return which they are."""
        with self._lock:
            started = self._at
            if self._until > self._at:
                started += self._board.freeze()
            back = range(started, self._end)
            self._end = started
            return back

    def _tell(self, ended: int) -> None:
        """Tell of the calls that have ended as done, those that were not told of before."""
        called = self._called
        while called is not None and self._told < self._at + ended:
            record, index = self._record(), self._told - self._at
            called(record, *self._board.times(index), OK)
            self._told += 1

    def _record(self) -> Record:
        """Return the record that is next to be told of."""
        return self.slice.records[self._told]

    def clear(self) -> None:
        """Have nothing left to send."""
        self._lock = threading.Lock()  # in the child of a fork somebody else may have the old one
        self._end = self._at

"""Slices sent to a worker process one batch at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias

from kafka_keyshared.core.contract.slices import SerialProgress, Slice
from kafka_keyshared.executors.handling.call_record import FAILED, OK, Outcome
from kafka_keyshared.executors.port import Handover
from kafka_keyshared.executors.processes.shm_progress import ProgressBoard
from kafka_keyshared.model import Record

Called: TypeAlias = Callable[[Record, float, float, Outcome], None]
"""Callback for one ended call: the record, the times of its start and end, and its outcome."""


class SentSlice(Handover):
    """A slice on its way through the process of a worker.

    The records before ``_at`` are processed. The current batch follows, up to ``_until``; the board
    shows its progress. Then come unsent records, up to ``_end``. Records behind that were taken
    back.

    A lock guards all of it. The worker's thread sends batches and receives results; the owner
    queries the slice and takes records back. ``called`` gets each call under the lock, before the
    call is visible as ended.
    """

    __slots__ = ("_at", "_board", "_called", "_end", "_lock", "_told", "_until")

    def __init__(self, slice_: Slice, board: ProgressBoard, called: Called | None = None) -> None:
        super().__init__(slice_)
        self._board = board
        self._called = called
        self._told = 0
        self._at = self._until = 0
        self._end = len(slice_.records)
        self._lock = threading.Lock()

    # --- the worker's thread ---

    def next(self) -> int | None:
        """Return the index of the next record to send or to set aside; None if there is none."""
        with self._lock:
            return self._at if self._at < self._end else None

    def send(self, count: int) -> range:
        """Take up to ``count`` records into a batch; return their indices. None has started."""
        with self._lock:
            self._until = min(self._at + count, self._end)
            self._board.begin()
            self._told = self._at
            return range(self._at, self._until)

    def tell(self, done: int, outcome: Outcome) -> None:
        """Report the calls of the batch: ``done`` records, and the outcome of the next one."""
        if self._called is None:
            return
        with self._lock:
            self._tell(done)
            if outcome != OK:
                self._called(self._record(), *self._board.times(done), outcome)
                self._told += 1

    def passed(self, count: int) -> None:
        """Mark the next ``count`` records as processed. The batch is over."""
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
        """Close the batch after the process has died; return the record that it was running.

        All records that had ended are marked as processed. With ``counts`` the running record is a
        failed attempt, and its index is returned. Otherwise it has not started.
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
        """Return the last processed record; None before the first."""
        with self._lock:
            return self.slice.records[self._at - 1] if self._at else None

    # --- the owner ---

    def holds_at(self, index: int) -> bool:
        """End the batch with the running record; return whether that is this one."""
        with self._lock:
            if self._until == self._at:
                return False
            return self._at + self._board.freeze() == index + 1 and self._board.running()

    def progress(self) -> SerialProgress:
        """Return how many records the process has started."""
        with self._lock:
            if self._until == self._at:
                return SerialProgress(self._at)
            started = self._board.started()
            if self._called is not None:  # report before the commit
                self._tell(self._board.ended())
            return SerialProgress(self._at + started)

    def take_back(self) -> range:
        """Take back all unstarted records; return their indices."""
        with self._lock:
            started = self._at
            if self._until > self._at:
                started += self._board.freeze()
            back = range(started, self._end)
            self._end = started
            return back

    def _tell(self, ended: int) -> None:
        """Report the calls that have ended as done and were not reported before."""
        called = self._called
        while called is not None and self._told < self._at + ended:
            record, index = self._record(), self._told - self._at
            called(record, *self._board.times(index), OK)
            self._told += 1

    def _record(self) -> Record:
        """Return the next record to report."""
        return self.slice.records[self._told]

    def clear(self) -> None:
        """Leave nothing to send."""
        self._lock = threading.Lock()  # a thread of the parent may have held it
        self._end = self._at

"""Shifts: where many workers share full chunks, each is handed its records at some chunks only.

A slice costs its worker and the owner as much for 30 records as for 300: a thread wakes, waits for
the interpreter, reports. Of a chunk of 2,000 each of 64 workers has 30. So while chunks follow one
upon the other, some workers are handed what waits for them at each, in turn, and the others at a
later one, when it is more.

Nobody is kept waiting for what may not come: it is over as soon as the owner does not fetch again
at once (the log is read to its end, the window is full), or chunks are slow. A worker that has a
slice's worth waiting, as a slow one soon has, is handed it in any case.
"""

from __future__ import annotations

from collections.abc import Collection

from kafka_keyshared.core.workers import Worker

WORTH = 256
"""Records that are worth a slice, be it nobody's turn: of more, what a slice costs hardly counts.

With eight workers a chunk of 2,000 has as many for each, and there are no shifts.
"""

SHIFTS_MAX = 8

PACE = 0.01
"""Seconds from one chunk to the next, at most, where nobody notices that he waits for some."""


class Shifts:
    """Whose turn it is, in one subscription. Times are monotonic, in seconds.

    ``due`` is when what waits for its turn is handed out at the latest; None while there are no
    shifts.
    """

    def __init__(self, window_records: int) -> None:
        self.due: float | None = None
        self._window_records = window_records
        self._next = 0
        self._came_at = float("-inf")

    def came_in(self, workers: Collection[Worker], count: int, now: float, *, more: bool) -> None:
        """Say who is handed what waits for it, now that so many records have been routed.

        ``more`` says that others follow at once.
        """
        quick, self._came_at = now - self._came_at <= PACE, now
        shifts = self._shifts(len(workers), count) if more and quick else 1
        if shifts == 1:
            self.end(workers)
            return
        self.due = now + PACE
        size = -(-len(workers) // shifts)
        first = self._next % len(workers)
        self._next = first + size
        for place, worker in enumerate(workers):
            its_turn = (place - first) % len(workers) < size
            worth = min(WORTH, worker.slice_size)
            worker.off_shift = not its_turn and len(worker.row.routed) < worth

    def _shifts(self, workers: int, count: int) -> int:
        """Return into how many shifts they are divided, at so many records in a chunk.

        What waits for its turn comes to half the window at most, or that would be full too soon.
        """
        each = max(1, count)
        return max(1, min(SHIFTS_MAX, self._window_records // each, WORTH * workers // each))

    def end(self, workers: Collection[Worker]) -> None:
        """Let everybody be handed whatever waits for it."""
        if self.due is not None:
            self.due = None
            for worker in workers:
                worker.off_shift = False

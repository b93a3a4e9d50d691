"""Shared memory that shows the progress of a worker process.

The worker process writes how many records of its batch have started and ended, before and after
each record. The parent reads these counts without asking, also while a handler runs or after the
process has died. The parent can also stop the batch after the running record. The process, which
may be stuck in that record, need not help.

The stop works without a lock. The worker writes that it starts a record, then checks whether it
may, and undoes the write if not. The parent writes the limit, waits, then reads the count. A start
that is not visible by then will see the limit. The parent waits because a write may still be in the
processor. Others see it within a microsecond, also of a process that no longer runs.

The memory is a file that the process has open. A handler may write into a file descriptor that is
not its own. Each number therefore carries a mark in its upper half, new for each board. A number
with another mark is garbled. The last good value then holds, and ``on_garbled`` is called.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from multiprocessing.sharedctypes import RawArray
from typing import Any, NamedTuple

from kafka_keyshared.executors.processes.shm_values import Segment

STARTED, ENDED, MOST = range(3)
"""Places of the counts: started records, ended records, and the limit on records that may start."""

NO_LIMIT = 1 << 31

UNTIL_SEEN = 100e-6
"""Seconds until all processes can read everything that was written before."""


class Shared(NamedTuple):
    """Memory that both processes share: the places of the board, and the large values of the batch.

    ``times`` has two numbers per record, if times are recorded: the start and the end of its call.
    ``mark`` is combined with each number of the places by exclusive or.
    """

    places: Any
    values: Segment
    times: Any = None
    mark: int = 0


class ProgressBoard:
    """The parent's side of the shared memory; the worker process writes its counts there.

    ``times`` is the number of records per batch whose times are recorded. ``until_seen`` is the
    time in seconds until the other side sees a write. ``mark``: see :class:`Shared`.
    """

    def __init__(self, times: int = 0, *, until_seen: float = UNTIL_SEEN, mark: int = 0) -> None:
        self._until_seen = until_seen
        noted = RawArray("d", 2 * times) if times else None
        self.shared = Shared(RawArray("q", 3), Segment(), noted, mark)
        self._mark = mark
        # The last good values of the current batch.
        self._known = [0, 0, 0]
        self.garbled = False
        """Whether a number of this batch was overwritten, not written by the process's loop."""
        self.on_garbled: Callable[[], None] = lambda: None
        self._places = numbers_of(self.shared.places)
        self._times = times_of(noted) if times else None
        self._never = threading.Event()

    def begin(self) -> None:
        """Reset the counts for the next batch. Nothing runs at this time."""
        places, mark = self._places, self._mark
        places[STARTED] = places[ENDED] = mark
        places[MOST] = mark ^ NO_LIMIT
        self._known, self.garbled = [0, 0, 0], False

    def started(self) -> int:
        """Return how many records of the batch have started."""
        return self._read(STARTED)

    def ended(self) -> int:
        """Return how many records of the batch have ended as done."""
        return self._read(ENDED)

    def _read(self, place: int) -> int:
        number = self._places[place] ^ self._mark
        if 0 <= number <= NO_LIMIT and not self.garbled:
            self._known[place] = number
        elif not self.garbled:
            self.garbled = True
            self.on_garbled()
        return self._known[place]

    def times(self, index: int) -> tuple[float, float]:
        """Return the start and end of a record's call, in seconds of the shared clock.

        The end is meaningless while the call has not ended.
        """
        times = self._times or ()
        return times[2 * index], times[2 * index + 1]

    def running(self) -> bool:
        """Return whether the last started record is still running."""
        return self.started() > self.ended()

    def freeze(self) -> int:
        """Let no further records start; return how many have started."""
        self._places[MOST] = self._mark
        self._never.wait(self._until_seen)
        return self.started()


def new_mark() -> int:
    """Return a random mark, above all numbers that are written."""
    return (1 + secrets.randbelow((1 << 30) - 1)) << 32


def numbers_of(shared: Any) -> memoryview:
    """Return shared memory as a view of integers, without conversion."""
    return memoryview(shared).cast("B").cast("q")


def times_of(shared: Any) -> memoryview[float]:
    """Return shared memory as a view of times, without conversion."""
    return memoryview(shared).cast("B").cast("d")

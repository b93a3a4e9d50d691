"""How far a process is in the records that it was sent, in memory that both sides see.

The process that runs handlers writes how many records of its batch have started and how many have
ended, before and after each; the one that has sent them reads that without asking, also while a
handler runs or after its process has died. And it can stop the batch behind the record that runs,
without the help of a process that may be stuck in it.

That is agreed on without a lock. The worker writes that it starts a record, then looks whether it
may; it takes the word back where it may not. The other side forbids, waits, then reads what was
said: whatever is not said by then will see that it may not. The wait is for the processor: what it
has been given to write, others see within a microsecond, also of a process that runs no more.

The memory is a file that the process has open, and a handler may write into a file descriptor that
is not its own. So each number carries a mark in its upper half, new for each board. A number with
another mark is garbled: then what was read before it holds, and ``on_garbled`` is called.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from multiprocessing.sharedctypes import RawArray
from typing import Any, NamedTuple

from kafka_keyshared.pools.segment import Segment

STARTED, ENDED, MOST = range(3)
"""How many records of the batch have started and ended, and how many may start."""

NO_LIMIT = 1 << 31

UNTIL_SEEN = 100e-6
"""Seconds until everything that was written before can be read by all."""


class Shared(NamedTuple):
    """What both sides have: the places of the board, and the large values of the batch.

    ``times`` are two numbers for each record, where they are wanted: when its call began and ended.
    ``mark`` is what each number of the places is combined with, by exclusive or.
    """

    places: Any
    values: Segment
    times: Any = None
    mark: int = 0


class Board:
    """The side of the process that sends batches; the other one has the numbers of it.

    ``times``: of how many records of a batch the times are wanted. ``until_seen``: how many seconds
    it takes until the other side sees what is written. ``mark``: see :class:`Shared`.
    """

    def __init__(self, times: int = 0, *, until_seen: float = UNTIL_SEEN, mark: int = 0) -> None:
        self._until_seen = until_seen
        noted = RawArray("d", 2 * times) if times else None
        self.shared = Shared(RawArray("q", 3), Segment(), noted, mark)
        self._mark = mark
        # What was read last, of the batch that was sent last.
        self._known = [0, 0, 0]
        self.garbled = False
        """Whether a number of this batch was written by something else than the process's loop."""
        self.on_garbled: Callable[[], None] = lambda: None
        self._places = numbers_of(self.shared.places)
        self._times = times_of(noted) if times else None
        self._never = threading.Event()

    def begin(self) -> None:
        """Have nothing started of the batch that is sent next. Nothing runs."""
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
        """Return when the call with a record began and ended, in seconds of the clock of all.

        What it says of one that has not ended so means nothing.
        """
        times = self._times or ()
        return times[2 * index], times[2 * index + 1]

    def running(self) -> bool:
        """Say whether the last record that has started has not ended."""
        return self.started() > self.ended()

    def freeze(self) -> int:
        """Let no record start any more; return how many have."""
        self._places[MOST] = self._mark
        self._never.wait(self._until_seen)
        return self.started()


def new_mark() -> int:
    """Return a mark: a number above all that is written."""
    return (1 + secrets.randbelow((1 << 30) - 1)) << 32


def numbers_of(shared: Any) -> memoryview:
    """Return what is shared as numbers that are read and written as they are."""
    return memoryview(shared).cast("B").cast("q")


def times_of(shared: Any) -> memoryview[float]:
    """Return what is shared as times, in the same way."""
    return memoryview(shared).cast("B").cast("d")

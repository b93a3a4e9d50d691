"""How many records a fetch may bring, under both bounds of the window, and when it is full.

A fetch waits until one part in ten of what the window holds in all is free, so that chunks stay
large. How much that is in records depends on their size: with large values the byte bound decides.
The last part in twenty (20 records at most) is left to the polls of a full window, each of which
may bring one record, so that the window is not outgrown by them.

What waits in the client's own queue is not the window's. The client bounds it by the values alone:
of large keys or headers it would fetch as long as anybody lets it. So while these come the window
is full at a quarter of its bytes, and pauses at once: the rest is for what the client brings until
the owner sees to it, at a megabyte in a millisecond.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafka_keyshared.core.window import SAMPLE_EVERY, Window
from kafka_keyshared.model import Record

ROOM_SHARE = 10
SPARE_SHARE = 20

FULL_PAUSE_AFTER = 2.0
"""Seconds after which a full window pauses: that discards what the client has fetched."""

FULL_WAIT = 0.002
"""Seconds for which the owner waits in its mailbox then: nothing that is fetched waits with it."""

FULL_POLL_EVERY = 0.1
FULL_POLL_AT_LEAST_EVERY = 0.5
QUEUE_RECORDS = 100_000
QUEUE_BYTES = 64 << 20
"""Where the client ends fetching by itself: so many records, or so many bytes of their values.

These are its defaults for a partition (``queued.min.messages``, ``queued.max.messages.kbytes``).
"""

SPARE_MAX = int(FULL_PAUSE_AFTER / FULL_POLL_EVERY)


class Room:
    """The windows of all subscriptions, as far as a fetch is concerned."""

    def __init__(self, windows: Iterable[Window]) -> None:
        self._windows = list(windows)
        self._spare = 0
        # What came lately: records, bytes of values, and bytes that the client does not count.
        self._records = 0.0
        self._values = 0.0
        self._others = 0.0
        self._floods = False

    def values(self, chunk: Sequence[Record]) -> tuple[float, float]:
        """Return the bytes of a chunk's values, sampled, and what is held before it is taken in."""
        sample = chunk[::SAMPLE_EVERY]
        values = sum(map(len, sample)) * len(chunk) / len(sample) if sample else 0.0
        return values, self._windows[0].bytes

    def took_in(self, count: int, values: float, held: float) -> None:
        """Learn from a chunk that has been taken in; ``values`` and ``held`` are as before it."""
        self._records += count
        self._values += values
        self._others += max(0.0, self._windows[0].bytes - held - values)
        if self._values + self._others > QUEUE_BYTES:
            self._records, self._values, self._others = (
                part / 2 for part in (self._records, self._values, self._others)
            )
        self._floods = (
            self._others > self._values
            and self._others * QUEUE_RECORDS > self._records * QUEUE_BYTES * 2
        )

    def floods(self) -> bool:
        """Say whether the client would fetch far more ahead than its bounds say.

        So it is where keys and headers outweigh the values, and of the number of records that it
        wants they are twice what it may hold.
        """
        return self._floods

    def fetch(self, *, hungry: bool) -> int:
        """Return how many records to ask for, 0 while a window counts as full.

        ``hungry`` says that nothing runs: then a single free place is worth a fetch.
        """
        least: int | None = None
        flood = self._floods
        for window in self._windows:
            room = window.room() if not flood else min(window.room(), _quarter(window))
            capacity = room + window.records
            spare = min(SPARE_MAX, capacity // SPARE_SHARE)
            if not room or (room * ROOM_SHARE < capacity and not hungry):
                self._spare = spare
                return 0
            may = max(1, room - spare)
            least = may if least is None else min(least, may)
        return least or 0

    def used_up(self) -> bool:
        """Say whether a window holds all it may, so that not even a poll is worth its record.

        Bytes are estimated from a mean, and a pause discards all that was fetched: so they may be
        a twentieth more.
        """
        return any(
            window.records >= window.records_max
            or window.bytes * SPARE_SHARE >= window.bytes_max * (SPARE_SHARE + 1)
            for window in self._windows
        )

    def poll_every(self) -> float:
        """Return how long a full window waits between polls, so that its spare room lasts 2 s.

        A poll serves the callbacks too, so it does not wait for longer than half a second.
        """
        wait = FULL_PAUSE_AFTER / self._spare if self._spare else FULL_POLL_AT_LEAST_EVERY
        return min(wait, FULL_POLL_AT_LEAST_EVERY)


def _quarter(window: Window) -> int:
    """Return how many records fit until a quarter of the window's bytes are held."""
    left = window.bytes_max / 4 - window.bytes
    if left <= 0:
        return 0
    return int(left * window.records / window.bytes) + 1 if window.records else window.room() // 4

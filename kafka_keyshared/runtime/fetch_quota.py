"""Room for a fetch under both bounds of the window.

A fetch waits until a tenth of the window is free, so that chunks stay large. The number of records
depends on their size: with large values the byte bound decides. The last twentieth of the window
(at most 20 records) is reserved for the polls of a full window. Each of them may return one record.

The client's own queue is not part of the window. The client bounds it by value bytes alone. With
large keys or headers it would therefore prefetch without a limit. While such records come, the
window counts as full at a quarter of its bytes and pauses at once. The rest absorbs the records
that arrive before the owner reacts, at a megabyte per millisecond.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafka_keyshared.core.records.window import SAMPLE_EVERY, Window
from kafka_keyshared.model import Record

ROOM_SHARE = 10
SPARE_SHARE = 20

FULL_PAUSE_AFTER = 2.0
"""Seconds after which a full window pauses. A pause discards prefetched records."""

FULL_POLL_EVERY = 0.1
FULL_POLL_AT_LEAST_EVERY = 0.5
QUEUE_RECORDS = 100_000
QUEUE_BYTES = 64 << 20
"""The client's own prefetch bounds: a number of records, and bytes of their values.

These are its defaults for a partition (``queued.min.messages``, ``queued.max.messages.kbytes``).
"""

SPARE_MAX = int(FULL_PAUSE_AFTER / FULL_POLL_EVERY)


class Room:
    """The windows of all subscriptions, as far as a fetch needs them."""

    def __init__(self, windows: Iterable[Window]) -> None:
        self._windows = list(windows)
        self._spare = 0
        # Decaying sums of recent records, value bytes, and bytes that the client does not count.
        self._records = 0.0
        self._values = 0.0
        self._others = 0.0
        self._floods = False

    def values(self, chunk: Sequence[Record]) -> tuple[float, float]:
        """Return the sampled bytes of a chunk's values, and the bytes held before it."""
        sample = chunk[::SAMPLE_EVERY]
        values = sum(map(len, sample)) * len(chunk) / len(sample) if sample else 0.0
        return values, self._windows[0].bytes

    def took_in(self, count: int, values: float, held: float) -> None:
        """Learn from a chunk that was taken in. ``values`` and ``held`` are from :meth:`values`."""
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
        """Return whether the client would prefetch far beyond its bounds.

        It does when keys and headers outweigh the values. They must also exceed twice the allowed
        bytes at the number of records it wants to prefetch.
        """
        return self._floods

    def fetch(self, *, hungry: bool) -> int:
        """Return how many records to fetch, 0 while a window counts as full.

        ``hungry`` says that nothing runs. Then a single free place justifies a fetch.
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
        """Return whether a window is so full that even a poll's record is too much.

        Bytes are estimated from a mean, and a pause discards prefetched records. Bytes may
        therefore exceed the bound by a twentieth.
        """
        return any(
            window.records >= window.records_max
            or window.bytes * SPARE_SHARE >= window.bytes_max * (SPARE_SHARE + 1)
            for window in self._windows
        )

    def poll_every(self) -> float:
        """Return the seconds between polls of a full window, so that its reserve lasts 2 s.

        A poll serves callbacks too, so the interval is at most half a second.
        """
        wait = FULL_PAUSE_AFTER / self._spare if self._spare else FULL_POLL_AT_LEAST_EVERY
        return min(wait, FULL_POLL_AT_LEAST_EVERY)


def _quarter(window: Window) -> int:
    """Return how many records fit until a quarter of the window's bytes is held."""
    left = window.bytes_max / 4 - window.bytes
    if left <= 0:
        return 0
    return int(left * window.records / window.bytes) + 1 if window.records else window.room() // 4

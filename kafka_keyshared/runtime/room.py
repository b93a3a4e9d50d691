"""How many records a fetch may bring, under both bounds of the window, and when it is full.

A fetch waits until one part in ten of what the window holds in all is free, so that chunks stay
large. How much that is in records depends on their size: with large values the byte bound decides.
The last part in twenty (20 records at most) is left to the polls of a full window, each of which
may bring one record, so that the window is not outgrown by them.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_keyshared.core.window import Window

ROOM_SHARE = 10
SPARE_SHARE = 20

FULL_PAUSE_AFTER = 2.0
"""Seconds after which a full window pauses: that discards what the client has fetched."""

FULL_POLL_EVERY = 0.1
FULL_POLL_AT_LEAST_EVERY = 0.5
SPARE_MAX = int(FULL_PAUSE_AFTER / FULL_POLL_EVERY)


class Room:
    """The windows of all subscriptions, as far as a fetch is concerned."""

    def __init__(self, windows: Iterable[Window]) -> None:
        self._windows = list(windows)
        self._spare = 0

    def fetch(self, *, hungry: bool) -> int:
        """Return how many records to ask for, 0 while a window counts as full.

        ``hungry`` says that nothing runs: then a single free place is worth a fetch.
        """
        least: int | None = None
        for window in self._windows:
            room = window.room()
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

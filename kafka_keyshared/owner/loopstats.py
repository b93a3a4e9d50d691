"""What the loop did, for whoever looks on."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from kafka_keyshared.status import RebalanceStatus

KEPT = 50
"""Rebalances that are kept for whoever looks on."""


@dataclass
class LoopStats:
    """What the loop did, for whoever looks on; ``batches`` counts fetches by size.

    ``polled_at`` is when the client was last asked for records, ``poll_gap`` the longest time
    between two such calls since somebody last looked, both in monotonic seconds. ``joined`` says
    whether the group has given out its partitions, be it none to this member, and not taken them
    back. ``rebalanced`` are the last times that partitions came or went.
    """

    batches: dict[int, int] = field(default_factory=dict)
    fetched: int = 0
    first_record_at: float | None = None
    beats: int = 0
    polled_at: float | None = None
    poll_gap: float = 0.0
    joined: bool = False
    rebalanced: deque[RebalanceStatus] = field(default_factory=lambda: deque(maxlen=KEPT))

    def polled(self, now: float) -> None:
        """Note a call of the client's that counts as a poll."""
        if self.polled_at is not None:
            self.poll_gap = max(self.poll_gap, now - self.polled_at)
        self.polled_at = now

    def took_in(self, count: int, now: float) -> None:
        """Note a fetch of so many records."""
        if self.first_record_at is None:
            self.first_record_at = now
        self.fetched += count
        self.batches[count] = self.batches.get(count, 0) + 1

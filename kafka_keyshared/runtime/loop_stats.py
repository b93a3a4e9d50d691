"""Counters of the owner's loop, for statuses."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from kafka_keyshared.status import RebalanceStatus

KEPT = 50
"""Number of rebalances that are kept for statuses."""


@dataclass
class LoopStats:
    """Counters of the loop, for statuses. ``batches`` counts fetches by size.

    ``polled_at`` is the time of the last poll. ``poll_gap`` is the longest time between two polls
    since the last status. Both are in monotonic seconds. ``joined`` says whether the group has
    assigned partitions, possibly none, and has not revoked them. ``rebalanced`` are the latest
    assignments and revocations.
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
        """Note a client call that counts as a poll."""
        if self.polled_at is not None:
            self.poll_gap = max(self.poll_gap, now - self.polled_at)
        self.polled_at = now

    def took_in(self, count: int, now: float) -> None:
        """Note a fetch of ``count`` records."""
        if self.first_record_at is None:
            self.first_record_at = now
        self.fetched += count
        self.batches[count] = self.batches.get(count, 0) + 1

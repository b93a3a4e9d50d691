"""What blocked lanes hold, whose partition has to stop for it, and that nobody forgets them.

Together they may fill a quarter of the window. Beyond that, no more is read of a partition that has
more than an even share of the quarter; one with less goes on, or a single poison record would stop
a partition for what another one holds. So blocked lanes never fill more than half of the window.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable

from kafka_keyshared.core.commands import Level, Notice
from kafka_keyshared.core.failure_lines import kind_of, named_kind
from kafka_keyshared.core.lanes import ClosedLane, LaneState
from kafka_keyshared.model import TopicPartition

BLOCKED_SHARE = 4
"""Records behind blocked lanes may fill one part in this many of the window."""

REMIND_EVERY = 60.0
NAMED_MAX = 10


class Blocked:
    """The records that blocked lanes hold, by partition, and which lanes have grown."""

    def __init__(self, window_records: int) -> None:
        self._most = window_records / BLOCKED_SHARE
        self.records: Counter[TopicPartition] = Counter()
        # For each partition the lane that grew last, until that is looked at.
        self.grown: dict[TopicPartition, ClosedLane] = {}
        self._remind_at = float("-inf")

    def count(self, closed: ClosedLane, partitions: Iterable[TopicPartition]) -> None:
        """Count what a lane has come to hold, if it is blocked."""
        if closed.state is LaneState.BLOCKED:
            for partition in partitions:
                self.records[partition] += 1
                self.grown[partition] = closed

    def clear(self) -> None:
        """Forget all counts: they are about to be taken anew."""
        self.records.clear()
        self.grown.clear()

    def take_overfull(self, assigned: int) -> dict[TopicPartition, ClosedLane]:
        """Return the partitions that have grown and hold too much, with the lane that did it."""
        grown, self.grown = self.grown, {}
        if self.records.total() < self._most:
            return {}
        fair = self._fair(assigned)
        return {each: lane for each, lane in grown.items() if self.records[each] >= fair}

    def holds_little(self, partition: TopicPartition, assigned: int) -> bool:
        """Say whether a partition that was stopped may go on: not until there is half as much."""
        half = self.records.total() * 2 < self._most
        return half or self.records[partition] * 2 < self._fair(assigned)

    def _fair(self, assigned: int) -> float:
        return self._most / max(1, assigned)

    def remind(self, closed: Iterable[ClosedLane], now: float) -> list[Notice]:
        """Name the keys that are blocked, the oldest first, once a minute for as long as they are.

        One that has only just blocked was named when it did.
        """
        # There may be very many lanes that only wait for a retry.
        if now < self._remind_at or not self.records:
            return []
        oldest, count = oldest_blocked(closed)
        since = min((each.blocked_at for each in oldest), default=now)
        if now - since < REMIND_EVERY:
            self._remind_at = since + REMIND_EVERY
            return []
        self._remind_at = now + REMIND_EVERY
        minutes = (now - since) / 60
        names = ", ".join(map(_named, oldest))
        more = f" and {count - NAMED_MAX:,} more" if count > NAMED_MAX else ""
        keys = "1 key is" if count == 1 else f"{count:,} keys are"
        text = (
            f"{keys} blocked, the oldest for {minutes:.0f} min: {names}{more}. Mend the handler "
            "and restart, or give a dead-letter topic (dlq=True)"
        )
        return [Notice(Level.ERROR, text)]


def oldest_blocked(closed: Iterable[ClosedLane]) -> tuple[list[ClosedLane], int]:
    """Return the lanes that have been blocked for longest, and how many are blocked."""
    blocked = [each for each in closed if each.state is LaneState.BLOCKED]
    return heapq.nsmallest(NAMED_MAX, blocked, key=lambda each: each.blocked_at), len(blocked)


def _named(closed: ClosedLane) -> str:
    where = f"{closed.partition}@{closed.head.offset()}" if closed.head is not None else "nowhere"
    why = f" ({named_kind(kind_of(closed.last))})" if closed.last is not None else ""
    key = "no key" if closed.key is None else f"{closed.key!r:.80}"
    return f"{key} at {where}{why}"

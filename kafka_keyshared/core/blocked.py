"""How much blocked lanes hold, by partition, and whose partition has to stop for it.

Together they may fill a quarter of the window. Beyond that, no more is read of a partition that has
more than an even share of the quarter; one with less goes on, or a single poison record would stop
a partition for what another one holds. So blocked lanes never fill more than half of the window.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kafka_keyshared.core.lanes import ClosedLane, LaneState
from kafka_keyshared.model import TopicPartition

BLOCKED_SHARE = 4
"""Records behind blocked lanes may fill one part in this many of the window."""


class Blocked:
    """The records that blocked lanes hold, by partition, and which lanes have grown."""

    def __init__(self, window_records: int) -> None:
        self._most = window_records / BLOCKED_SHARE
        self.records: Counter[TopicPartition] = Counter()
        # For each partition the lane that grew last, until that is looked at.
        self.grown: dict[TopicPartition, ClosedLane] = {}

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

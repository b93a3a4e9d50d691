"""Pauses ordered by an operator, kept until they are resumed.

The order itself is stored, not the list of partitions assigned at that time. A partition that is
assigned later is therefore held back from its start. The orders are not persisted: a restart of the
process forgets them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from kafka_keyshared.core.backpressure.pause_reasons import Holds, Reason
from kafka_keyshared.model import TopicPartition, some


class Those(NamedTuple):
    """The target of a pause or resume order. Both fields None means everything."""

    topics: Collection[str] | None = None
    partitions: Collection[TopicPartition] | None = None

    def __str__(self) -> str:
        if self.topics is None and self.partitions is None:
            return "everything"
        return some([*(self.topics or ()), *(self.partitions or ())], none="nothing")


class ByHand:
    """Stores which partitions are paused by hand.

    The latest order that covers a partition wins, whether it names everything, the topic or the
    partition.
    """

    def __init__(self, holds: Holds) -> None:
        self._holds = holds
        self._everything = False
        # Later orders that override the state of everything, or of a whole topic.
        self._topics: dict[str, bool] = {}
        self._partitions: dict[TopicPartition, bool] = {}

    def is_paused(self, partition: TopicPartition) -> bool:
        """Return whether the partition is paused. It need not be assigned."""
        of_topic = self._topics.get(partition.topic, self._everything)
        return self._partitions.get(partition, of_topic)

    def names(self, partition: TopicPartition) -> bool:
        """Return whether an order that still applies names this very partition."""
        return partition in self._partitions

    def order(self, those: Those, *, paused: bool, here: Iterable[TopicPartition]) -> None:
        """Pause or resume the target. ``here`` are the partitions that have started."""
        if those.topics is None and those.partitions is None:
            self._everything = paused
            self._topics.clear()
            self._partitions.clear()
        for topic in those.topics or ():
            self._topics[topic] = paused
            for partition in [each for each in self._partitions if each.topic == topic]:
                del self._partitions[partition]
        for partition in those.partitions or ():
            self._partitions[partition] = paused
        self._holds.only(Reason.BY_HAND, {each for each in here if self.is_paused(each)})

    def came(self, partitions: Iterable[TopicPartition]) -> None:
        """Hold back the partitions that start and are paused."""
        those = [each for each in partitions if self.is_paused(each)]
        self._holds.hold_back(Reason.BY_HAND, those)

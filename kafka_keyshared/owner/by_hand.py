"""What somebody has paused: everything, topics or partitions, until it is resumed.

What was ordered is remembered, and not which partitions were here then: one that comes back, or
comes for the first time, is held back from its start. It is forgotten with the process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from kafka_keyshared.core.holds import Holds, Reason
from kafka_keyshared.model import TopicPartition, some


class Those(NamedTuple):
    """What an order to pause or to resume is for. Both None: everything."""

    topics: Collection[str] | None = None
    partitions: Collection[TopicPartition] | None = None

    def __str__(self) -> str:
        if self.topics is None and self.partitions is None:
            return "everything"
        return some([*(self.topics or ()), *(self.partitions or ())], none="nothing")


class ByHand:
    """What is paused by hand. The last order that names a partition counts, however wide it is."""

    def __init__(self, holds: Holds) -> None:
        self._holds = holds
        self._everything = False
        # What was said later of a part of everything, or of a part of a topic.
        self._topics: dict[str, bool] = {}
        self._partitions: dict[TopicPartition, bool] = {}

    def is_paused(self, partition: TopicPartition) -> bool:
        """Say whether it is paused, also one that is not here."""
        of_topic = self._topics.get(partition.topic, self._everything)
        return self._partitions.get(partition, of_topic)

    def names(self, partition: TopicPartition) -> bool:
        """Say whether an order that still counts has named the partition by itself."""
        return partition in self._partitions

    def order(self, those: Those, *, paused: bool, here: Iterable[TopicPartition]) -> None:
        """Pause or resume these; ``here`` are the partitions that have started."""
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
        """Hold back what is paused of partitions that start."""
        those = [each for each in partitions if self.is_paused(each)]
        self._holds.hold_back(Reason.BY_HAND, those)

"""A read-only view of an instance for tools that run inside it."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_keyshared.core.contract.slices import Progress
from kafka_keyshared.core.offsets.positions import PartitionState
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.runtime.loop import Loop


class InstanceView:
    """A running instance, to be read on its owner's thread; nothing here changes it.

    ``subscriptions`` and ``partitions`` are the live ones of the core.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.subscriptions: Mapping[str, Subscription] = loop.core.subscriptions
        self.partitions: Mapping[TopicPartition, PartitionState] = loop.core.partitions

    @property
    def joined(self) -> bool:
        """Whether the group has assigned partitions, possibly none."""
        return self._loop.stats.joined

    @property
    def fetched(self) -> int:
        """How many records the client has delivered in total."""
        return self._loop.stats.fetched

    def settled(self) -> int:
        """Return how many records were done, dropped or dead-lettered, in slices that ended."""
        counts = [sub.counts for sub in self.subscriptions.values()]
        return sum(each.ok + each.dropped + each.dead_lettered for each in counts)

    def held(self) -> int:
        """Return how many records are held, over all subscriptions."""
        return self._loop.core.unsettled_count()

    def leased(self) -> int:
        """Return how many records are leased."""
        return self._loop.core.outstanding()

    def progress(self) -> Progress:
        """Return the progress of the workers."""
        return self._loop.pool.progress()

    def committed(self, partition: TopicPartition) -> int | None:
        """Return the committed position, None while none is known."""
        return self._loop.core.commits.committed(partition)

    def log_ends(self) -> dict[TopicPartition, int]:
        """Return the ends of the logs, as far as the client knows them."""
        return self._loop.ports.client.log_ends()

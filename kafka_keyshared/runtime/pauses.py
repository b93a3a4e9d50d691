"""Pauses of partitions: an operator's orders, and the client's state.

An operator's order itself is stored, not the list of partitions assigned at that time. A partition
that is assigned later is therefore held back from its start. The orders are not persisted: a
restart of the process forgets them.

The client keeps a partition's pause while it is unassigned and after it comes back. A newly
assigned partition may therefore be paused. :meth:`Pauses.bring` is the only place that pauses and
resumes. The reasons are in :mod:`kafka_keyshared.core.backpressure.pause_reasons`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from confluent_kafka import KafkaException

from kafka_keyshared.client.port import Client
from kafka_keyshared.core.backpressure.pause_reasons import Holds, Reason
from kafka_keyshared.logs import Seldom, log_of
from kafka_keyshared.model import TopicPartition, some

log = log_of("kafka_keyshared.loop")

NAMED_MAX = 8


class Pauses:
    """The client's pause state and its difference from the holds."""

    def __init__(self, client: Client, holds: Holds, clock: Callable[[], float]) -> None:
        self._client = client
        self._holds = holds
        self._seldom = Seldom(log, clock)
        # A partition without an entry has an unknown state in the client and must be set.
        self._told: dict[TopicPartition, bool] = {}
        self._brought = -1

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that the client was asked to pause."""
        return {partition for partition, paused in self._told.items() if paused}

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Mark the client's state of these partitions as unknown: they were assigned (again)."""
        for partition in partitions:
            self._told.pop(partition, None)

    def behind(self) -> bool:
        """Return whether the holds have changed since the last :meth:`bring`."""
        return self._brought != self._holds.version

    def bring(self, assigned: Collection[TopicPartition]) -> None:
        """Pause and resume the assigned partitions where the client's state differs.

        The client refuses when the assignment has changed and the callback for it is still pending.
        Such partitions stay unknown and are sent again at the next call.
        """
        self._brought = self._holds.version
        self._told = {each: told for each, told in self._told.items() if each in assigned}
        paused = self._holds.paused(assigned)
        self._tell(paused, pause=True)
        self._tell([each for each in assigned if each not in paused], pause=False)

    def _tell(self, partitions: Iterable[TopicPartition], *, pause: bool) -> None:
        news = [each for each in partitions if self._told.get(each) is not pause]
        if not news:
            return
        try:
            (self._client.pause if pause else self._client.resume)(news)
        except KafkaException as error:
            what = "pause" if pause else "resume"
            self._seldom.warning(what, f"{what}: {error}")
            self.forget(news)
            return
        self._told.update(dict.fromkeys(news, pause))
        if log.isEnabledFor(logging.DEBUG):
            self._say(news)

    def _say(self, news: Iterable[TopicPartition]) -> None:
        """Log the partitions that are paused, with the reasons, and those that are resumed."""
        alike: dict[str, list[TopicPartition]] = {}
        for each in sorted(news):
            alike.setdefault("; ".join(self._holds.reasons(each)), []).append(each)
        for why, partitions in alike.items():
            names = some(partitions, NAMED_MAX)
            if self._told[partitions[0]]:
                log.debug("nothing is fetched from %s for now: %s", names, why)
            else:
                log.debug("fetching from %s", names)


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

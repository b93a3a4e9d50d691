"""Pauses and resumes of the client, to match the ledger of holds.

The client keeps a partition's pause while it is unassigned and after it comes back. A newly
assigned partition may therefore be paused. :meth:`Pauses.bring` is the only place that pauses and
resumes. The reasons are in :mod:`kafka_keyshared.core.backpressure.pause_reasons`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

from confluent_kafka import KafkaException

from kafka_keyshared.client.port import Client
from kafka_keyshared.core.backpressure.pause_reasons import Holds
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

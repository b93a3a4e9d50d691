"""Which partitions are not fetched from, why, and what the client has been told of it.

The client keeps a pause of a partition while it is not assigned, and when it comes back, so nothing
may be taken for unpaused because it is new. Everybody who wants a partition held back says so in
the loop, with a reason; :meth:`Holds.bring` is the only place that pauses and resumes.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping

from confluent_kafka import KafkaException

from kafka_keyshared.client.port import Client
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import TopicPartition

log = log_of("kafka_keyshared.loop")


class Hold(enum.StrEnum):
    """Why a partition is not fetched from."""

    WINDOW = "the window is full"
    SHARE = "it holds more than its share of the window, and others go without"
    PRESSURE = "what it has received holds it back"
    UNSTARTED = "where it starts is not known yet"
    STOPPING = "the instance stops"


class Holds:
    """The wanted pauses, each with its reasons, and the client's side of them."""

    def __init__(self) -> None:
        self.reasons: dict[TopicPartition, list[Hold]] = {}
        # No entry: what the client does with the partition is not known, so it has to be told.
        self._told: dict[TopicPartition, bool] = {}

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that the client was told to pause."""
        return {partition for partition, paused in self._told.items() if paused}

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Take what the client does with them for unknown: they have been assigned (again)."""
        for partition in partitions:
            self._told.pop(partition, None)

    def bring(
        self,
        client: Client,
        assigned: Collection[TopicPartition],
        wanted: Mapping[Hold, Collection[TopicPartition]],
    ) -> None:
        """Pause and resume the assigned partitions as wanted, telling the client what is new to it.

        What the client refuses (the assignment has changed under us; the callback that says so is
        on its way) stays unknown and is told again at the next call.
        """
        reasons: dict[TopicPartition, list[Hold]] = {}
        for why, partitions in wanted.items():
            for partition in partitions:
                if partition in assigned:
                    reasons.setdefault(partition, []).append(why)
        self.reasons = reasons
        self._told = {each: told for each, told in self._told.items() if each in assigned}
        self._tell(client, [each for each in assigned if each in reasons], pause=True)
        self._tell(client, [each for each in assigned if each not in reasons], pause=False)

    def _tell(self, client: Client, partitions: list[TopicPartition], *, pause: bool) -> None:
        news = [each for each in partitions if self._told.get(each) is not pause]
        if not news:
            return
        try:
            (client.pause if pause else client.resume)(news)
        except KafkaException as error:
            log.warning("%s: %s", "pause" if pause else "resume", error)
            self.forget(news)
        else:
            self._told.update(dict.fromkeys(news, pause))

"""Asks a cluster where the logs of topics begin and end, and what a group has committed in them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # not in its __all__
    AdminClient,
    OffsetSpec,
)

from kafka_keyshared.client.groupless import ASK_AGAIN_AFTER, NOT_YET, text_of
from kafka_keyshared.client.patterns import is_pattern, topics_meant, visible
from kafka_keyshared.config import connection_conf
from kafka_keyshared.errors import ConfigError, KeySharedError, TopicMissingError
from kafka_keyshared.model import TopicPartition

ANSWER_TIMEOUT = 8.0


class Log(NamedTuple):
    """A partition's log, from ``begin`` to before ``end``, and the group's committed position.

    ``committed`` is None without a group, and where the group has none.
    """

    partition: TopicPartition
    begin: int
    end: int
    committed: int | None = None

    @property
    def size(self) -> int:
        """How many offsets there are."""
        return self.end - self.begin

    @property
    def lag(self) -> int:
        """How many offsets the group has before it: all of them without a committed position."""
        start = self.begin if self.committed is None else max(self.begin, self.committed)
        return max(0, self.end - start)

    def stretch(self, newest: float, oldest: float) -> tuple[int, int]:
        """Return the offsets, from and before, between two parts of the log seen from its end."""
        return self.end - round(oldest * self.size), self.end - round(newest * self.size)


class Logs:
    """Questions to one cluster; ``consumer`` is never subscribed."""

    def __init__(self, consumer: Consumer, conf: Mapping[str, Any]) -> None:
        self._consumer = consumer
        self._admin = AdminClient(
            {**connection_conf(conf), "log_level": 2, "enable.metrics.push": False}
        )

    def look(self, topics: Iterable[str], *, with_group: bool) -> list[Log]:
        """Return every partition of the topics.

        Raises :class:`TopicMissingError` for a topic that is not there, :class:`ConfigError` for
        what this user may not see, :class:`KeySharedError` when the cluster does not tell.
        """
        partitions = self._partitions(list(dict.fromkeys(topics)))
        begins, ends = self._offsets(partitions, "earliest"), self.ends(partitions)
        committed = self._committed(partitions) if with_group else {}
        return [Log(each, begins[each], ends[each], committed.get(each)) for each in partitions]

    def ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where each log ends now."""
        return self._offsets(partitions, "latest")

    def _partitions(self, topics: list[str]) -> list[TopicPartition]:
        try:
            # All of them, to tell what a name that is not there may have been.
            there = self._consumer.list_topics(timeout=ANSWER_TIMEOUT).topics
        except KafkaException as error:
            why = f"the cluster does not list its topics: {text_of(error)}"
            raise KeySharedError(why) from error
        partitions = []
        for topic in self._meant(topics, there):
            if topic not in there:
                near = get_close_matches(topic, there, n=1)
                meant = f"did you mean {near[0]!r}? " if near else ""
                raise TopicMissingError(
                    f"topic {topic!r} does not exist, or this user may not see it; {meant}mend the "
                    f"name, or allow DESCRIBE and READ on topic {topic}"
                )
            partitions += [
                TopicPartition(topic, number) for number in sorted(there[topic].partitions)
            ]
        return partitions

    def _meant(self, topics: list[str], there: Iterable[str]) -> list[str]:
        """Return the topics by their names; a pattern means no topic of the cluster's own."""
        if not any(map(is_pattern, topics)):
            return topics
        found = topics_meant(topics, visible(there))
        if not found:
            raise TopicMissingError(
                f"no topic that this user may see fits {', '.join(topics)}; mend the pattern, or "
                "allow DESCRIBE and READ on the topics"
            )
        return found

    def _offsets(
        self, partitions: Sequence[TopicPartition], which: str
    ) -> dict[TopicPartition, int]:
        asked = {ClientPartition(*partition): partition for partition in partitions}
        spec = getattr(OffsetSpec, which)()
        futures = self._admin.list_offsets(
            dict.fromkeys(asked, spec), request_timeout=ANSWER_TIMEOUT
        )
        found = {}
        for each, future in futures.items():
            try:
                found[asked[each]] = future.result(ANSWER_TIMEOUT + 1).offset
            except (KafkaException, TimeoutError) as error:
                reason = error.args[0] if error.args else None
                if isinstance(reason, KafkaError):
                    cause = unreadable(reason, each.topic)
                    if cause is not None:
                        raise cause from error
                raise KeySharedError(
                    f"{each.topic}-{each.partition}: the cluster does not tell where it begins and "
                    f"ends: {text_of(error)}; see whether all its partitions have a leader"
                ) from error
        return found

    def _committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        give_up = time.monotonic() + ANSWER_TIMEOUT
        while True:
            try:
                asked = [ClientPartition(*partition) for partition in partitions]
                answers = self._consumer.committed(asked, timeout=ANSWER_TIMEOUT)
                failed = next((each.error for each in answers if each.error is not None), None)
            except KafkaException as error:
                failed = error.args[0]
            if failed is None:
                # The metadata beside it, which need not be text, is not read.
                return {
                    TopicPartition(each.topic, each.partition): each.offset
                    for each in answers
                    if each.offset >= 0
                }
            if failed.code() not in NOT_YET or time.monotonic() >= give_up:
                raise ConfigError(
                    f"the cluster does not tell what the group (-g) has committed: {failed.str()}; "
                    "allow READ on the group, or leave -g out: the lag is then the whole topic"
                )
            time.sleep(ASK_AGAIN_AFTER)


def unreadable(error: KafkaError, topic: str | None) -> ConfigError | None:
    """Return what to tell when a topic cannot be read for good; None when it may yet work."""
    code = error.code()
    if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return ConfigError(
            f"this user may not read topic {topic!r}; allow READ and DESCRIBE on topic {topic}, or "
            "give the credentials of a user who may with -X"
        )
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION):
        return TopicMissingError(f"topic {topic!r} is no longer there; mend the name")
    return None

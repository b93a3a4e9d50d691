"""Queries for log bounds of topics and committed positions of a group."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # not in its __all__
    AdminClient,
    OffsetSpec,
)

from kafka_keyshared.client.standalone import ASK_AGAIN_AFTER, NOT_YET, text_of
from kafka_keyshared.client.topics import partitions_of, unreadable
from kafka_keyshared.config import connection_conf
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.model import TopicPartition

ANSWER_TIMEOUT = 8.0

NO_LEADER_YET = (
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)
"""Answers while a partition gets a leader: of a new topic, or after a broker has gone."""


class PartitionLog(NamedTuple):
    """A partition's log, from ``begin`` to before ``end``, and the group's committed position.

    ``committed`` is None without a group, and when the group has no committed position.
    """

    partition: TopicPartition
    begin: int
    end: int
    committed: int | None = None

    @property
    def size(self) -> int:
        """The number of offsets in the log."""
        return self.end - self.begin

    @property
    def lag(self) -> int:
        """The number of uncommitted offsets: all of them without a committed position."""
        start = self.begin if self.committed is None else max(self.begin, self.committed)
        return max(0, self.end - start)

    def stretch(self, newest: float, oldest: float) -> tuple[int, int]:
        """Return the offsets, from and before, between two fractions of the log from its end."""
        return self.end - round(oldest * self.size), self.end - round(newest * self.size)


class LogQueries:
    """Queries to one cluster; ``consumer`` is never subscribed.

    ``told_at`` is the time of the last answer about log ends, by the given clock.
    """

    def __init__(
        self,
        consumer: Consumer,
        conf: Mapping[str, Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._consumer = consumer
        self._clock = clock
        self.told_at = clock()
        self._admin = AdminClient(
            {**connection_conf(conf), "log_level": 2, "enable.metrics.push": False}
        )

    def look(self, topics: Iterable[str], *, with_group: bool) -> list[PartitionLog]:
        """Return every partition of the topics.

        Raises :class:`TopicMissingError` for a missing topic. Raises :class:`ConfigError` if this
        user may not see a topic or group. Raises :class:`KeySharedError` when the cluster does not
        answer.
        """
        partitions = partitions_of(self._consumer, topics)
        begins, ends = self._offsets(partitions, "earliest"), self.ends(partitions)
        committed = self._committed(partitions) if with_group else {}
        return [
            PartitionLog(each, begins[each], ends[each], committed.get(each)) for each in partitions
        ]

    def ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the current end of each log."""
        found = self._offsets(partitions, "latest")
        self.told_at = self._clock()
        return found

    def _offsets(
        self, partitions: Sequence[TopicPartition], which: str
    ) -> dict[TopicPartition, int]:
        """Return one offset of each log; a leader that is being elected is waited for."""
        asked = {ClientPartition(*partition): partition for partition in partitions}
        spec = getattr(OffsetSpec, which)()
        found: dict[TopicPartition, int] = {}
        give_up = self._clock() + ANSWER_TIMEOUT
        while asked:
            futures = self._admin.list_offsets(
                dict.fromkeys(asked, spec), request_timeout=ANSWER_TIMEOUT
            )
            for each, future in futures.items():
                try:
                    offset = future.result(ANSWER_TIMEOUT + 1).offset
                except (KafkaException, TimeoutError) as error:
                    if not _may_have_a_leader_soon(error) or self._clock() >= give_up:
                        raise _unknown(each, error) from error
                else:
                    found[asked.pop(each)] = offset
            if asked:
                time.sleep(ASK_AGAIN_AFTER)
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
                # The commit metadata, which need not be text, is not read.
                return {
                    TopicPartition(each.topic, each.partition): each.offset
                    for each in answers
                    if each.offset >= 0
                }
            if failed.code() not in NOT_YET or time.monotonic() >= give_up:
                raise ConfigError(
                    f"the committed positions of the group (-g) are unknown: {failed.str()}; "
                    "allow READ on the group, or leave -g out: the lag is then the whole topic"
                )
            time.sleep(ASK_AGAIN_AFTER)


def _reason(error: Exception) -> KafkaError | None:
    """Return the client's own reason for a failed query; None without one."""
    reason = error.args[0] if error.args else None
    return reason if isinstance(reason, KafkaError) else None


def _may_have_a_leader_soon(error: Exception) -> bool:
    reason = _reason(error)
    return reason is not None and reason.code() in NO_LEADER_YET


def _unknown(partition: ClientPartition, error: Exception) -> KeySharedError:
    """Return the error for a partition whose log bounds were not answered."""
    reason = _reason(error)
    cause = None if reason is None else unreadable(reason, partition.topic)
    return cause or KeySharedError(
        f"{partition.topic}-{partition.partition}: the start and end of its log are unknown: "
        f"{text_of(error)}; check that all its partitions have a leader"
    )

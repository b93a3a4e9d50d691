"""Broker queries before a partition starts: committed positions and log bounds.

Each is one request for many partitions. A member may get hundreds of them at once, and a broker may
be far away. A partition without an answer does not cost the others theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.client.port import (
    Committed,
    CommittedOffset,
    LogBounds,
    RightRefusal,
    refusal_of,
)
from kafka_keyshared.logs import Seldom, log_of
from kafka_keyshared.model import TopicPartition

log = log_of("kafka_keyshared.kafka")


class ListTopics(Protocol):
    """``list_topics`` of a client: all topics with their partitions and leaders."""

    def __call__(self, *, timeout: float) -> Any:
        """Query a broker. Raises ``KafkaException`` without an answer in ``timeout`` seconds."""


def ask_committed(
    consumer: Consumer,
    partitions: Sequence[TopicPartition],
    timeout: float,
    refused: Callable[[RightRefusal], None],
) -> Committed:
    """Query committed positions and their metadata.

    Raises ``KafkaException`` when there is no answer in time. A partition for which the broker
    answers with an error is left out. So is one whose metadata, written by another client, keeps
    the client from returning the position. A start without the position would skip records.
    ``refused`` is called for each partition that this user may not DESCRIBE.
    """
    try:
        return _ask_committed(consumer, partitions, timeout, refused)
    except UnicodeDecodeError:
        found: Committed = {}
        for partition in partitions:
            try:
                found |= _ask_committed(consumer, [partition], timeout, refused)
            except UnicodeDecodeError:
                log.warning(
                    "%s: the commit metadata cannot be read, and keeps the client from saying the "
                    "position; set the group's offset of it anew (kafka-consumer-groups "
                    "--reset-offsets --to-current)",
                    partition,
                )
        return found


def _ask_committed(
    consumer: Consumer,
    partitions: Sequence[TopicPartition],
    timeout: float,
    refused: Callable[[RightRefusal], None],
) -> Committed:
    asked = [ClientPartition(*partition) for partition in partitions]
    found: Committed = {}
    for answer in consumer.committed(asked, timeout=timeout):
        partition = TopicPartition(answer.topic, answer.partition)
        if answer.error is not None:
            refusal = refusal_of(answer.error, partition)
            if refusal is not None:
                refused(refusal)
            else:
                log.warning("%s: no committed position: %s", partition, answer.error)
            continue
        position = answer.offset if answer.offset >= 0 else None
        metadata = _metadata_of(answer, partition)
        found[partition] = CommittedOffset(position, metadata, epoch_of(answer))
    return found


def _metadata_of(answer: ClientPartition, partition: TopicPartition) -> str | None:
    """Return the metadata of a committed position, None when it cannot be read.

    The binding reads past the end of metadata that another client wrote without a final NUL. It
    decodes the metadata only here. The position beside it is valid. Without it, the client would
    choose the start, and would follow the reset policy once retention has passed the position.
    """
    try:
        return answer.metadata
    except UnicodeDecodeError:
        log.warning(
            "%s: the commit metadata cannot be read; reading from the committed offset %d without "
            "a settled set",
            partition,
            answer.offset,
        )
        return None


def ask_bounds(
    consumer: Consumer,
    partitions: Sequence[TopicPartition],
    timeout: float,
    seldom: Seldom,
    list_topics: ListTopics,
) -> dict[TopicPartition, LogBounds]:
    """Query where logs start and end: two requests to each leader for all its partitions.

    Each request takes at most ``timeout`` seconds. A leader that does not answer fails the whole
    request. The partitions of each leader are then queried separately. Partitions without an answer
    are left out and logged ``seldom``, because the query is repeated every second.

    ``list_topics`` must be the consumer's own outside its callbacks. The client goes on asking the
    leaders that it knows, also if they are gone, and learns of new ones every five minutes or from
    a list of topics. Inside a callback ``list_topics`` must be another client's. ``list_topics``
    and ``cluster_id`` of confluent-kafka forget in which call a thread is. The next callback of
    the same poll then ends the process (``CallState_get: Assertion `cs != NULL' failed``).
    """
    try:
        return _ask_bounds(consumer, partitions, timeout) if partitions else {}
    except KafkaException as error:
        failure = error
    found: dict[TopicPartition, LogBounds] = {}
    groups = _by_leader(list_topics, partitions, timeout, seldom)
    if groups != [list(partitions)]:  # a single group would repeat the same request
        for group in groups:
            try:
                found |= _ask_bounds(consumer, group, timeout)
            except KafkaException as error:
                failure = error
    missing = sorted(set(partitions) - found.keys())
    if missing:
        names = ", ".join(map(str, missing[:8]))
        seldom.warning(
            names, f"the bounds of {len(missing)} logs are not known ({names}): {failure}"
        )
    return found


def _ask_bounds(
    consumer: Consumer, partitions: Sequence[TopicPartition], timeout: float
) -> dict[TopicPartition, LogBounds]:
    # A lookup by time accepts the two special offsets as times, and queries all leaders at once.
    starts, ends = (
        {
            TopicPartition(each.topic, each.partition): each
            for each in consumer.offsets_for_times(
                [ClientPartition(*partition, offset) for partition in partitions], timeout=timeout
            )
            if each.error is None and each.offset >= 0
        }
        for offset in (OFFSET_BEGINNING, OFFSET_END)
    )
    return {
        partition: LogBounds(starts[partition].offset, end.offset, epoch_of(end))
        for partition, end in ends.items()
        if partition in starts
    }


def _by_leader(
    list_topics: ListTopics, partitions: Sequence[TopicPartition], timeout: float, seldom: Seldom
) -> list[list[TopicPartition]]:
    """Return the partitions that have a leader, grouped by leader."""
    try:
        topics = list_topics(timeout=timeout).topics
    except KafkaException as error:
        seldom.warning("leaders", f"the leaders of the partitions are not known: {error}")
        return []
    groups: dict[int, list[TopicPartition]] = {}
    for partition in partitions:
        topic = topics.get(partition.topic)
        told = topic.partitions.get(partition.partition) if topic is not None else None
        if told is not None and told.leader >= 0:
            groups.setdefault(told.leader, []).append(partition)
    return list(groups.values())


def epoch_of(found: ClientPartition) -> int:
    """Return the leader epoch that came with an offset, -1 without one."""
    return -1 if found.leader_epoch is None else found.leader_epoch

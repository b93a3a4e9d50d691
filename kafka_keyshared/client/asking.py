"""What is asked of the brokers before a partition can start: committed positions, bounds of logs.

Each is one question for many partitions, because a member may get hundreds of them at once and a
broker may be far away; and one that is not answered costs nobody else the answer.
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
    Refusal,
    refusal_of,
)
from kafka_keyshared.logs import Seldom, log_of
from kafka_keyshared.model import TopicPartition

log = log_of("kafka_keyshared.kafka")


class ListTopics(Protocol):
    """``list_topics`` of a client: all topics with their partitions and leaders."""

    def __call__(self, *, timeout: float) -> Any:
        """Ask a broker; raises ``KafkaException`` without an answer in ``timeout`` seconds."""


def ask_committed(
    consumer: Consumer,
    partitions: Sequence[TopicPartition],
    timeout: float,
    refused: Callable[[Refusal], None],
) -> Committed:
    """Ask for committed positions and their metadata.

    Raises ``KafkaException`` when there is no answer in time. A partition for which the broker
    answers with an error is left out. So is one whose metadata, which another client wrote, keeps
    the client from saying its position: to start it without one would be to leave records out.
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
    refused: Callable[[Refusal], None],
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

    The binding reads past the end of what another client wrote without a final NUL, and decodes it
    only here. The position beside it is good: without it, a start would be left to the client,
    which goes where the reset policy says once retention has passed the position.
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
    """Ask where logs start and end: two requests to each leader, however many partitions it has.

    Each question takes at most ``timeout`` seconds. A leader that does not answer fails a question
    as a whole, so the partitions of each leader are then asked for by themselves. Those that nobody
    answered for are left out, and told ``seldom``: they are asked for again every second.

    ``list_topics`` must be another client's inside a callback of the consumer. ``list_topics`` and
    ``cluster_id`` of confluent-kafka forget in which call a thread is. The next callback of the
    same poll then ends the process (``CallState_get: Assertion `cs != NULL' failed``).
    """
    try:
        return _ask_bounds(consumer, partitions, timeout) if partitions else {}
    except KafkaException as error:
        failure = error
    found: dict[TopicPartition, LogBounds] = {}
    groups = _by_leader(list_topics, partitions, timeout, seldom)
    if groups != [list(partitions)]:  # else it would be the same question again
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
    # A look-up by time takes the two special offsets for a time, and asks all leaders at once.
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
    """Return the partitions that have a leader, those of one leader together."""
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
    """Return the leader epoch that came with an offset, -1 when none did."""
    return -1 if found.leader_epoch is None else found.leader_epoch

"""A reader of topics' newest records, for the doctor's key check."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, Message
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.client.standalone import READ_ONLY, outsider
from kafka_keyshared.model import TopicPartition

RECORDS = 50
"""Number of the newest records read from a partition."""

PARTITIONS = 4
"""Number of partitions read from a topic, those with most records."""

SECONDS = 4.0
"""Time limit in seconds for the reading, which ends earlier when all records have arrived."""

_MODEST: Mapping[str, Any] = {
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "queued.max.messages.kbytes": 2_048,
    "fetch.message.max.bytes": 131_072,
    "fetch.wait.max.ms": 50,
    "fetch.min.bytes": 1,
}
_WAIT = 0.1


def newest(bounds: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
    """Return the start offsets, given the first offset and the end of each log."""
    largest = sorted(bounds.items(), key=lambda each: each[1][0] - each[1][1])
    found: dict[TopicPartition, int] = {}
    for partition, (first, end) in largest:
        of_topic = sum(each.topic == partition.topic for each in found)
        if first < end and of_topic < PARTITIONS:
            found[partition] = max(first, end - RECORDS)
    return found


def sample(
    conf: Mapping[str, Any],
    starts: Mapping[TopicPartition, int],
    seconds: float = SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> list[Message]:
    """Return the records from these offsets on, as far as they arrive in time.

    Joins no group and commits nothing. Raises :class:`~kafka_keyshared.errors.ConfigError` when the
    client refuses a setting.
    """
    own = {**conf, **_MODEST, **READ_ONLY}
    own.pop("group.instance.id", None)
    consumer = outsider(own, [])
    found: list[Message] = []
    try:
        consumer.assign([ClientPartition(*each, at) for each, at in starts.items()])
        give_up, left = clock() + seconds, set(starts)
        while left and clock() < give_up:
            for message in consumer.consume(500, _WAIT):
                error: KafkaError | None = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(
                        TopicPartition(str(message.topic()), int(message.partition() or 0))
                    )
    finally:
        consumer.close()
    return found


def by_topic(records: Sequence[Message]) -> dict[str, list[Message]]:
    """Return the records of each topic."""
    found: dict[str, list[Message]] = {}
    for record in records:
        found.setdefault(str(record.topic()), []).append(record)
    return found

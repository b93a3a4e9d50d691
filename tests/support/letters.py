"""Dead letters for tests: what the core asks to be written, and what is read back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, Message, Producer
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.core.contract.commands import Publish
from kafka_keyshared.core.contract.outcomes import Disposition, Failure
from kafka_keyshared.core.records.lane_identity import lane_of
from kafka_keyshared.dlq.letter import Letter, LetterFailure, LetterForm, LetterPlace, LetterSource
from kafka_keyshared.dlq.replay_plan import Order, ReplayPlan, digest_of, mark_of
from kafka_keyshared.testing.clusters.cluster import Cluster

# As version 1 wrote it: whatever comes later has to read it.
V1_LETTER = bytes.fromhex(
    "c30192ca56a647d525c10202026b020276040268020231026800000c6f72646572730622f6a1abfef9620e62696c"
    "6c696e670a1456616c75654572726f721c6e6f207375636820666c6967687416202046696c65202e2e2e0ad00fa0"
    "1f00"
)


def a_publish(headers: list[tuple[str, Any]] | None, message: str = "no such flight") -> Publish:
    """The command to write the dead letter of a record with these headers."""
    source: Any = Message(
        topic="orders",
        partition=3,
        offset=17,
        key=b"k",
        value=b"v",
        headers=headers,
        timestamp=(1, 1_700_000_000_123),
    )
    first = Failure(Disposition.ERROR, "KeyError", "first", "", 1_000)
    last = Failure(Disposition.ERROR, "ValueError", message, "  File ...\n", 2_000)
    return Publish("default", lane_of(source), source, 5, first, last)


def a_letter(
    at: tuple[int, int],
    source: tuple[str, int, int] | None,
    key: bytes | None = b"k",
    *,
    replays: int = 0,
    value: bytes | None = b"v",
    timestamp: int | None = 1_000,
    **more: Any,
) -> Letter:
    """A letter of the header form, or a foreign one without a source."""
    told = source and LetterFailure(
        LetterSource(*source), timestamp=timestamp, replays=replays, **more
    )
    kind = LetterForm.HEADERS if told else LetterForm.FOREIGN
    return Letter(
        LetterPlace(*at), 5, kind, key, value, [], told or None, "" if told else "foreign"
    )


def planned(
    letters: list[Letter],
    *,
    max_replays: int = 3,
    order: Order = "key",
    already: frozenset[LetterPlace] = frozenset(),
) -> ReplayPlan:
    """A plan that has seen all of these letters."""
    plan = ReplayPlan(max_replays, order, 10_000)
    done = {mark_of(letter, digest_of(letter)) for letter in letters if letter.at in already}
    for letter in letters:
        plan.add(letter, done)
    plan.close()
    return plan


def source_headers(topic: str, partition: int, offset: int) -> list[tuple[str, bytes]]:
    """What a letter of the header form must have."""
    return [
        ("keyshared.source.topic", topic.encode()),
        ("keyshared.source.partition", b"%d" % partition),
        ("keyshared.source.offset", b"%d" % offset),
    ]


def write_letters(
    cluster: Cluster,
    topic: str,
    sources: list[tuple[int, int]],
    keys: int,
    *,
    text: str = "",
    partitions: Sequence[int] = (0, 1),
) -> None:
    """Write letters of records of ``topic`` into ``topic.dlq``, in just this order.

    The value says which record it is, and ``text``; the key follows from the offset.
    """
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for number, (partition, offset) in enumerate(sources):
        producer.produce(
            f"{topic}.dlq",
            b"%d:%d" % (partition, offset) + text.encode(),
            b"key-%d" % (offset % keys),
            partitions[number % len(partitions)],
            headers=[*source_headers(topic, partition, offset), ("own", b"%d" % offset)],
        )
    assert producer.flush(60) == 0


def ends(cluster: Cluster, topic: str) -> int:
    """How many records a topic without gaps has."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused"})
    try:
        partitions = consumer.list_topics(timeout=30).topics[topic].partitions
        bounds = [
            consumer.get_watermark_offsets(ClientPartition(topic, number), 30)
            for number in partitions
        ]
        return sum(bound[1] for bound in bounds if bound)
    finally:
        consumer.close()

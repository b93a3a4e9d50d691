"""What the broker itself wrote down: every commit it stored for a group, in its own order.

A ledger knows what a member sent and which answers it heard. Whether a commit of a member that was
thought dead has landed after all, only the coordinator's own log can say.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Set
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.model import TopicPartition
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.live_cluster import group_name

OFFSETS_TOPIC = "__consumer_offsets"


class Stored(NamedTuple):
    """A commit of one partition as the coordinator stored it."""

    partition: TopicPartition
    position: int
    metadata: str = ""


def stored_commits(cluster: Cluster, group: str) -> list[Stored]:
    """Return every commit stored for the group; those of one partition in the broker's order."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group_name()})
    try:
        numbers = consumer.list_topics(OFFSETS_TOPIC, timeout=10).topics[OFFSETS_TOPIC].partitions
        ends: dict[int, int] = {}
        for number in numbers:
            bounds = consumer.get_watermark_offsets(
                ClientPartition(OFFSETS_TOPIC, number), timeout=10
            )
            assert bounds is not None
            ends[number] = bounds[1]
        left = {number for number, end in ends.items() if end}
        consumer.assign([ClientPartition(OFFSETS_TOPIC, each, OFFSET_BEGINNING) for each in left])
        found: list[Stored] = []
        silent = 0
        while left and silent < 100:
            messages = consumer.consume(500, 0.1)
            silent = 0 if messages else silent + 1
            for message in messages:
                key, value, number = message.key(), message.value(), message.partition()
                stored = _decode(key, value, group) if key and value else None
                if stored is not None:
                    found.append(stored)
                offset = message.offset()
                assert offset is not None
                assert number is not None
                if offset + 1 >= ends[number]:
                    left.discard(number)
        assert not left, f"{OFFSETS_TOPIC}: nothing more came of partitions {left}"
        return found
    finally:
        consumer.close()


def falls(
    commits: list[Stored], given_up: Set[tuple[TopicPartition, int]] = frozenset()
) -> list[str]:
    """Return in words each commit that was stored after one of a higher position.

    One that its client has given up on, as a coordinator stood still, may be stored late, if the
    higher one is stored again after it.
    """
    by_partition: dict[TopicPartition, list[int]] = {}
    for commit in commits:
        by_partition.setdefault(commit.partition, []).append(commit.position)
    return [
        f"{partition}: {after} was stored after {before}"
        for partition, positions in by_partition.items()
        for at, (before, after) in enumerate(itertools.pairwise(positions))
        if after < before
        and not ((partition, after) in given_up and max(positions[at + 1 :]) >= before)
    ]


def _decode(key: bytes, value: bytes, group: str) -> Stored | None:
    """Decode what Kafka's ``OffsetCommitKey`` and ``OffsetCommitValue`` describe."""
    # Keys of version 0 and 1 are offsets; the rest is membership.
    if struct.unpack_from(">h", key)[0] > 1:
        return None
    of_group, at = _text(key, 2)
    topic, at = _text(key, at)
    (number,) = struct.unpack_from(">i", key, at)
    if of_group != group:
        return None
    version, position, _leader_epoch = struct.unpack_from(">hqi", value)
    assert version == 4, f"a commit is stored in layout {version}; this reads what Kafka 4.1 writes"
    # The binding ends what it stores with a NUL.
    metadata = _compact_text(value, 14).removesuffix("\0")
    return Stored(TopicPartition(topic, number), position, metadata)


def _text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, at)
    return data[at + 2 : at + 2 + length].decode(), at + 2 + length


def _compact_text(data: bytes, at: int) -> str:
    length, shift = 0, 0
    while True:
        byte, at = data[at], at + 1
        length |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return data[at : at + length - 1].decode()

"""Lane identity: which records share one order.

A lane is the queue of one key. Records, slices, and commands carry its identity. Its history is
kept elsewhere (:mod:`kafka_keyshared.core.lanes.closed`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import repeat
from typing import Literal, TypeAlias

from kafka_keyshared.core.records.pristine import column
from kafka_keyshared.hashing import LANE_KEY_BYTES, lane_hash
from kafka_keyshared.model import Record, TopicPartition

OrderScope: TypeAlias = Literal["topic", "partition", "subscription"]
Lane: TypeAlias = tuple[str, int, bytes, int]
"""(topic, partition, key identity, offset); the parts that do not matter are "", -1, b"" and -1."""

# Longer than any unhashed key, so that no such key can be mistaken for a hashed one.
_HASHED = b"\x00hash:".ljust(LANE_KEY_BYTES, b"\x00")
_NULL = b"\x00null".ljust(LANE_KEY_BYTES + 1, b"\x00")


class NullKey(bytes):
    """The key of the one lane of all null keys: it has the empty key's slot and not its lane."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "null"


NULL_KEY = NullKey()


def lane_of(record: Record, scope: OrderScope = "topic") -> Lane:
    """Return the identity of the lane of the record's own key."""
    return lane_by(record, record.key(), scope)


class OwnLanes(partial[Lane]):
    """:func:`lane_of` in one scope, and for many records at once."""

    def __new__(cls, scope: OrderScope) -> OwnLanes:
        """Return a callable that returns the lane of a record."""
        return super().__new__(cls, lane_of, scope=scope)

    def of_all(self, records: Sequence[Record]) -> list[Lane]:
        """Return the lane of each record, as :func:`lane_of` does, mostly at C speed."""
        keys = column("key", records)
        try:
            plain = max(map(len, keys)) <= LANE_KEY_BYTES
        except TypeError:  # one has no key
            plain = False
        if not plain or self.keywords["scope"] != "topic":
            return list(map(self, records))
        return list(zip(column("topic", records), repeat(-1), keys, repeat(-1), strict=False))


def lane_by(record: Record, key: bytes | None, scope: OrderScope) -> Lane:
    """Return the identity of the record's lane, given its key.

    None gives the record a lane of its own, named by topic, partition and offset. The slot is never
    part of the identity: colliding keys share a worker, never a lane.
    """
    if key is None:
        return (record.topic(), record.partition(), b"", record.offset())
    identity = _identity(key)
    if scope == "topic":
        return (record.topic(), -1, identity, -1)
    if scope == "partition":
        return (record.topic(), record.partition(), identity, -1)
    return ("", -1, identity, -1)


def _identity(key: bytes) -> bytes:
    if type(key) is NullKey:
        return _NULL
    return key if len(key) <= LANE_KEY_BYTES else _HASHED + lane_hash(key)


def lane_named(partition: TopicPartition, key: bytes, scope: OrderScope) -> Lane:
    """Return the identity of the lane of a key's records in a partition."""
    identity = _identity(key)
    if scope == "topic":
        return (partition.topic, -1, identity, -1)
    if scope == "partition":
        return (partition.topic, partition.partition, identity, -1)
    return ("", -1, identity, -1)


def is_keyless(lane: Lane) -> bool:
    """Return whether the lane is that of a single record without a key."""
    return lane[3] >= 0

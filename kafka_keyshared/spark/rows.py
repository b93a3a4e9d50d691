"""Conversion of Spark rows to the client's message objects for handlers.

A message is made without a client, and nothing here opens a connection. Spark's Kafka source does
not provide the leader epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from confluent_kafka import Message

from kafka_keyshared.model import Record

COLUMNS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
)
"""The columns of a record: ``timestamp`` in milliseconds, its type as the client numbers them."""

KEY_COLUMNS = ("made_key", "unreadable")
"""The columns of a derived key: its bytes, and the reason why it is unreadable."""

SPARK_COLUMNS: Mapping[str, str] = {
    "topic": "topic",
    "partition": "partition",
    "offset": "offset",
    "timestamp": "unix_millis(timestamp)",
    # Java counts the types from -1 (none), the client from 0.
    "timestamp_type": "timestampType + 1",
    "key": "key",
    "value": "value",
    "headers": "headers",
}
"""The expression for each column on the output of Spark's Kafka source."""

Headers: TypeAlias = "Sequence[Mapping[str, Any]] | None"


def records_of(columns: Sequence[Sequence[Any]]) -> list[Record]:
    """Return the records of a batch, given by :data:`COLUMNS`."""
    return [
        Message(  # type: ignore[misc] # of a topic, so that nothing of its place is None
            topic=topic,
            partition=partition,
            offset=offset,
            key=key,
            value=value,
            # None or a sequence: a list, or a numpy array, which has no truth value.
            headers=None if headers is None else [(at["key"], at["value"]) for at in headers],
            timestamp=(kind, timestamp),
        )
        for topic, partition, offset, timestamp, kind, key, value, headers in zip(
            *columns, strict=True
        )
    ]

"""The header form of a dead letter: the record unchanged, and where it came from and why.

Key, value and the record's own headers (in order, duplicates and nulls included) stay as they are;
``keyshared.*`` headers are added behind them. Texts are UTF-8, numbers decimal, times milliseconds
since 1970.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from kafka_keyshared.core.events import Publish

Headers: TypeAlias = list[tuple[str, str | bytes | None]]

PREFIX = "keyshared."
SOURCE_TOPIC = PREFIX + "source.topic"
SOURCE_PARTITION = PREFIX + "source.partition"
SOURCE_OFFSET = PREFIX + "source.offset"
SOURCE_TIMESTAMP = PREFIX + "source.timestamp"
SOURCE_GROUP = PREFIX + "source.group"
ATTEMPTS = PREFIX + "attempts"
ERROR_TYPE = PREFIX + "error.type"
ERROR_MESSAGE = PREFIX + "error.message"
ERROR_STACK = PREFIX + "error.stack"
FIRST_FAILURE = PREFIX + "first.failure"
LAST_FAILURE = PREFIX + "last.failure"
REPLAYS = PREFIX + "replays"


def headers_of(publish: Publish, group: str) -> Headers:
    """Return the headers of the record's dead letter.

    A record that is itself a replayed dead letter keeps its replay count; the other ``keyshared.*``
    headers of its earlier life are replaced.
    """
    record = publish.record
    own: Headers = [
        (name, _as_bytes(value))
        for name, value in (record.headers() or [])
        if name != REPLAYS and not name.startswith(PREFIX)
    ]
    replays = next(
        (_as_bytes(value) for name, value in (record.headers() or []) if name == REPLAYS), b"0"
    )
    timestamp = record.timestamp()[1]
    told = (
        (SOURCE_TOPIC, record.topic()),
        (SOURCE_PARTITION, record.partition()),
        (SOURCE_OFFSET, record.offset()),
        (SOURCE_TIMESTAMP, timestamp),
        (SOURCE_GROUP, group),
        (ATTEMPTS, publish.attempts),
        (ERROR_TYPE, publish.last.error_type),
        (ERROR_MESSAGE, publish.last.message),
        (ERROR_STACK, publish.last.stack),
        (FIRST_FAILURE, publish.first.at_ms),
        (LAST_FAILURE, publish.last.at_ms),
    )
    added: Headers = [(name, str(value).encode("utf-8", "replace")) for name, value in told]
    return [*own, *added, (REPLAYS, replays)]


def source_of(headers: list[tuple[str, Any]] | None) -> tuple[str, int, int] | None:
    """Return topic, partition and offset that a dead letter came from, None if it does not say.

    The last header of a name counts, so that a producer's look-alike further up changes nothing.
    """
    found = dict(headers or [])
    try:
        return (
            found[SOURCE_TOPIC].decode("utf-8"),
            int(found[SOURCE_PARTITION]),
            int(found[SOURCE_OFFSET]),
        )
    except (KeyError, ValueError, AttributeError, TypeError):
        return None


def _as_bytes(value: Any) -> bytes | None:
    return value.encode("utf-8") if isinstance(value, str) else value

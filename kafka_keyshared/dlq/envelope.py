"""The header form of a dead letter: the record plus headers.

(The other form is :mod:`.avro`.)

Key, value and the record's own headers (in order, duplicates and nulls included) stay as they are.
The ``keyshared.*`` headers behind them give source and failure. Texts are UTF-8, numbers decimal,
times milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from kafka_keyshared.core.contract.commands import Publish
from kafka_keyshared.headers import read_headers

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
TRACEPARENT = PREFIX + "traceparent"
"""The span of the last attempt. The record's own ``traceparent`` stays that of its producer."""
CONTENT = PREFIX + "content"
"""The header that names the form of a dead letter that is not in the header form."""
CONTENT_AVRO = b"avro"

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


def own_headers(headers: Iterable[tuple[str, Any]]) -> Headers:
    """Return a record's own headers: all but ``keyshared.*``."""
    return [(name, _as_bytes(value)) for name, value in headers if not name.startswith(PREFIX)]


def replays_of(headers: Iterable[tuple[str, Any]]) -> int:
    """Return how often a record was replayed; 0 when the header is missing or no number.

    The last header of the name counts.
    """
    try:
        return min(max(0, int(dict(headers).get(REPLAYS, b"0"))), INT_MAX)
    except (ValueError, TypeError):
        return 0


def headers_of(publish: Publish, group: str) -> Headers:
    """Return the headers of the record's dead letter.

    A record that is itself a replayed dead letter keeps its replay count. Its other ``keyshared.*``
    headers are replaced.
    """
    record = publish.record
    headers = read_headers(record)
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
    replays = str(replays_of(headers)).encode()
    return [*own_headers(headers), *added, (REPLAYS, replays), *span_headers(publish)]


def span_headers(publish: Publish) -> Headers:
    """Return the header with the span of the last attempt, if there was a span."""
    trace = publish.last.trace
    return [(TRACEPARENT, trace.encode("ascii", "replace"))] if trace else []


def pack(publish: Publish, group: str) -> tuple[Any, Headers]:
    """Return value and headers of the dead letter of a record."""
    return publish.record.value(), headers_of(publish, group)


def source_of(headers: list[tuple[str, Any]] | None) -> tuple[str, int, int] | None:
    """Return topic, partition and offset of a dead letter's source record, or None without them.

    The last header of a name counts, so that a header of the same name from the producer has no
    effect.
    """
    found = dict(headers or [])
    try:
        source = (
            found[SOURCE_TOPIC].decode("utf-8"),
            int(found[SOURCE_PARTITION]),
            int(found[SOURCE_OFFSET]),
        )
    except (KeyError, ValueError, AttributeError, TypeError):
        return None
    return source if is_place(*source) else None


def is_place(topic: str, partition: int, offset: int) -> bool:
    """Return whether topic, partition and offset are valid for a record."""
    return bool(topic) and 0 <= partition <= INT_MAX and 0 <= offset <= LONG_MAX


def _as_bytes(value: Any) -> bytes | None:
    return value.encode("utf-8") if isinstance(value, str) else value

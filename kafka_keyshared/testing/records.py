"""Records for tests: the client's own message objects, made without a broker."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

TOPIC = "test"

Content: TypeAlias = str | bytes | None
"""A key or a value; a text stands for its UTF-8 bytes, None for a null."""

Headers: TypeAlias = Mapping[str, Content] | Iterable[tuple[str, Content]]

if TYPE_CHECKING:

    class ReceivedRecord(Message):
        """A message from a topic, so that topic, partition and offset are never None.

        This class is for type checkers only. It is accepted where a handler takes a ``Record`` and
        where it takes a ``confluent_kafka.Message``. At run time it is ``Message`` itself.
        """

        def topic(self) -> str: ...  # noqa: D102 - as Message says
        def partition(self) -> int: ...  # noqa: D102
        def offset(self) -> int: ...  # noqa: D102
        def headers(self) -> list[tuple[str, Any]] | None: ...  # noqa: D102
else:
    ReceivedRecord = Message


def as_bytes(content: Content) -> bytes | None:
    """Return a key, a value or a header's value as a broker stores it."""
    return content.encode("utf-8") if isinstance(content, str) else content


def as_headers(headers: Headers | None) -> list[tuple[str, str | bytes | None]] | None:
    """Return headers as the client returns them: in order, None when there are none."""
    if headers is None:
        return None
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(name, as_bytes(value)) for name, value in pairs] or None


def record(
    key: Content = None,
    value: Content = None,
    *,
    headers: Headers | None = None,
    topic: str = TOPIC,
    partition: int = 0,
    offset: int = 0,
    timestamp: int | None = None,
    leader_epoch: int | None = 0,
) -> ReceivedRecord:
    """Return a ``confluent_kafka.Message`` as a handler receives it.

    Texts become bytes, because a broker returns bytes. ``timestamp`` is in milliseconds since 1970;
    None means now.

    >>> record("customer-1", b"paid", headers={"trace": "7"}).headers()
    [('trace', b'7')]
    """
    return Message(  # type: ignore[return-value] # the same class at run time
        topic=topic,
        partition=partition,
        offset=offset,
        key=as_bytes(key),
        value=as_bytes(value),
        headers=as_headers(headers),
        timestamp=(
            TIMESTAMP_CREATE_TIME,
            time.time_ns() // 1_000_000 if timestamp is None else timestamp,
        ),
        leader_epoch=leader_epoch,
    )


def moved(message: ReceivedRecord, offset: int) -> ReceivedRecord:
    """Return the message at another offset."""
    return record(
        message.key(),
        message.value(),
        headers=message.headers(),
        topic=message.topic(),
        partition=message.partition(),
        offset=offset,
        timestamp=message.timestamp()[1],
        leader_epoch=message.leader_epoch(),
    )

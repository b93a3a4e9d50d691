"""Kinds of failed attempts, and how often each has occurred.

A *kind* is the type of an error and the place in the user's program that it came from. The kinds
and keys that failed last are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from kafka_keyshared.core.contract.outcomes import Failure
from kafka_keyshared.core.keys.key_text import key_text
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.status import ErrorGroup

KINDS_MAX = 50
"""Kinds that are counted separately; a program may create error types as it runs."""

KEYS_MAX = 10
"""Keys that are counted separately for one kind."""

MESSAGE_CHARS = 200
"""Characters of an error message that are shown."""

Kind: TypeAlias = tuple[str, str]

OTHERS: Kind = ("others", "")
"""The kind of all failures beyond :data:`KINDS_MAX` kinds."""


def kind_of(failure: Failure) -> Kind:
    """Return the type of the error, and where it came from."""
    return failure.error_type, failure.where


def named_kind(kind: Kind) -> str:
    """Return the kind as text."""
    error_type, where = kind
    return f"{error_type} at {where}" if where else error_type


def one_line(text: str) -> str:
    """Return the beginning of a text as one line that a terminal only prints."""
    return printable(" ".join(text[:MESSAGE_CHARS].split()))


def printable(text: str) -> str:
    """Return the text with a replacement for each character that a terminal does not print."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else "\ufffd" for each in text)


def in_short(failure: Failure) -> str:
    """Return the kind and the message of a failure, in one line."""
    return f"{named_kind(kind_of(failure))}: {one_line(failure.message)}"


@dataclass(slots=True)
class _SeenError:
    first_at: float
    count: int = 0
    last: tuple[Failure, TopicPartition, int] | None = None
    keys: OrderedDict[bytes | None, int] = field(default_factory=OrderedDict)


class ErrorsSeen:
    """The kinds of one subscription, the latest at the end."""

    def __init__(self) -> None:
        self._kinds: OrderedDict[Kind, _SeenError] = OrderedDict()

    def note(
        self, failure: Failure, partition: TopicPartition, offset: int, key: bytes | None
    ) -> None:
        """Note a failed attempt of the record at this offset."""
        kind = kind_of(failure)
        seen = self._kinds.get(kind)
        if seen is None:
            seen = self._kinds[kind] = _SeenError(failure.at_ms / 1000)
            if len(self._kinds) > KINDS_MAX:
                self._kinds.popitem(last=False)
        self._kinds.move_to_end(kind)
        seen.count += 1
        seen.last = failure, partition, offset
        seen.keys[key] = seen.keys.get(key, 0) + 1
        seen.keys.move_to_end(key)
        if len(seen.keys) > KEYS_MAX:
            seen.keys.popitem(last=False)

    def shown(self, slot_of: Callable[[bytes | None], int | None]) -> tuple[ErrorGroup, ...]:
        """Return every kind, the one that failed last first."""
        found: list[ErrorGroup] = []
        for (error, where), seen in reversed(self._kinds.items()):
            if seen.last is None:
                continue
            failure, partition, offset = seen.last
            keys = [*reversed(seen.keys.items())]
            found.append(
                ErrorGroup(
                    error=error,
                    where=where,
                    count=seen.count,
                    first_at=seen.first_at,
                    last_at=failure.at_ms / 1000,
                    message=one_line(failure.message),
                    stack=failure.stack,
                    topic=partition.topic,
                    partition=partition.partition,
                    offset=offset,
                    keys=tuple((key_text(key), count) for key, count in keys),
                    slots=tuple(slot_of(key) for key, _ in keys),
                )
            )
        return tuple(found)

"""The records of a dead-letter topic as values, including foreign ones.

No record in the topic makes :func:`read_letter` raise, regardless of its writer. A record that is
no readable dead letter is returned with the reason.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from kafka_keyshared.dlq import avro, envelope
from kafka_keyshared.dlq.envelope import Headers, is_place, own_headers, replays_of, source_of
from kafka_keyshared.headers import HeadersError, read_headers


class LetterForm(enum.StrEnum):
    """The form of a dead letter; the last two are not usable dead letters."""

    HEADERS = "headers"
    AVRO = "avro"
    FOREIGN = "foreign"
    UNREADABLE = "unreadable"


class LetterSource(NamedTuple):
    """The record that a dead letter was made from."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


class LetterPlace(NamedTuple):
    """The position of a dead letter in the dead-letter topic."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}:{self.offset}"


@dataclass(frozen=True, slots=True)
class LetterFailure:
    """The failure that a dead letter describes; None for missing parts.

    Times are in milliseconds since 1970. ``trace`` is the ``traceparent`` of the last attempt's
    span, if there was a span.
    """

    source: LetterSource
    timestamp: int | None = None
    group: str | None = None
    attempts: int | None = None
    error_type: str = ""
    error_message: str = ""
    error_stack: str = ""
    first_failure: int | None = None
    last_failure: int | None = None
    replays: int = 0
    trace: str = ""

    @property
    def error(self) -> str:
        """The error type and message as one text."""
        return ": ".join(part for part in (self.error_type, self.error_message) if part)


@dataclass(frozen=True, slots=True)
class Letter:
    """A record of the dead-letter topic.

    ``key``, ``value`` and ``headers`` are those of the failed record. When ``told`` is None, this
    is no readable dead letter. They are then those of the message, and ``problem`` gives the
    reason. ``written`` is the timestamp in the dead-letter topic, in milliseconds since 1970.
    """

    at: LetterPlace
    written: int | None
    kind: LetterForm
    key: bytes | None
    value: bytes | None
    headers: Headers = field(default_factory=list)
    told: LetterFailure | None = None
    problem: str = ""


def read_letter(message: Any) -> Letter:
    """Read a message of a dead-letter topic, which is the client's own object."""
    at = LetterPlace(message.partition(), message.offset())
    kind_of_time, time = message.timestamp()
    written = time if kind_of_time and time >= 0 else None
    key, value = message.key(), message.value()
    try:
        headers = read_headers(message)
    except HeadersError as error:
        return Letter(at, written, LetterForm.UNREADABLE, key, value, problem=str(error))
    if (source := source_of(headers)) is not None:
        told = _told_by_headers(LetterSource(*source), headers)
        return Letter(at, written, LetterForm.HEADERS, key, value, own_headers(headers), told)
    if dict(headers).get(envelope.CONTENT) != envelope.CONTENT_AVRO and not avro.is_known(value):
        problem = "it has no headers of a dead letter of this package"
        return Letter(at, written, LetterForm.FOREIGN, key, value, list(headers), problem=problem)
    try:
        found = avro.decode(value)
        told = replace(_told_by_envelope(found), trace=_trace(headers))
    except avro.UnreadableError as error:
        return Letter(
            at, written, LetterForm.UNREADABLE, key, value, list(headers), problem=str(error)
        )
    own: Headers = [(each["name"], each["value"]) for each in found["headers"]]
    return Letter(at, written, LetterForm.AVRO, found["key"], found["value"], own, told)


def _told_by_headers(source: LetterSource, headers: list[tuple[str, Any]]) -> LetterFailure:
    found = dict(headers)

    def text(name: str) -> str:
        value = found.get(name)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""

    def number(name: str) -> int | None:
        try:
            return int(text(name))
        except ValueError:
            return None

    return LetterFailure(
        source,
        timestamp=_time(number(envelope.SOURCE_TIMESTAMP)),
        group=text(envelope.SOURCE_GROUP) or None,
        attempts=number(envelope.ATTEMPTS),
        error_type=text(envelope.ERROR_TYPE),
        error_message=text(envelope.ERROR_MESSAGE),
        error_stack=text(envelope.ERROR_STACK),
        first_failure=_time(number(envelope.FIRST_FAILURE)),
        last_failure=_time(number(envelope.LAST_FAILURE)),
        replays=replays_of(headers),
        trace=_trace(headers),
    )


def _trace(headers: list[tuple[str, Any]]) -> str:
    value = dict(headers).get(envelope.TRACEPARENT)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""


def _told_by_envelope(found: dict[str, Any]) -> LetterFailure:
    source = LetterSource(found["source_topic"], found["source_partition"], found["source_offset"])
    if not is_place(*source):
        raise avro.UnreadableError(f"it says that it is of {source}, where no record can be")
    return LetterFailure(
        source,
        timestamp=_time(found["source_timestamp"]),
        group=found["source_group"] or None,
        attempts=found["attempts"],
        error_type=found["error_type"],
        error_message=found["error_message"],
        error_stack=found["error_stack"],
        first_failure=_time(found["first_failure"]),
        last_failure=_time(found["last_failure"]),
        replays=max(0, found["replays"]),
    )


def _time(milliseconds: int | None) -> int | None:
    return milliseconds if milliseconds is not None and milliseconds >= 0 else None


def as_avro(letter: Letter) -> dict[str, Any]:
    """Return a dead letter in the fields of the Avro schema, from either form.

    Raises :class:`ValueError` for one that cannot be read.
    """
    told = letter.told
    if told is None:
        raise ValueError(f"{letter.at} is no dead letter")
    return {
        "envelope": avro.VERSION,
        "key": letter.key,
        "value": letter.value,
        "headers": [{"name": name, "value": value} for name, value in letter.headers],
        "source_topic": told.source.topic,
        "source_partition": told.source.partition,
        "source_offset": told.source.offset,
        "source_timestamp": _number(told.timestamp),
        "source_group": told.group or "",
        "attempts": _number(told.attempts),
        "error_type": told.error_type,
        "error_message": told.error_message,
        "error_stack": told.error_stack,
        "first_failure": _number(told.first_failure),
        "last_failure": _number(told.last_failure),
        "replays": told.replays,
    }


def _number(number: int | None) -> int:
    return -1 if number is None else number

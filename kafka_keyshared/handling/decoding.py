"""Serdes as callables: the handler reads decoded keys and values, everybody else the raw bytes.

A ``DeserializingConsumer`` decodes where records are fetched, one after the other, and replaces the
bytes. Here a worker decodes, just before it calls the handler, and the record itself stays as it
came: a dead letter carries the bytes that could not be read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError

from kafka_keyshared.handling.handlers import Made, maker
from kafka_keyshared.handling.registry_faults import RegistryFaults
from kafka_keyshared.headers import HeadersError, read_headers
from kafka_keyshared.model import DeadLetter, Record

Deserializer: TypeAlias = Callable[[Any, SerializationContext], Any]
"""What ``DeserializingConsumer`` takes: of bytes and their context it makes an object."""

UNREADABLE = (SerializationError, ValueError)
"""What a deserializer raises for bytes that no later attempt can read either."""


class DecodedRecord:
    """A record whose ``key()`` and ``value()`` are decoded; ``raw`` is the client's own message."""

    __slots__ = ("_key", "_value", "raw")

    def __init__(self, raw: Record, key: Any, value: Any) -> None:
        self.raw = raw
        self._key = key
        self._value = value

    def key(self) -> Any:
        """Return the decoded key."""
        return self._key

    def value(self) -> Any:
        """Return the decoded value."""
        return self._value

    def set_key(self, key: Any) -> None:
        """Let :meth:`key` return this; the record itself stays as it came."""
        self._key = key

    def set_value(self, value: Any) -> None:
        """Let :meth:`value` return this; the record itself stays as it came."""
        self._value = value

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)

    def __len__(self) -> int:
        return len(self.raw)

    def __bool__(self) -> bool:
        return True  # also when it has neither key nor value


@dataclass(frozen=True)
class Making:
    """Makes a worker's handler, in the worker's own thread, or in a process of its own."""

    handler: Any
    pool: str = "thread"
    key: Deserializer | None = None
    value: Deserializer | None = None

    def __call__(self) -> Made:
        """Return the handler, which gets decoded records where there are serdes."""
        return decoding(maker(self.handler, self.pool), self.key, self.value)()


def decoding(
    make: Callable[[], Made], key: Deserializer | None, value: Deserializer | None
) -> Callable[[], Made]:
    """Return ``make`` so that its handler gets decoded records; ``make`` itself without any serdes.

    Bytes that cannot be read (``SerializationError``, ``ValueError``) are dead-lettered at once. A
    fault of a schema registry puts the record off and counts no attempt
    (:mod:`.registry_faults`). Whatever else a deserializer raises is a failed attempt like an
    exception of the handler.
    """
    if key is None and value is None:
        return make
    faults = RegistryFaults()

    def make_decoding() -> Made:
        made = make()
        handle = made.handle

        def handle_decoded(record: Record) -> Any:
            headers = _headers(record)
            return handle(
                DecodedRecord(
                    record,
                    _decoded(key, record.key(), record, MessageField.KEY, headers, faults),
                    _decoded(value, record.value(), record, MessageField.VALUE, headers, faults),
                )
            )

        return made._replace(handle=handle_decoded)

    return make_decoding


def _headers(record: Record) -> list[tuple[str, Any]] | None:
    try:
        return read_headers(record) or None
    except HeadersError as error:
        raise DeadLetter(str(error)) from error


def _decoded(  # noqa: PLR0917 - two calls, and what each of them is about
    deserializer: Deserializer | None,
    data: Any,
    record: Record,
    field: MessageField,
    headers: Any,
    faults: RegistryFaults,
) -> Any:
    if deserializer is None:
        return data
    try:
        found = deserializer(data, SerializationContext(record.topic(), field, headers))
    except Exception as error:
        if (put_off := faults.put_off(error, data, record)) is not None:
            raise put_off from error
        if isinstance(error, UNREADABLE):
            raise DeadLetter(f"the {field.value} cannot be decoded: {error}") from error
        raise
    faults.decoded()
    return found

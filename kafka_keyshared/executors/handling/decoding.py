"""Deserializers that run in the worker, just before the handler call.

A ``DeserializingConsumer`` decodes records one after the other as it fetches them, and replaces the
bytes. Here the worker decodes, and the record itself does not change. A dead letter therefore
carries the original bytes, also when they could not be decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError

from kafka_keyshared.executors.handling.handlers import Made, maker
from kafka_keyshared.executors.handling.registry_faults import RegistryFaults
from kafka_keyshared.headers import HeadersError, read_headers
from kafka_keyshared.model import DeadLetter, Record

Deserializer: TypeAlias = Callable[[Any, SerializationContext], Any]
"""A deserializer as in ``DeserializingConsumer``: bytes and context in, an object out."""

UNREADABLE = (SerializationError, ValueError)
"""Errors of a deserializer for bytes that no retry can decode."""


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
        """Make :meth:`key` return this value; the record itself does not change."""
        self._key = key

    def set_value(self, value: Any) -> None:
        """Make :meth:`value` return this value; the record itself does not change."""
        self._value = value

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)

    def __len__(self) -> int:
        return len(self.raw)

    def __bool__(self) -> bool:
        return True  # also true when key and value are both empty


@dataclass(frozen=True)
class Making:
    """Makes the handler of a worker, in the worker's thread or in its process."""

    handler: Any
    pool: str = "thread"
    key: Deserializer | None = None
    value: Deserializer | None = None

    def __call__(self) -> Made:
        """Return the handler; with deserializers it gets decoded records."""
        return decoding(maker(self.handler, self.pool), self.key, self.value)()


def decoding(
    make: Callable[[], Made], key: Deserializer | None, value: Deserializer | None
) -> Callable[[], Made]:
    """Return ``make`` with a handler that gets decoded records; unchanged without deserializers.

    - Bytes that cannot be decoded (``SerializationError``, ``ValueError``) are dead-lettered at
      once.
    - A fault of the schema registry causes a retry that counts no attempt
      (:mod:`.registry_faults`).
    - Any other error of a deserializer is a failed attempt, as an exception of the handler is.
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


def _decoded(  # noqa: PLR0917 - only two calls
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

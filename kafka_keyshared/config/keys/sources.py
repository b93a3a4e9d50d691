"""Key functions for headers, JSON values, and user functions."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import Any

import msgspec

from kafka_keyshared.config.keys.formats import BOM, format_of, other_format
from kafka_keyshared.config.keys.values import key_bytes, mark_key_function
from kafka_keyshared.core.keys.extraction import KeyOf
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.headers import HeadersError, read_headers
from kafka_keyshared.model import Record, Retry, Undecodable

_INDEX = re.compile(r"0|[1-9][0-9]{0,17}")
_PLAIN_KEYS = frozenset({bytes, type(None)})
_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_PLAIN_NAME = re.compile(r'[^"\\\x00-\x1f]*')


def from_header(name: str) -> KeyOf:
    """Return the key function for the header of that name; a record without it has a null key.

    If several headers have the name, the last one counts, as for ``Headers.lastHeader`` of Kafka's
    Java client.
    """
    if not name:
        raise ConfigError("key: a header must have a name, such as 'header:customer'")

    return mark_key_function(HeaderKey(name))


class HeaderKey:
    """The key function for a header. See :func:`from_header`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, record: Record) -> bytes | None:
        """Return the key of one record. Raise :class:`Undecodable` for unreadable headers."""
        try:
            headers = read_headers(record)
        except HeadersError as error:
            raise Undecodable(str(error)) from error
        return key_bytes(self._last(headers))

    def _last(self, headers: list[tuple[str, Any]]) -> Any:
        return next((value for name, value in reversed(headers) if name == self._name), None)

    def of_all(self, records: Sequence[Record]) -> list[bytes | None]:
        """Return the keys of many records. Raise any exception if one needs the slow path."""
        name, last = self._name, self._last
        if not records:
            return []
        # map calls it from C, for the reason that ask_headers gives; and it is faster.
        ask = type(records[0]).headers
        # A single header is usually the right one. Checking it first saves a loop.
        found = [
            (headers[-1][1] if headers[-1][0] == name else last(headers)) if headers else None
            for headers in map(ask, records)
        ]
        if not _PLAIN_KEYS.issuperset(map(type, found)):
            raise TypeError("a header that is no bytes")
        return found


def from_json(pointer: str) -> KeyOf:
    """Return the key function for a place in the record's JSON value (RFC 8259).

    ``pointer`` is a JSON pointer (RFC 6901) such as ``/customer/id`` or ``/lines/0/sku``; the empty
    one is the whole value. The reader skips a byte order mark. It also skips a schema id in front
    of the JSON, as the serializers of Confluent, Apicurio and Glue write it. The key is null if the
    place is missing or null, or if the record has no value. Raises :class:`ConfigError` for an
    invalid pointer.
    """
    return mark_key_function(JsonKey(pointer))


class JsonKey:
    """The key function for a place in JSON. See :func:`from_json`.

    Its decoders cannot be pickled, and Spark sends it to executors, so it is made again there.
    """

    def __init__(self, pointer: str) -> None:
        self._pointer = pointer
        self._tokens = tokens = _tokens_of(pointer)
        self._whole = msgspec.json.Decoder().decode
        self._narrow = _narrow_decoder(tokens) if all(map(_PLAIN_NAME.fullmatch, tokens)) else None

    def __reduce__(self) -> tuple[Callable[[str], KeyOf], tuple[str]]:
        return from_json, (self._pointer,)

    def __call__(self, record: Record) -> bytes | None:
        """Return the key of one record. Raise :class:`Undecodable` for a value that is no JSON.

        Raises :class:`~kafka_keyshared.model.UnknownFormat` for one of another known format.
        """
        if (value := record.value()) is None or record.error() is not None:
            return None
        try:
            return self._read(value)
        except _NOT_JSON as error:
            return self._behind_its_frame(value, error)

    def _read(self, value: bytes) -> bytes | None:
        if self._narrow is not None:
            with suppress(msgspec.ValidationError):
                return key_bytes(self._narrow(value))
            # An array on the path, or no value where an object was expected: decode everything.
        return key_bytes(_walk(self._whole(value), self._tokens))

    def _behind_its_frame(self, value: bytes, error: Exception) -> bytes | None:
        """Read JSON after Confluent's prefix, another schema id or a byte order mark.

        No JSON begins like any of these. Without one the value is broken JSON, or has another
        format.
        """
        framed = format_of(value)
        start = framed.data_at if framed is not None else 0
        if value.startswith(BOM, start):
            start += len(BOM)
        if start:
            try:
                return self._read(value[start:])
            except _NOT_JSON as inner:
                if value[start:].lstrip()[:1] in (b"{", b"["):
                    raise Undecodable(f"the value is not JSON: {inner}") from inner
        if (other := other_format(value, "plain JSON")) is not None:
            raise other from None
        raise Undecodable(f"the value is not JSON: {error}") from error


def _tokens_of(pointer: str) -> tuple[str, ...]:
    first, *tokens = pointer.split("/")
    if first or "~" in pointer.replace("~0", "").replace("~1", ""):
        raise ConfigError(
            f"key: {pointer!r} is not a JSON pointer: give '/' before each name, such as "
            "'/customer/id', with '~1' for a '/' and '~0' for a '~' in a name"
        )
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in tokens)


def _narrow_decoder(tokens: tuple[str, ...]) -> Callable[[bytes], Any]:
    """Return a decoder for only the place that the tokens name, all of them names of objects.

    It checks the rest for syntax without making objects of it, which takes half the time or less.
    """
    kind: Any = Any
    for token in reversed(tokens):
        kind = msgspec.defstruct("Place", [("it", kind, None)], rename={"it": token})
    decode = msgspec.json.Decoder(kind).decode

    def read(value: bytes) -> Any:
        found = decode(value)
        for _ in tokens:
            if found is None:
                return None
            found = found.it
        return found

    return read


def _walk(found: Any, tokens: tuple[str, ...]) -> Any:
    for token in tokens:
        if isinstance(found, dict):
            found = found.get(token)
        elif isinstance(found, list) and _INDEX.fullmatch(token):
            found = found[int(token)] if int(token) < len(found) else None
        else:
            return None
    return found


def from_callable(function: Callable[[Record], Any]) -> KeyOf:
    """Return a key function that calls yours and passes its result to :func:`key_bytes`.

    It must always give the same key for the same record, because another member calls it again
    after a rebalance. It may raise :class:`Undecodable` with a reason, and every other exception
    means the same. The exceptions are :class:`Retry` and an ``OSError`` (a failed connection, a
    timeout). They mean *not now*: the record's partition waits.

    Raises :class:`ConfigError` for a value that cannot be called with one record.
    """
    name = getattr(function, "__qualname__", repr(function))
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise ConfigError(f"key={name}: give a plain function of one record")
    try:
        with suppress(ValueError):  # written in C, without a signature; the first record shows
            inspect.signature(function).bind(None)
    except TypeError as error:
        raise ConfigError(f"key={name} is called with one record: {error}") from error

    def key_of(record: Record) -> bytes | None:
        if record.error() is not None:
            return None
        try:
            # Its contextvars must not reach another call of it, nor a callback on this thread.
            return key_bytes(copy_context().run(function, record))
        except (Undecodable, Retry):
            raise
        except OSError as error:
            raise Retry from error
        except Exception as error:
            raise Undecodable(f"{type(error).__name__}: {error}") from error

    return mark_key_function(key_of)

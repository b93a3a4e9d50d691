"""Conversion of values to key bytes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Hashable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from weakref import WeakSet

from kafka_keyshared.core.keys.extraction import KeyOf
from kafka_keyshared.model import Undecodable

_OURS: WeakSet[Any] = WeakSet()


def mark_key_function(key_of: KeyOf) -> KeyOf:
    """Mark a key function that needs no wrapper: it returns bytes and the right exceptions."""
    _OURS.add(key_of)
    return key_of


def is_marked(key_of: object) -> bool:
    """Return whether a key function is marked by :func:`mark_key_function`."""
    return isinstance(key_of, Hashable) and key_of in _OURS


def key_bytes(value: Any) -> bytes | None:
    """Return the bytes of a key that was read as a value, None for None.

    Bytes stay as they are and text becomes UTF-8. Booleans become ``true`` and ``false``, whole
    numbers decimal text. Other numbers are written as in Python (``1.0`` is not ``1``), UUIDs and
    decimals as their text. Dates and times are in ISO 8601. Objects and arrays become JSON without
    spaces and with sorted names, so that the order of fields makes no difference.

    Raises :class:`Undecodable` for anything else, and for text that is not Unicode.

        >>> key_bytes("no 7"), key_bytes(7), key_bytes({"b": 1, "a": None})
        (b'no 7', b'7', b'{"a":null,"b":1}')
    """
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    try:
        return _text_of(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Undecodable(f"a {type(value).__name__} cannot be the key: {error}") from error


def _text_of(value: Any) -> str:
    text: str
    match value:
        case str():
            text = value
        case bool():
            text = "true" if value else "false"
        case int():
            text = int.__repr__(value)  # an enumeration has a form of its own
        case float():
            text = float.__repr__(value)
        case Decimal() | uuid.UUID():
            text = str(value)
        case datetime() | date() | time():
            text = value.isoformat()
        case Mapping() | list() | tuple():
            text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        case _:
            raise TypeError("give bytes, text, a number, a date, or an object or array of these")
    return text

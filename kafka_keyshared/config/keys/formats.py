"""Wire formats of values, recognised by their first bytes.

A key function checks a value that it cannot read here, before it calls the record broken. A value
in another known format means that the setting is wrong, not the record. The formats are those of
Confluent's and AWS Glue's serializers, and Apicurio's with 8-byte ids. Further ones are Avro's
container file and single-object encoding, plain JSON, UTF-16, and the common compressions.
"""

from __future__ import annotations

import uuid
from typing import NamedTuple

import msgspec

from kafka_keyshared.model import UnknownFormat

CONFLUENT_MAGIC = 0
CONFLUENT_MAGIC_GUID = 1
ID_END, GUID_END = 5, 17
"""Where the data begins after a schema id, and after a schema GUID."""

BOM = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8."""

APICURIO_HEADERS = frozenset({"apicurio.value.globalId", "apicurio.value.contentId"})
"""Headers in which Apicurio's serializers put the schema id instead of before the value."""

ASK_AGAIN = 10.0
"""Seconds between two reads of a value in another format: only other records can change that."""

_APICURIO_END, _GLUE_END = 9, 18
_GLUE_MAGIC, _GLUE_COMPRESSIONS = 3, (0, 5)

_STARTS: tuple[tuple[bytes, str], ...] = (
    (b"Obj\x01", "an Avro container file"),
    (b"\xc3\x01", "Avro single-object encoding"),
    (b"\xff\xfe", "text in UTF-16"),
    (b"\xfe\xff", "text in UTF-16"),
    (b"\x1f\x8b\x08", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"\xff\x06\x00\x00sNaPpY", "snappy"),
    (b"\x82SNAPPY\x00", "snappy"),
)


class Format(NamedTuple):
    """A wire format. ``text`` names it and the schema; ``data_at`` is where its data begins.

    ``framed`` means that a schema id precedes the data.
    """

    text: str
    data_at: int = 0
    framed: bool = False


def format_of(value: bytes) -> Format | None:
    """Return the wire format of a value by its first bytes, None for an unknown one."""
    framed = _framed(value)
    if framed is not None:
        return framed
    for start, text in _STARTS:
        if value.startswith(start):
            return Format(text)
    return Format("plain JSON") if _is_json(value) else None


def _framed(value: bytes) -> Format | None:
    magic, size = (value[0] if value else -1), len(value)
    if magic == CONFLUENT_MAGIC and size > ID_END:
        if number := int.from_bytes(value[1:ID_END], "big"):
            return Format(f"Confluent wire format, schema id {number}", ID_END, framed=True)
        # No registry gives the id 0. Apicurio's ids of 8 bytes begin with four zero bytes.
        if number := int.from_bytes(value[1:_APICURIO_END], "big"):
            text = f"Apicurio wire format with an 8-byte id, {number}"
            return Format(text, _APICURIO_END, framed=True) if size > _APICURIO_END else None
    if magic == CONFLUENT_MAGIC_GUID and size > GUID_END:
        guid = uuid.UUID(bytes=value[1:GUID_END])
        if guid.variant == uuid.RFC_4122 and guid.version is not None:
            return Format(f"Confluent wire format, schema GUID {guid}", GUID_END, framed=True)
    if magic == _GLUE_MAGIC and size > _GLUE_END and value[1] in _GLUE_COMPRESSIONS:
        guid = uuid.UUID(bytes=value[2:_GLUE_END])
        return Format(f"AWS Glue wire format, schema version {guid}", _GLUE_END, framed=True)
    return None


def _is_json(value: bytes) -> bool:
    data = value.removeprefix(BOM).lstrip()
    if data[:1] not in (b"{", b"["):
        return False
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def other_format(value: bytes, setting: str) -> UnknownFormat | None:
    """Return the error for a value of another known format than ``setting``; None for any other.

    The error names the format found and the one that the setting names.
    """
    found = format_of(value)
    if found is None:
        return None
    return UnknownFormat(found.text, f"{found.text}; the setting says {setting}", ASK_AGAIN)

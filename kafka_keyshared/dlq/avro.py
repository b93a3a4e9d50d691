"""The Avro form of a dead letter, with the failure included.

The message keeps the record's key, so partitioning and compaction work as before. Its value is
Avro's single-object encoding: the bytes C3 01, the CRC-64-AVRO fingerprint of the writer's schema
and the record. Therefore a reader knows the writer's schema without a registry. Avro's own schema
resolution fills in fields that another version lacks.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import IO, Any, NamedTuple, TypeAlias

from fastavro import parse_schema, schemaless_reader, schemaless_writer, writer
from fastavro.schema import fingerprint, to_parsing_canonical_form

from kafka_keyshared.core.contract.commands import Publish
from kafka_keyshared.dlq.envelope import (
    CONTENT,
    CONTENT_AVRO,
    Headers,
    own_headers,
    replays_of,
    span_headers,
)
from kafka_keyshared.headers import read_headers

Schema: TypeAlias = dict[str, Any]

VERSION = 1
"""The version of the schema that is written."""

MARKER = b"\xc3\x01"
FINGERPRINT_BYTES = 8
HEAD_BYTES = len(MARKER) + FINGERPRINT_BYTES


class UnreadableError(ValueError):
    """A value is marked as a dead letter in Avro but cannot be decoded."""


class LetterSchemas(NamedTuple):
    """The writer schemas of dead letters, and the reader schema."""

    writers: Mapping[bytes, Schema]
    reader: Schema
    fingerprint: bytes


def fingerprint_of(schema: Schema) -> bytes:
    """Return the CRC-64-AVRO fingerprint of a schema in the byte order of the encoding."""
    return bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))


def schema_text(version: int = VERSION) -> str:
    """Return the text of a schema file of this package."""
    place = resources.files("kafka_keyshared.dlq") / "schemas" / f"dead_letter.v{version}.avsc"
    return place.read_text("utf-8")


def load_schema(text: str) -> Schema:
    """Parse a schema, with timestamps as plain numbers.

    A producer may put any number into a timestamp. One beyond the year 9999 is no ``datetime``.
    """
    found: Schema = json.loads(text, object_hook=_without_logical_type)
    return found


def _without_logical_type(node: dict[str, Any]) -> Any:
    if node.keys() == {"type", "logicalType"}:
        return node["type"]
    return node


@cache
def known() -> LetterSchemas:
    """Return the schemas of this package's versions."""
    schemas = [load_schema(schema_text(version)) for version in range(1, VERSION + 1)]
    writers = {fingerprint_of(schema): _parsed(schema) for schema in schemas}
    return LetterSchemas(
        MappingProxyType(writers), _parsed(schemas[-1]), fingerprint_of(schemas[-1])
    )


def _parsed(schema: Schema) -> Schema:
    parsed: Any = parse_schema(schema)
    return dict(parsed)


def pack(publish: Publish, group: str) -> tuple[bytes, Headers]:
    """Return value and headers of the dead letter of a record."""
    record = publish.record
    headers = read_headers(record)
    letter = {
        "envelope": VERSION,
        "key": record.key(),
        "value": record.value(),
        "headers": [{"name": name, "value": value} for name, value in own_headers(headers)],
        "source_topic": record.topic(),
        "source_partition": record.partition(),
        "source_offset": record.offset(),
        "source_timestamp": record.timestamp()[1],
        "source_group": group,
        "attempts": publish.attempts,
        "error_type": _text(publish.last.error_type),
        "error_message": _text(publish.last.message),
        "error_stack": _text(publish.last.stack),
        "first_failure": publish.first.at_ms,
        "last_failure": publish.last.at_ms,
        "replays": replays_of(headers),
    }
    return encode(letter), [(CONTENT, CONTENT_AVRO), *span_headers(publish)]


def write_file(out: IO[bytes], letters: Iterable[Mapping[str, Any]]) -> None:
    """Write dead letters as an Avro object container file, block by block."""
    writer(out, json.loads(schema_text()), letters, codec="deflate")


def _text(text: str) -> str:
    # A lone surrogate is not valid Unicode, but the dead letter must not be lost because of it.
    return text.encode("utf-8", "replace").decode("utf-8")


def encode(letter: Mapping[str, Any], schemas: LetterSchemas | None = None) -> bytes:
    """Return the single-object encoding of a dead letter, written with the newest schema."""
    schemas = schemas or known()
    out = io.BytesIO()
    out.write(MARKER + schemas.fingerprint)
    schemaless_writer(out, schemas.reader, dict(letter))
    return out.getvalue()


def is_known(value: object) -> bool:
    """Return whether a value begins like a dead letter of a known version."""
    return (
        isinstance(value, bytes)
        and value.startswith(MARKER)
        and value[len(MARKER) : HEAD_BYTES] in known().writers
    )


def decode(value: object, schemas: LetterSchemas | None = None) -> dict[str, Any]:
    """Decode the dead letter in a value; raise :class:`UnreadableError` with the reason.

    Fields that the writer's version lacks get the defaults of our version. Fields that our version
    lacks are skipped.
    """
    schemas = schemas or known()
    if not isinstance(value, bytes) or len(value) < HEAD_BYTES or not value.startswith(MARKER):
        raise UnreadableError("its value does not begin with C3 01 and a fingerprint")
    writer = schemas.writers.get(value[len(MARKER) : HEAD_BYTES])
    if writer is None:
        raise UnreadableError(
            f"it was written with a schema that this version does not know (fingerprint "
            f"{value[len(MARKER) : HEAD_BYTES].hex()}); read it with a newer kafka-keyshared"
        )
    rest = io.BytesIO(value)
    rest.seek(HEAD_BYTES)
    try:
        letter: Any = schemaless_reader(rest, writer, schemas.reader)
    except Exception as error:
        raise UnreadableError(
            f"its value is damaged: {type(error).__name__}: {error}".rstrip(": ")
        ) from error
    if rest.tell() != len(value):
        raise UnreadableError(f"its value has {len(value) - rest.tell()} bytes behind its end")
    return dict(letter)

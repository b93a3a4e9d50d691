"""Key functions for fields of Avro values."""

from __future__ import annotations

import uuid
from io import BytesIO
from pathlib import Path
from typing import Any

from kafka_keyshared.config.keys.formats import (
    APICURIO_HEADERS,
    ASK_AGAIN,
    CONFLUENT_MAGIC,
    CONFLUENT_MAGIC_GUID,
    GUID_END,
    ID_END,
    format_of,
    other_format,
)
from kafka_keyshared.config.keys.schemas import AvroSchema, SchemaId, Schemas, beside, parsed_schema
from kafka_keyshared.config.keys.values import key_bytes, mark_key_function
from kafka_keyshared.core.keys.extraction import KeyOf
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.headers import read_headers
from kafka_keyshared.model import Record, Undecodable, UnknownFormat

SCHEMA_ID_HEADER = "__value_schema_id"
"""Header in which Confluent's serializers may put the schema id instead of before the value."""

_BARE = "bare Avro of one schema"
_FRAMED = "Avro in Confluent's wire format"


def from_avro(field: str, *, schema: Any = None, registry: Any = None) -> KeyOf:
    """Return the key function for a field of the record's Avro value.

    ``field`` is a name, or a path of names with dots. A record without that field, with a null
    there, or without a value has a null key.

    With ``schema`` (JSON as text or as Python objects) the value is bare Avro written with it. With
    ``registry`` it is in Confluent's wire format: a zero byte, the schema's id in four bytes, then
    Avro. Or the id is in the header ``__value_schema_id``, as a number or a GUID. ``registry`` is
    Confluent's ``SchemaRegistryClient``, or a function that takes the id (a GUID as text) and
    returns the schema. Schemas that a schema refers to are fetched with ``get_version(subject,
    version)``. So a function can only return schemas that refer to none, or that fastavro has
    parsed. Each answer is cached.

    The registry knows no such schema if it returns None, raises a ``KeyError``, or an error with
    ``http_status_code`` 404. Any other error is an outage. Neither is the record's fault. The
    record's partition waits, and the lookup is retried after 1 s, then 2 s, up to 10 s. Give the
    registry a timeout of a few seconds, since the owner waits for it.

    Raises :class:`ConfigError` for a schema or a field that cannot work.
    """
    path = tuple(field.split("."))
    if not all(path):
        raise ConfigError(
            f"key: {field!r} is not a path of Avro fields: give 'name' or 'name.name'"
        )
    if (schema is None) == (registry is None):
        raise ConfigError(f"key: the Avro field {field!r} needs either schema= or registry=")
    if schema is not None:
        return _from_bare_avro(path, _given_schema(schema, path))
    schemas = Schemas(registry)

    def key_of(record: Record) -> bytes | None:
        if (value := record.value()) is None or record.error() is not None:
            return None
        schema_id, start = _schema_id_of(record, value)
        try:
            found = schemas.get(schema_id)
        except UnknownFormat as error:
            if schema_id == 0:  # no registry gives this id
                raise _not_framed(value, "the value") from error
            raise
        return _field(_read(value, start, found)[0], path)

    return mark_key_function(key_of)


def from_avro_file(field: str, file: Path) -> KeyOf:
    """Return the key function for bare Avro of the schema in a file.

    Names that the schema refers to are read from files ``<full name>.avsc`` beside it. Raises
    :class:`ConfigError` for a file or a field that cannot work.
    """
    try:
        text = file.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"key_schema={str(file)!r}: {error.strerror}; give a file") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"key_schema={str(file)!r} is not text in UTF-8: {error}") from error
    try:
        schema = parsed_schema(text, beside(file.parent))
    except Exception as error:
        raise ConfigError(
            f"key_schema={str(file)!r} is not an Avro schema: {error}; a name that it refers to is "
            "looked for in the file '<full name>.avsc' beside it"
        ) from error
    return from_avro(field, schema=schema)


def _from_bare_avro(path: tuple[str, ...], schema: AvroSchema) -> KeyOf:
    def key_of(record: Record) -> bytes | None:
        if (value := record.value()) is None or record.error() is not None:
            return None
        try:
            found, end = _read(value, 0, schema)
        except Undecodable:
            if (other := other_format(value, _BARE)) is not None:
                raise other from None
            raise
        if end != len(value) and _is_another_format(value, schema):
            # Its first bytes can be read as data of many schemas: the key would be wrong.
            raise other_format(value, _BARE) or Undecodable("it has bytes behind its end")
        return _field(found, path)

    return mark_key_function(key_of)


def _is_another_format(value: bytes, schema: AvroSchema) -> bool:
    """Return whether a value with bytes after its end has another format.

    With a schema id in front, its data has to be Avro of the schema, as many values start with a
    zero byte.
    """
    found = format_of(value)
    if found is None or not found.framed:
        return found is not None
    try:
        return _read(value, found.data_at, schema)[1] == len(value)
    except Undecodable:
        return False


def _given_schema(schema: Any, path: tuple[str, ...]) -> AvroSchema:
    try:
        parsed = schema if isinstance(schema, AvroSchema) else parsed_schema(schema)
    except Exception as error:
        raise ConfigError(f"key: the schema is not an Avro schema: {error}") from error
    names = parsed.fields
    if path[0] not in names:
        raise ConfigError(
            f"key: the Avro schema is not of a record with a field {path[0]!r}; it has "
            f"{', '.join(names) or 'none'}"
        )
    return parsed


def _read(value: bytes, start: int, schema: AvroSchema) -> tuple[Any, int]:
    """Return the Avro data that starts at ``start``, and its end."""
    stream = BytesIO(value)
    stream.seek(start)
    try:
        return schema.read(stream), stream.tell()
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise Undecodable(f"the value is not Avro of its schema: {reason}") from error


def _field(found: Any, path: tuple[str, ...]) -> bytes | None:
    for name in path:
        if not isinstance(found, dict):
            return None
        found = found.get(name)
    return key_bytes(found)


def _schema_id_of(record: Record, value: bytes) -> tuple[SchemaId, int]:
    """Return the id of the value's schema, and where the Avro begins."""
    headers = read_headers(record)
    for name, found in reversed(headers):
        if name == SCHEMA_ID_HEADER and isinstance(found, bytes):
            if (framed := _schema_id(found)) is None:
                raise _not_framed(found, f"the header {SCHEMA_ID_HEADER}")
            return framed[0], 0
    if (framed := _schema_id(value)) is not None:
        return framed
    for name, _ in headers:
        if name in APICURIO_HEADERS:
            text = f"an Apicurio schema id in the header {name}"
            raise UnknownFormat(text, f"{text}; the setting says {_FRAMED}", ASK_AGAIN)
    raise _not_framed(value, "the value")


def _schema_id(data: bytes) -> tuple[SchemaId, int] | None:
    magic = data[0] if data else -1
    if magic == CONFLUENT_MAGIC and len(data) >= ID_END:
        return int.from_bytes(data[1:ID_END], "big"), ID_END
    if magic == CONFLUENT_MAGIC_GUID and len(data) >= GUID_END:
        return str(uuid.UUID(bytes=data[1:GUID_END])), GUID_END
    return None


def _not_framed(data: bytes, where: str) -> Exception:
    """Return the error for a value or a header without a schema id."""
    if not data:
        return Undecodable(f"{where} is empty; it should begin with the id of a schema")
    if (other := other_format(data, _FRAMED)) is not None:
        return other
    text = f"{where} does not begin with the id of a schema: {data[:8]!r}"
    return UnknownFormat(
        "no schema id", f"{text}; the setting says {_FRAMED}", ASK_AGAIN, vague=True
    )

"""Key functions named by configuration settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafka_keyshared.config.keys.avro import from_avro, from_avro_file
from kafka_keyshared.config.keys.schemas import Folder
from kafka_keyshared.config.keys.sources import from_callable, from_header, from_json
from kafka_keyshared.config.keys.values import is_marked
from kafka_keyshared.core.keys.extraction import KeyOf
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.model import Record


def parse_key(text: str, schema: Path | None = None) -> KeyOf | None:
    """Return the key function that a setting names; None for ``record``, the record's own key.

    The others are ``header:NAME``, ``json:POINTER`` and ``avro:FIELD``. The last one needs
    ``schema``. It is a file with the schema of bare Avro, or a folder for Confluent's wire format.
    The folder has the schemas in files ``<id>.avsc``. A schema may refer to another by its full
    name. That one is in the file ``<full name>.avsc`` in the same folder.

    Raises :class:`ConfigError` for anything else.
    """
    kind, colon, rest = text.partition(":")
    if kind != "avro" and schema is not None:
        raise ConfigError(f"key_schema={str(schema)!r} is for key='avro:FIELD', not {text!r}")
    if text == "record":
        return None
    if colon and kind == "header":
        return from_header(rest)
    if colon and kind == "json":
        return from_json(rest)
    if colon and kind == "avro":
        return _parse_avro(rest, schema)
    raise ConfigError(
        f"key={text!r}: give 'record', 'header:NAME', 'json:/POINTER' or 'avro:FIELD'"
    )


def key_function(key: Callable[[Record], Any]) -> KeyOf:
    """Return the key function for any function: one of ours as it is, else :func:`from_callable`.

    Raises :class:`ConfigError` for a value that cannot be called with one record.
    """
    return key if is_marked(key) else from_callable(key)


def _parse_avro(field: str, schema: Path | None) -> KeyOf:
    if schema is None:
        raise ConfigError(
            f"key='avro:{field}' needs key_schema: a file with the schema, or a folder of "
            "<id>.avsc for Confluent's wire format; in Python, from_avro(..., registry=...)"
        )
    if schema.is_dir():
        return from_avro(field, registry=Folder(schema))
    return from_avro_file(field, schema)

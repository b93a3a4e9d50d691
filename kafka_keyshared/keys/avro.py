"""Keys out of fields of Avro values."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from io import BytesIO
from typing import Any, TypeAlias

import fastavro

from kafka_keyshared.core.keying import KeyOf
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.headers import read_headers
from kafka_keyshared.keys.values import key_bytes, ours
from kafka_keyshared.model import Record, Retry, Undecodable

SCHEMAS_MAX = 1_000
"""So many schemas of a registry are remembered, and so many ids that it does not know."""

REGISTRY_PAUSE = 1.0
"""Seconds for which a registry that failed is not asked again."""

UNKNOWN_FOR = 30.0
"""Seconds for which a schema that the registry does not know is not asked for again."""

SCHEMA_ID_HEADER = "__value_schema_id"
"""Where Confluent's serializers may put the id of the schema instead of before the value."""

_MAGIC = 0
_MAGIC_GUID = 1
_HTTP_NOT_FOUND = 404

SchemaId: TypeAlias = int | str
"""The number of a schema in a registry, or its GUID as text."""


def from_avro(field: str, *, schema: Any = None, registry: Any = None) -> KeyOf:
    """Return the key function for a field of the record's value, which is Avro.

    ``field`` is a name, or a path of names with dots. A record without that field, with a null
    there, or without a value has a null key.

    With ``schema`` (JSON as text or as Python has it) the value is bare Avro written with it. With
    ``registry`` it is in Confluent's wire format: a zero byte, the schema's id in four bytes, then
    Avro; or the id stands in the header ``__value_schema_id``, as a number or a GUID. ``registry``
    is a function that is given the id (a GUID as text) and returns the schema, or Confluent's
    ``SchemaRegistryClient``. It says that it knows no such schema by returning None, by a
    ``KeyError`` or by an error whose ``http_status_code`` is 404: then the record is undecodable.
    Any other error means *not now*: the record's partition waits and the registry is asked again
    after a second. Answers are remembered. Give the registry a time-out of a few seconds, since the
    owner waits for it.

    Raises :class:`ConfigError` for a schema or a field that cannot work.
    """
    path = tuple(field.split("."))
    if not all(path):
        raise ConfigError(f"key: {field!r} is no path of Avro fields: give 'name' or 'name.name'")
    if (schema is None) == (registry is None):
        raise ConfigError(f"key: the Avro field {field!r} needs either schema= or registry=")
    if schema is not None:
        return _from_bare_avro(path, _given_schema(schema, path))
    schemas = Schemas(registry)

    def key_of(record: Record) -> bytes | None:
        if (value := record.value()) is None or record.error() is not None:
            return None
        schema_id, start = _schema_id_of(record, value)
        return _read(value, start, schemas.get(schema_id), path)

    return ours(key_of)


def _from_bare_avro(path: tuple[str, ...], schema: Any) -> KeyOf:
    def key_of(record: Record) -> bytes | None:
        if (value := record.value()) is None or record.error() is not None:
            return None
        return _read(value, 0, schema, path)

    return ours(key_of)


def _given_schema(schema: Any, path: tuple[str, ...]) -> Any:
    try:
        parsed = parsed_schema(schema)
    except Exception as error:
        raise ConfigError(f"key: this is no Avro schema: {error}") from error
    names = [each["name"] for each in parsed.get("fields", ())] if isinstance(parsed, dict) else []
    if path[0] not in names:
        raise ConfigError(
            f"key: the Avro schema is not of a record with a field {path[0]!r}; it has "
            f"{', '.join(names) or 'none'}"
        )
    return parsed


def parsed_schema(schema: Any) -> Any:
    """Return a schema as fastavro reads it; from JSON text, its parts, or Confluent's ``Schema``.

    Raises whatever fastavro raises for what is none.
    """
    text = getattr(schema, "schema_str", schema)
    return fastavro.parse_schema(json.loads(text) if isinstance(text, str) else text)


def _read(value: bytes, start: int, schema: Any, path: tuple[str, ...]) -> bytes | None:
    stream = BytesIO(value)
    stream.seek(start)
    try:
        found: Any = fastavro.schemaless_reader(stream, schema, None)
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise Undecodable(f"the value is not Avro of its schema: {reason}") from error
    for name in path:
        if not isinstance(found, dict):
            return None
        found = found.get(name)
    return key_bytes(found)


def _schema_id_of(record: Record, value: bytes) -> tuple[SchemaId, int]:
    """Return the id of the value's schema, and where the Avro begins."""
    for name, told in reversed(read_headers(record)):
        if name == SCHEMA_ID_HEADER and isinstance(told, bytes):
            return _schema_id(told, f"the header {SCHEMA_ID_HEADER}")[0], 0
    return _schema_id(value, "the value")


def _schema_id(data: bytes, where: str) -> tuple[SchemaId, int]:
    magic = data[0] if data else -1
    if magic == _MAGIC and len(data) >= 5:
        return int.from_bytes(data[1:5], "big"), 5
    if magic == _MAGIC_GUID and len(data) >= 17:
        return str(uuid.UUID(bytes=data[1:17])), 17
    raise Undecodable(f"{where} does not begin with the id of a schema: {data[:8]!r}")


class Schemas:
    """The schemas of a registry, each asked for once. ``clock`` is in seconds."""

    def __init__(self, registry: Any, clock: Callable[[], float] = time.monotonic) -> None:
        by_id = getattr(registry, "get_schema", None)
        if by_id is None and not callable(registry):
            raise ConfigError(
                f"key: registry={registry!r}: give a function of a schema's id, or Confluent's "
                "SchemaRegistryClient"
            )
        self._fetch: Callable[[SchemaId], Any] = by_id or registry
        self._fetch_guid: Callable[[str], Any] = getattr(
            registry, "get_schema_by_guid", self._fetch
        )
        self._clock = clock
        self._known: dict[SchemaId, Any] = {}
        self._unknown: dict[SchemaId, tuple[float, str]] = {}
        self._ask_at = float("-inf")
        self._failure: Exception | None = None

    def get(self, schema_id: SchemaId) -> Any:
        """Return the parsed schema of that id.

        Raises :class:`Undecodable` when there is none or it is not Avro, :class:`Retry` when the
        registry does not answer.
        """
        known = self._known.get(schema_id)
        if known is not None:
            return known
        now = self._clock()
        until, reason = self._unknown.get(schema_id, (now, ""))
        if until > now:
            raise Undecodable(reason)
        found, reason = self._ask(schema_id, now), "the registry knows no such schema"
        if found is not None:
            try:
                found = parsed_schema(found)
            except Exception as error:  # noqa: BLE001 - fastavro has an exception for each mistake
                found, reason = None, f"it is not Avro: {error}"
        if found is None:
            reason = f"schema {schema_id}: {reason}"
            _remember(self._unknown, schema_id, (now + UNKNOWN_FOR, reason))
            raise Undecodable(reason)
        _remember(self._known, schema_id, found)
        return found

    def _ask(self, schema_id: SchemaId, now: float) -> Any:
        """Return what the registry has, None when it knows no such schema."""
        if now < self._ask_at:
            raise Retry(self._ask_at - now) from self._failure
        try:
            if isinstance(schema_id, str):
                return self._fetch_guid(schema_id)
            return self._fetch(schema_id)
        except KeyError:
            return None
        except (Undecodable, Retry):
            raise
        except Exception as error:  # noqa: BLE001 - a client of any kind, which fails in its own way
            if getattr(error, "http_status_code", None) == _HTTP_NOT_FOUND:
                return None
            self._ask_at = self._clock() + REGISTRY_PAUSE
            self._failure = error.with_traceback(None)
            raise Retry(REGISTRY_PAUSE) from self._failure


def _remember(known: dict[SchemaId, Any], schema_id: SchemaId, what: Any) -> None:
    known.pop(schema_id, None)
    while len(known) >= SCHEMAS_MAX:
        del known[next(iter(known))]
    known[schema_id] = what

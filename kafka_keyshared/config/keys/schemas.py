"""Avro schemas of a registry or a folder, with their references.

A registry's answer is never the record's fault. Each answer that leaves a record unread raises
:class:`~kafka_keyshared.model.UnknownFormat` or :class:`~kafka_keyshared.model.Retry`, and the
record's partition waits.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import fastavro

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.model import Retry, Undecodable, UnknownFormat

SCHEMAS_MAX = 1_000
"""Maximum number of cached schemas, and of cached ids that the registry does not know."""

ASK_AGAIN, ASK_AGAIN_MOST = 1.0, 10.0
"""Seconds until a registry is queried again: the first delay, and the limit of its doubling."""

PATIENCE = 10.0
"""Seconds for which an id that the registry does not know may still be registered."""

PATIENT_IDS, PATIENT_WITHIN = 5, 60.0
"""More unknown ids than this within that many seconds are garbage: ``PATIENCE`` does not apply."""

_HTTP_NOT_FOUND = 404
_TOP = "Top"
_PROTOBUF = re.compile(r"\b(?:syntax|message)\b")

SchemaId: TypeAlias = int | str
"""The number of a schema in a registry, or its GUID as text."""

Key = TypeVar("Key")
Value = TypeVar("Value")


class SchemaError(ValueError):
    """A schema cannot be used. The text states why."""


class AvroSchema(NamedTuple):
    """A parsed schema. ``wrapped``: it is the only field of a record around it.

    fastavro resolves names of referenced schemas only within a record. A record with one field has
    the bytes of that field.
    """

    parsed: Any
    wrapped: bool

    def read(self, stream: Any) -> Any:
        """Read one value. Raise fastavro's exception for invalid bytes."""
        found: Any = fastavro.schemaless_reader(stream, self.parsed, None)
        return found[_TOP] if self.wrapped else found

    @property
    def fields(self) -> list[str]:
        """Return the names of the fields of a record, and none for another schema."""
        top = self.parsed["fields"][0]["type"] if self.wrapped else self.parsed
        return [each["name"] for each in top.get("fields", ())] if isinstance(top, dict) else []


def parsed_schema(
    schema: Any, named: Callable[[str], Any] | None = None, names: Any = None
) -> AvroSchema:
    """Return a schema from JSON text, from its parts, or from Confluent's ``Schema``.

    ``names`` are schemas by full name that it may refer to, in fastavro's form. ``named`` returns
    the definition of any other name, None for an unknown one. Raises :class:`SchemaError` for an
    unknown name or a circle of files, and fastavro's exception for an invalid schema.
    """
    schema = _parts(schema)
    if isinstance(schema, dict) and "__fastavro_parsed" in schema:
        return AvroSchema(schema, wrapped=False)
    around = {"type": "record", "name": _TOP, "fields": [{"name": _TOP, "type": schema}]}
    parsed, _ = _with_names(around, named, dict(names or {}), ())
    return AvroSchema(parsed, wrapped=True)


def _parts(schema: Any) -> Any:
    text = getattr(schema, "schema_str", schema)
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        hint = "; it looks like Protobuf" if _PROTOBUF.search(text) else ""
        raise SchemaError(f"it is not Avro, whose schemas are JSON: {error}{hint}") from error


def _with_names(
    schema: Any, named: Callable[[str], Any] | None, names: dict[str, Any], path: tuple[str, ...]
) -> tuple[Any, dict[str, Any]]:
    """Parse a schema, after each definition that it refers to and does not contain."""
    while True:
        # A failed parse leaves names behind, so each parse gets names of its own.
        known = dict(names)
        try:
            return fastavro.parse_schema(schema, named_schemas=known), known
        except fastavro.schema.UnknownType as error:
            if not isinstance(error.name, str):
                raise
            name = error.name
        if name in path:
            raise SchemaError(f"{name} refers to itself through {' and '.join(path)}")
        if named is None or (definition := named(name)) is None:
            raise SchemaError(f"it refers to {name}, which is nowhere defined")
        _, names = _with_names(_parts(definition), named, names, (*path, name))


def beside(folder: Path) -> Callable[[str], str | None]:
    """Return a function that finds definitions in a folder, in files ``<full name>.avsc``."""

    def named(name: str) -> str | None:
        file = folder / f"{name}.avsc"
        return file.read_text("utf-8") if file.is_file() else None

    return named


class Folder:
    """Schemas in a folder: ``<id>.avsc`` by id, and ``<full name>.avsc`` for their references."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.named = beside(folder)

    def get_schema(self, schema_id: SchemaId) -> str | None:
        """Return the text of a schema, None where there is no such file."""
        return self.named(str(schema_id))


class _Unknown(NamedTuple):
    """An id without a usable schema."""

    ask_at: float
    since: float
    tries: int
    reason: str


class Schemas:
    """The schemas of a registry, each fetched once. ``clock`` is in seconds."""

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
        self._fetch_version: Callable[[str, Any], Any] | None = getattr(
            registry, "get_version", None
        )
        self._named: Callable[[str], Any] | None = getattr(registry, "named", None)
        self._clock = clock
        self._known: dict[SchemaId, AvroSchema] = {}
        self._unknown: dict[SchemaId, _Unknown] = {}
        self._versions: dict[tuple[str, Any], Any] = {}
        self._ask_at = float("-inf")
        self._failures = 0
        self._failure: Exception | None = None

    def get(self, schema_id: SchemaId) -> AvroSchema:
        """Return the parsed schema of that id.

        Raises :class:`UnknownFormat` without a usable schema, and :class:`Retry` when the registry
        does not answer.
        """
        known = self._known.get(schema_id)
        if known is not None:
            return known
        now = self._clock()
        unknown = self._unknown.get(schema_id)
        if unknown is None or unknown.ask_at <= now:
            found = self._look_up(schema_id, now)
            if isinstance(found, AvroSchema):
                self._unknown.pop(schema_id, None)
                _remember(self._known, schema_id, found)
                return found
            since, tries = (now, 0) if unknown is None else (unknown.since, unknown.tries)
            ask_at = now + min(ASK_AGAIN_MOST, ASK_AGAIN * 2.0**tries)
            unknown = _Unknown(ask_at, since, min(tries + 1, 10), found)
            _remember(self._unknown, schema_id, unknown)
        raise UnknownFormat(
            f"schema {schema_id}",
            f"schema {schema_id}{unknown.reason}",
            unknown.ask_at - now,
            patience=self._patience(unknown, now),
        )

    def _patience(self, unknown: _Unknown, now: float) -> float:
        """Return for how many seconds an unknown schema may still be registered."""
        lately = sum(each.since > now - PATIENT_WITHIN for each in self._unknown.values())
        return max(0.0, unknown.since + PATIENCE - now) if lately <= PATIENT_IDS else 0.0

    def _look_up(self, schema_id: SchemaId, now: float) -> AvroSchema | str:
        """Return the schema, or why there is no usable one."""
        fetch = self._fetch_guid if isinstance(schema_id, str) else self._fetch
        found = self._ask(lambda: fetch(schema_id), now)  # type: ignore[arg-type]
        if found is None:
            return ": the registry knows no such schema"
        if (kind := _kind_of(found)) != "AVRO":
            return f" is {kind}; the setting says Avro"
        try:
            names = self._names_of(found, now, {}, set(), ())
            return parsed_schema(found, self._named, names)
        except (Retry, Undecodable):
            raise
        except SchemaError as error:
            return f": {error}"
        except Exception as error:  # noqa: BLE001 - fastavro has an exception for each mistake
            return f": it is not Avro: {type(error).__name__}: {error}"

    def _names_of(
        self,
        schema: Any,
        now: float,
        names: dict[str, Any],
        done: set[tuple[str, Any]],
        path: tuple[tuple[str, Any], ...],
    ) -> dict[str, Any]:
        """Return the parsed definitions that a schema refers to, by name, nested ones first."""
        for each in _field(schema, "references") or ():
            subject, version = at = str(_field(each, "subject")), _field(each, "version")
            what = f"{_field(each, 'name')} (subject {subject}, version {version})"
            if at in path:
                raise SchemaError(f"its references go in a circle through {what}")
            if at in done:
                continue
            done.add(at)
            found = self._version(at, what, now)
            if (kind := _kind_of(found)) != "AVRO":
                raise SchemaError(f"it refers to {what}, which is {kind}")
            names = self._names_of(found, now, names, done, (*path, at))
            _, names = _with_names(_parts(found), self._named, names, ())
        return names

    def _version(self, at: tuple[str, Any], what: str, now: float) -> Any:
        found = self._versions.get(at)
        if found is None:
            fetch = self._fetch_version
            if fetch is None:
                raise SchemaError(
                    f"it refers to {what}, and this registry= cannot be asked for that: give it a "
                    "method get_version(subject, version), or Confluent's SchemaRegistryClient"
                )
            found = self._ask(lambda: fetch(*at), now)
            if found is None:
                raise SchemaError(f"it refers to {what}, which the registry does not know")
            _remember(self._versions, at, found := getattr(found, "schema", found))
        return found

    def _ask(self, fetch: Callable[[], Any], now: float) -> Any:
        """Return the registry's answer, None when it does not know the name."""
        if now < self._ask_at:
            raise Retry(self._ask_at - now) from self._failure
        try:
            found = fetch()
        except KeyError:
            found = None
        except (Undecodable, Retry):
            raise
        except Exception as error:  # noqa: BLE001 - a client of any kind, which fails in its own way
            if getattr(error, "http_status_code", None) != _HTTP_NOT_FOUND:
                pause = min(ASK_AGAIN_MOST, ASK_AGAIN * 2.0**self._failures)
                self._failures = min(self._failures + 1, 10)
                self._ask_at = self._clock() + pause
                self._failure = error.with_traceback(None)
                raise Retry(pause) from self._failure
            found = None
        self._failures = 0
        return found


def _field(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)


def _kind_of(schema: Any) -> str:
    """Return the kind of a schema as registries name it: AVRO, JSON, PROTOBUF."""
    told = getattr(schema, "schema_type", None)
    if told is None and isinstance(schema, Mapping):
        told = schema.get("schemaType")
    kind = str(told or "AVRO").upper()
    return "JSON Schema" if kind == "JSON" else kind


def _remember(known: dict[Key, Value], key: Key, value: Value) -> None:
    known.pop(key, None)
    while len(known) >= SCHEMAS_MAX:
        del known[next(iter(known))]
    known[key] = value

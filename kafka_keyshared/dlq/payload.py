"""The display of record bytes as text, JSON, Avro or hex.

Each is shown under the name of its form, or as None for null. The forms are ``{"text": "paid"}``,
``{"json": {...}}``, ``{"avro": {...}}`` and ``{"hex": "00ff"}``. Therefore a text that looks like
hex is unambiguous, and an export can be read back.
"""

from __future__ import annotations

import enum
import io
import json
import math
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

from fastavro import schemaless_reader
from fastavro.schema import load_schema

from kafka_keyshared.dlq.avro import HEAD_BYTES, MARKER, fingerprint_of
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.logs import log_of

log = log_of("kafka_keyshared.dlq")

Shown: TypeAlias = dict[str, Any] | None

WIRE_MAGIC = b"\x00"
WIRE_HEAD_BYTES = 5
"""Confluent's wire format: a zero byte, the schema's id in the registry (4 bytes), the record."""


class PayloadFormat(enum.StrEnum):
    """The display form of keys and values."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    AVRO = "avro"
    HEX = "hex"


class Decoder:
    """Shows keys and values; bytes that do not fit the form are shown as hex with the reason.

    ``auto`` tries the Avro schema if there is one, then JSON for an object or a list, then text,
    then hex. Keys and headers are never Avro.
    """

    def __init__(self, payload: PayloadFormat, schema: Path | None = None) -> None:
        self._payload = payload
        self.is_default = payload is PayloadFormat.AUTO and schema is None
        self._schema = _load(schema) if schema is not None else None
        if payload is PayloadFormat.AVRO and schema is None:
            raise ConfigError("--payload avro needs the schema of the values: --schema FILE")

    def value(self, data: bytes | None) -> Shown:
        """Show a record's value."""
        if data is None:
            return None
        if self._payload is PayloadFormat.AVRO:
            return self._avro(data) or _hex(data, "not Avro of the schema given")
        if self._payload is PayloadFormat.AUTO:
            return (self._avro(data) if self._schema is not None else None) or _auto(data)
        return _AS[self._payload](data)

    def plain(self, data: bytes | str | None) -> Shown:
        """Show a key, or a header's value."""
        if data is None or isinstance(data, str):
            return None if data is None else {"text": data}
        how = self._payload
        return _hex(data) if how is PayloadFormat.HEX else _text(data)

    def _avro(self, data: bytes) -> Shown:
        """Decode a record that uses all bytes; return None if no encoding fits.

        It tries Confluent's wire format, then the single-object encoding, then bare Avro. Bare Avro
        is last because it may begin with any byte.
        """
        starts = [0]
        if data.startswith(WIRE_MAGIC) and len(data) >= WIRE_HEAD_BYTES:
            starts.insert(0, WIRE_HEAD_BYTES)
        if data.startswith(MARKER + fingerprint_of(self._schema or {})):
            starts.insert(0, HEAD_BYTES)
        for start in starts:
            rest = io.BytesIO(data)
            rest.seek(start)
            try:
                found = schemaless_reader(rest, self._schema or {}, None)
            except Exception as error:  # noqa: BLE001 - other bytes raise whatever they meet
                log.debug("not Avro from byte %d: %s", start, error)
            else:
                if rest.tell() == len(data):
                    return {"avro": _jsonable(found)}
        return None


def _load(path: Path) -> Any:
    if not path.is_file():
        raise ConfigError(f"--schema {path}: there is no such file")
    try:
        return load_schema(str(path))
    except Exception as error:
        raise ConfigError(f"{path}: not an Avro schema: {type(error).__name__}: {error}") from error


def _auto(data: bytes) -> Shown:
    if data.lstrip()[:1] in (b"{", b"["):
        found = _json(data)
        if "json" in found:
            return found
    found = _text(data)
    return found if "text" in found else _hex(data)


def _text(data: bytes) -> dict[str, Any]:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return _hex(data, "not text in UTF-8")
    # Control characters would act on the terminal, or be lost there.
    if any(not (each.isprintable() or each in "\n\r\t") for each in text):
        return _hex(data, "not text: it has control characters")
    return {"text": text}


def _json(data: bytes) -> dict[str, Any]:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no JSON")

    try:
        return {"json": json.loads(data.decode("utf-8"), parse_constant=refuse)}
    except (ValueError, RecursionError) as error:
        return _hex(data, f"not JSON: {error}")


def _hex(data: bytes, problem: str = "") -> dict[str, Any]:
    shown = {"hex": data.hex()}
    return {**shown, "problem": problem} if problem else shown


_AS = {PayloadFormat.TEXT: _text, PayloadFormat.JSON: _json, PayloadFormat.HEX: _hex}


def _jsonable(value: Any) -> Any:
    """Return an Avro value as JSON; a value without a JSON type becomes text."""
    if isinstance(value, Mapping):
        return {str(name): _jsonable(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(inner) for inner in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    has_no_word = isinstance(value, Decimal | UUID) or (
        isinstance(value, float) and not math.isfinite(value)
    )
    return str(value) if has_no_word else value

"""Values for every setting there is, found from its type, and how each source writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import inspect

from kafka_keyshared.config.fields import Field, convert_value, fields, from_text, nest

GIVEN = {"bootstrap": "x:1", "group": "g", "topics": ["t"]}
"""What every run needs."""

SETTINGS = {name: field for name, field in fields().items() if field.env is not None}

_CANDIDATES: tuple[Any, ...] = (
    True,
    False,
    *(2, 3, 0.25, 0.5),
    *("thread:3", "pull", "header:a", "header:b", "here.a", "here.b"),
    *(["a"], ["b", "c"]),
    *("http://a", "http://b", ["a:1"], ["b:1", "c:1"]),
)
_BAD: tuple[Any, ...] = (-1, "☃ ", "", [[1]], 0.5, 70_000.5, True)


def two_values(field: Field) -> tuple[Any, Any]:
    """Return two values that a field takes and that are not its default."""
    possible = [*_literals(field.info), *_CANDIDATES]
    found = [each for each in possible if _fits(field, each) and each != field.default]
    # A setting with a single value besides its default, such as a boolean, takes that one again.
    other = [each for each in found[1:] if each != found[0]] or [field.default]
    assert found, f"give a value for {field.name} in _CANDIDATES"
    return found[0], other[0]


def bad_values(field: Field) -> list[Any]:
    """Return values that a file may hold and that the field does not take."""
    return [each for each in _BAD if not _fits(field, each)]


def bad_text(field: Field) -> str | None:
    """Return a text that the field does not take; None where it takes every text."""
    texts = (each for each in ("☃ ", "-1", "0x") if not _fits(field, from_text(each, field.info)))
    return next(texts, None)


def _literals(info: inspect.Type) -> Iterator[Any]:
    kinds = info.types if isinstance(info, inspect.UnionType) else (info,)
    for kind in kinds:
        if isinstance(kind, inspect.LiteralType):
            yield from kind.values


def _fits(field: Field, value: Any) -> bool:
    faults: list[Any] = []
    convert_value(field, value, faults)
    return not faults


def as_text(value: Any) -> str:
    """Return a value as the environment or a flag has it."""
    if value is None:
        return "none"
    if isinstance(value, list):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_toml(values: Mapping[str, Any]) -> str:
    """Return a file with these settings; dots make tables."""
    tables = nest({name: value for name, value in values.items() if value is not None})
    plain = [f"{name} = {json.dumps(v)}" for name, v in tables.items() if not isinstance(v, dict)]
    for table, inner in tables.items():
        if isinstance(inner, dict):
            plain += [f"[{table}]", *(f'"{name}" = {json.dumps(v)}' for name, v in inner.items())]
    return "\n".join(plain) + "\n"

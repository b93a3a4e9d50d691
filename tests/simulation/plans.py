"""Plans of simulated runs as JSON, so that a seed goes on meaning what it meant."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints

from kafka_keyshared.core.keys.extraction import KeyOf
from kafka_keyshared.lab.simulator.keys import DerivedKey
from kafka_keyshared.lab.simulator.plan_model import Plan


@dataclass(frozen=True, slots=True)
class Found:
    """A run that has found something once.

    ``found`` says what; ``meets`` is what it is to go through again, or it shows nothing any more.
    """

    seed: int
    steps: int
    found: str
    meets: Mapping[str, int]
    plan: Plan


def read(path: Path) -> Found:
    """Return what a file says. Raises :class:`ValueError` for what no plan has."""
    return _made(Found, json.loads(path.read_text(encoding="utf-8")))  # type: ignore[no-any-return]


def write(path: Path, found: Found) -> None:
    """Write it into a file."""
    path.write_text(json.dumps(_plain(found), indent=1) + "\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    """Return the value as JSON has it: what has fields by their names."""
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if hasattr(value, "_asdict"):
        return {name: _plain(each) for name, each in value._asdict().items()}
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _made(kind: Any, value: Any) -> Any:
    """Return the value as what its field is declared to be."""
    if value is None:
        return None
    if isinstance(kind, UnionType):  # "or None"
        kind = next(each for each in get_args(kind) if each is not NoneType)
    if kind == KeyOf:
        kind = DerivedKey  # simulations have no others
    if isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_fields")):
        hints = get_type_hints(kind)
        strangers = value.keys() - hints.keys()
        if strangers:
            raise ValueError(f"{kind.__name__} has no {', '.join(sorted(strangers))}")
        missing = _needed(kind) - value.keys()
        if missing:
            raise ValueError(
                f"{kind.__name__} has {', '.join(sorted(missing))} now: write into the file what "
                "was so when the seed has found something"
            )
        return kind(**{name: _made(hints[name], each) for name, each in value.items()})
    if isinstance(value, dict):
        return {name: _made(get_args(kind)[1], each) for name, each in value.items()}
    if isinstance(value, list):
        inner = get_args(kind)[0] if get_args(kind) else Any
        return tuple(_made(inner, each) for each in value)
    return value


def _needed(kind: Any) -> set[str]:
    """Return the fields without a default."""
    if is_dataclass(kind):
        defaults = {each.name: (each.default, each.default_factory) for each in fields(kind)}
        return {name for name, each in defaults.items() if each == (MISSING, MISSING)}
    every: set[str] = {*kind._fields}
    return every.difference(kind._field_defaults)

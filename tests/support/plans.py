"""Plans of simulated runs as JSON, so that a seed goes on meaning what it meant."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from kafka_keyshared.sim.plan import Plan


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
    path.write_text(json.dumps(asdict(found), indent=1) + "\n", encoding="utf-8")


def _made(kind: Any, value: Any) -> Any:
    """Return the value as what its field is declared to be."""
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        strangers = value.keys() - hints.keys()
        if strangers:
            raise ValueError(f"{kind.__name__} has no {', '.join(sorted(strangers))}")
        needed = {each.name for each in fields(kind) if each.default is MISSING}
        missing = needed - value.keys()
        if missing:
            raise ValueError(
                f"{kind.__name__} has {', '.join(sorted(missing))} now: write into the file what "
                "was so when the seed has found something"
            )
        return kind(**{name: _made(hints[name], each) for name, each in value.items()})
    if isinstance(value, list):
        inner = get_args(kind)[0] if get_args(kind) else Any
        return tuple(_made(inner, each) for each in value)
    return value

"""Former names of settings, and the errors that name their successors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

PREFIX = "KEYSHARED_"
"""Prefix of the environment variables that are settings."""


class Renamed(NamedTuple):
    """The successor of a setting, and the successor's option of the command line, if it has one.

    ``values`` are pairs of a former value and its translation; none if the values did not change.
    """

    setting: str
    values: tuple[tuple[Any, Any], ...] = ()
    flag: str | None = None


RENAMED: Mapping[str, Renamed] = {
    "lend_after": Renamed("detach_after"),
    "poison": Renamed("on_exhausted", flag="--on-exhausted"),
    "max_leases_per_key": Renamed(
        "one_in_flight_per_key", ((1, True),), flag="--one-in-flight-per-key"
    ),
    "leases_per_worker": Renamed("prefetch_records"),
    "lease_bytes_per_worker": Renamed("prefetch_bytes"),
    "reliable": Renamed("delivery", ((False, "at-most-once"), (True, "at-least-once"))),
    "dlq_limit_in_a_row": Renamed("dlq_limit_consecutive"),
}
"""Former names of settings, each with its successor."""


class Notation(NamedTuple):
    """How a source of settings writes a name, and a name with a value."""

    name: Callable[[str], str]
    setting: Callable[[str, Any], str]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


FILE = Notation(repr, lambda name, value: f"{name} = {json.dumps(value)}")
PROGRAM = Notation(repr, lambda name, value: f"{name}={value!r}")
ENVIRONMENT = Notation(_variable, lambda name, value: f"{_variable(name)}={_text(value)}")
CHART = Notation(
    lambda name: f"config.{name}", lambda name, value: f"config.{name}: {_text(value)}"
)
COMMAND_LINE = Notation(
    _flag,
    lambda name, value: _flag(name) if value is True else f"{_flag(name)} {_text(value)}",
)


def renaming(former: str, notation: Notation) -> str:
    """Return the error text for the former name of a setting.

    It names the successor, and the translation of each value that has changed.
    """
    successor, values, _ = RENAMED[former]
    name = notation.name(former)
    if not values:
        return f"{name} has been renamed: give {notation.name(successor)} with the same value"
    given = [
        f"{notation.setting(successor, now)} for {notation.setting(former, old)}"
        for old, now in values
    ]
    return f"{name} has been renamed: give {', or '.join(given)}"


def renamed_option(option: str) -> str | None:
    """Return the error text for a former option of the command line, None for any other."""
    former = option.removeprefix("--").replace("-", "_")
    if former not in RENAMED or RENAMED[former].flag is None:
        return None
    return renaming(former, COMMAND_LINE)

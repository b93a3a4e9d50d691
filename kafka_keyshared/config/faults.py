"""What is wrong with a configuration: which settings, where they came from, what they may be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import NamedTuple

from kafka_keyshared.errors import ConfigError


class Fault(NamedTuple):
    """One thing that cannot work. ``origins`` says for each of the settings where it is from.

    ``note`` is what helps with all faults of its kind: it is said once, behind the last of them.
    """

    settings: tuple[str, ...]
    text: str
    origins: Mapping[str, str] = {}
    note: str = ""

    def __str__(self) -> str:
        """Return the sentence, with the origins behind it."""
        told = [f"{name} is {origin}" for name, origin in self.origins.items()]
        return f"{self.text} ({', '.join(told)})" if told else self.text


class SettingsError(ConfigError):
    """Settings that cannot be used: all that were found, not only the first."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        lines = [str(fault) for fault in self.faults]
        if len(lines) > 1:
            lines = [f"{len(lines)} settings cannot be used:", *(f"  {line}" for line in lines)]
        super().__init__("\n".join([*lines, *self.notes]))

    @property
    def notes(self) -> tuple[str, ...]:
        """What helps with several of the faults, each note once."""
        return tuple(dict.fromkeys(fault.note for fault in self.faults if fault.note))


def refuse(faults: Iterable[Fault]) -> None:
    """Raise :class:`SettingsError` if there is a fault."""
    if faults := tuple(faults):
        raise SettingsError(faults)


SUCCESSORS = {"lend_after": "detach_after"}
"""By the name of a setting that is gone, the one that has its place."""


def guess(name: str, names: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for a name that is near one of those, else nothing.

    What a setting was called before is named with what it is called now.
    """
    if (now := SUCCESSORS.get(name.lower())) is not None:
        found = next((each for each in names if each.lower() == now), now)
        return f"; it is {found!r} now"
    near = get_close_matches(name, list(names), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""

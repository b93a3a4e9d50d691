"""Configuration faults: the settings, their sources, and their allowed values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import NamedTuple

from kafka_keyshared.errors import ConfigError


class Fault(NamedTuple):
    """One configuration fault. ``origins`` names the source of each of the settings.

    ``note`` is a remedy for all faults of its kind. It is printed once, after the last of them.
    """

    settings: tuple[str, ...]
    text: str
    origins: Mapping[str, str] = {}
    note: str = ""

    def __str__(self) -> str:
        """Return the sentence, followed by the origins."""
        origins = [f"{name} is {origin}" for name, origin in self.origins.items()]
        return f"{self.text} ({', '.join(origins)})" if origins else self.text


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
        """Remedies for several of the faults, each once."""
        return tuple(dict.fromkeys(fault.note for fault in self.faults if fault.note))


def refuse(faults: Iterable[Fault]) -> None:
    """Raise :class:`SettingsError` if there is a fault."""
    if faults := tuple(faults):
        raise SettingsError(faults)


def guess(name: str, names: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for a name near one of ``names``, else nothing."""
    near = get_close_matches(name, list(names), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""

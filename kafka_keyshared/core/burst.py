"""Many events of one kind in few lines of the log: the first at once, then one line in a while.

A handler that fails for every key would otherwise write a line for each, and the one that matters
could not be found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from kafka_keyshared.core.events import Level, Notice

INTERVAL = 10.0


What = TypeVar("What")


class Burst(Generic[What]):
    """Events of one kind; ``plural`` names them in a line that stands for several.

    ``words`` puts one into words, if it is told.
    """

    def __init__(self, level: Level, plural: str, words: Callable[[What], str] = str) -> None:
        self._level = level
        self._plural = plural
        self._words = words
        self._told_at = float("-inf")
        self._count = 0
        self._last: What | None = None
        self.interval = INTERVAL

    def add(self, what: What, now: float) -> list[Notice]:
        """Take an event; return its line if none was written lately."""
        if not self._count and now - self._told_at >= self.interval:
            return self.at_once(self._words(what), now)
        self._count += 1
        self._last = what
        return []

    def at_once(self, text: str, now: float) -> list[Notice]:
        """Return the line of an event that is not to wait; those that have come before wait on."""
        if not self._count:
            self._told_at = now
        return [Notice(self._level, text)]

    def due(self, now: float) -> list[Notice]:
        """Return the line for what has come together since the last one, when it is time."""
        seconds = now - self._told_at
        if self._last is None or seconds < self.interval:
            return []
        text = self._words(self._last)
        if self._count > 1:
            more = f"{self._count:,} more {self._plural} in {seconds:.0f} s{self._more()}"
            text = f"{more}, the last: {text}"
        self._count = 0
        self._last = None
        self._told_at = now
        return [Notice(self._level, text)]

    def _more(self) -> str:
        """Return what the line for several says of them besides their number."""
        return ""

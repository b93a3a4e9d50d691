"""Many events of one kind in few lines of the log: the first at once, then one line in a while.

A handler that fails for every key would otherwise write a line for each, and the one that matters
could not be found. The line that stands for several shows the first of them: the others are only
counted, so that what happens a hundred thousand times a second is put into words once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from kafka_keyshared.core.commands import Level, Notice
from kafka_keyshared.model import About

INTERVAL = 10.0

LATELY = 1.0
"""What is told so many seconds after it happened, or later, is told with its age."""

What = TypeVar("What")


class Line(NamedTuple):
    """What there is to say of one event.

    ``follows`` is what follows from it, which is true only while it is new. ``traceback`` belongs
    to what is told at once.
    """

    text: str
    about: About | None = None
    follows: str = ""
    traceback: str = ""


def as_it_is(line: Line) -> Line:
    """Return a line that is in words already."""
    return line


class Burst(Generic[What]):
    """Events of one kind; ``plural`` names them in a line that stands for several.

    ``words`` puts one into words, if it is told. ``interval`` is the time between lines in seconds.
    """

    def __init__(
        self,
        level: Level,
        plural: str,
        words: Callable[[What], Line],
        interval: float = INTERVAL,
    ) -> None:
        self._level = level
        self._plural = plural
        self._words = words
        self._told_at = float("-inf")
        self._count = 0
        # Of those that are counted the first, and when the last of them was.
        self._first: What | None = None
        self._last_at = float("-inf")
        self.interval = interval

    def only_counted(self, now: float) -> bool:
        """Count an event that is not told by itself, and say so; else :meth:`add` has to take it.

        For whoever would rather not put it into words, or gather what belongs to it, for nothing.
        """
        if not self._count:
            return False
        self._count += 1
        self._last_at = now
        return True

    def add(self, what: What, now: float) -> list[Notice]:
        """Take an event; return its line if none was written lately."""
        if self.only_counted(now):
            return []
        if now - self._told_at >= self.interval:
            return self.at_once(self._words(what), now)
        self._count = 1
        self._first = what
        self._last_at = now
        return []

    def at_once(self, line: Line, now: float) -> list[Notice]:
        """Return the line of an event that is not to wait; those that have come before wait on."""
        if not self._count:
            self._told_at = now
        text = f"{line.text}{line.follows}"
        return [Notice(self._level, text, about=line.about, traceback=line.traceback)]

    def due(self, now: float) -> list[Notice]:
        """Return the line for what has come together since the last one, when it is time."""
        seconds = now - self._told_at
        if self._first is None or seconds < self.interval:
            return []
        line = self._words(self._first)
        text, about = line.text, line.about
        old = now - self._last_at
        ago = f"{old:.0f} s ago" if old >= LATELY else ""
        if self._count > 1:
            more = f"{self._count:,} more {self._plural} in {seconds:.0f} s{self._more()}"
            ago = ago and f", the last {ago}"
            text, about = f"{more}{ago}, the first: {text}", None
        elif ago:
            text = f"{ago}: {text}"
        self._count = 0
        self._first = None
        self._told_at = now
        return [Notice(self._level, text, about=about)]

    def _more(self) -> str:
        """Return what the line for several says of them besides their number."""
        return ""

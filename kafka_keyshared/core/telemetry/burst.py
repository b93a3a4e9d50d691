"""Rate-limited log lines for many events of one kind.

The first event is logged at once; later events share one line per interval. A handler that fails
for every key would otherwise write a line for each, and hide the line that matters. The shared line
shows its first event. The other events are only counted, so an event that occurs 100,000 times a
second is formatted once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from kafka_keyshared.core.contract.commands import Level, Notice
from kafka_keyshared.model import About

INTERVAL = 10.0

LATELY = 1.0
"""Age in seconds from which a line states how old its event is."""

What = TypeVar("What")


class EventLine(NamedTuple):
    """The log text of one event.

    ``follows`` is the consequence of the event, which is true only while it is new. ``traceback``
    is logged only with an event that is logged at once.
    """

    text: str
    about: About | None = None
    follows: str = ""
    traceback: str = ""


def as_it_is(line: EventLine) -> EventLine:
    """Return a line that is text already."""
    return line


class Burst(Generic[What]):
    """Events of one kind; ``plural`` names them in a line for several events.

    ``words`` formats an event that is logged. ``interval`` is the time between lines in seconds.
    """

    def __init__(
        self,
        level: Level,
        plural: str,
        words: Callable[[What], EventLine],
        interval: float = INTERVAL,
    ) -> None:
        self._level = level
        self._plural = plural
        self._words = words
        self._told_at = float("-inf")
        self._count = 0
        # The first of the counted events, and the time of the last one.
        self._first: What | None = None
        self._last_at = float("-inf")
        self.interval = interval

    def only_counted(self, now: float) -> bool:
        """Count an event that gets no line of its own, and return True; else return False.

        If False, :meth:`add` has to take the event. This avoids formatting an event, or collecting
        its details, for nothing.
        """
        if not self._count:
            return False
        self._count += 1
        self._last_at = now
        return True

    def add(self, what: What, now: float) -> list[Notice]:
        """Take an event; return its line unless one was written within the interval."""
        if self.only_counted(now):
            return []
        if now - self._told_at >= self.interval:
            return self.at_once(self._words(what), now)
        self._count = 1
        self._first = what
        self._last_at = now
        return []

    def at_once(self, line: EventLine, now: float) -> list[Notice]:
        """Return the line of an event that cannot wait; counted earlier events go on waiting."""
        if not self._count:
            self._told_at = now
        text = f"{line.text}{line.follows}"
        return [Notice(self._level, text, about=line.about, traceback=line.traceback)]

    def due(self, now: float) -> list[Notice]:
        """Return the line for the events since the last line, when the interval is over."""
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
        """Return extra text for a line that stands for several events."""
        return ""

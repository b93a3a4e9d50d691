"""Many events of one kind in few lines of the log: the first at once, then one line in a while.

A handler that fails for every key would otherwise write a line for each, and the one that matters
could not be found.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_keyshared.core.events import Level, Notice

INTERVAL = 10.0


class Burst:
    """Events of one kind; ``plural`` names them in a line that stands for several."""

    def __init__(self, level: Level, plural: str) -> None:
        self._level = level
        self._plural = plural
        self._told_at = float("-inf")
        self._count = 0
        self._last = ""
        self.interval = INTERVAL

    def add(self, text: str, now: float) -> list[Notice]:
        """Take an event; return its line if none was written lately."""
        if not self._count and now - self._told_at >= self.interval:
            self._told_at = now
            return [Notice(self._level, text)]
        self._count += 1
        self._last = text
        return []

    def due(self, now: float) -> list[Notice]:
        """Return the line for what has come together since the last one, when it is time."""
        seconds = now - self._told_at
        if not self._count or seconds < self.interval:
            return []
        text = self._last
        if self._count > 1:
            text = f"{self._count:,} more {self._plural} in {seconds:.0f} s, the last: {text}"
        self._count = 0
        self._told_at = now
        return [Notice(self._level, text)]


@dataclass(slots=True)
class Bursts:
    """What a subscription has to tell that may come in any number."""

    dead_letters: Burst = field(
        default_factory=lambda: Burst(Level.WARNING, "records went to the dead-letter topic")
    )
    refusals: Burst = field(
        default_factory=lambda: Burst(Level.ERROR, "dead letters were not written")
    )
    undecodable: Burst = field(
        default_factory=lambda: Burst(Level.WARNING, "records had no readable key")
    )
    unread: Burst = field(
        default_factory=lambda: Burst(Level.ERROR, "times a key could not be read yet")
    )
    blocks: Burst = field(default_factory=lambda: Burst(Level.ERROR, "keys are blocked"))
    held_back: Burst = field(
        default_factory=lambda: Burst(Level.INFO, "times a partition was held back")
    )

    def due(self, now: float) -> list[Notice]:
        """Return the lines for which it is time."""
        return [notice for burst in self._all() for notice in burst.due(now)]

    def hurry(self, now: float) -> list[Notice]:
        """Return what is left to tell, and hold nothing back any more: the end is near."""
        for burst in self._all():
            burst.interval = 0.0
        return self.due(now)

    def _all(self) -> tuple[Burst, ...]:
        return (
            self.dead_letters,
            self.refusals,
            self.undecodable,
            self.unread,
            self.blocks,
            self.held_back,
        )

"""Rate-limited log lines of a subscription, and their levels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kafka_keyshared.core.contract.commands import Level, Notice
from kafka_keyshared.core.telemetry.burst import INTERVAL, Burst, EventLine, as_it_is
from kafka_keyshared.core.telemetry.failure_lines import Attempts

UNREAD_INTERVAL = 60.0
"""Seconds between two lines about unreadable keys; a key is tried every few seconds."""


def _lines(level: Level, plural: str, interval: float = INTERVAL) -> Burst[EventLine]:
    return Burst(level, plural, as_it_is, interval)


@dataclass(slots=True)
class Bursts:
    """The events of a subscription that may come in any number."""

    attempts: Attempts = field(
        default_factory=lambda: Attempts(Level.WARNING, "attempts failed", whole=True)
    )
    asked: Attempts = field(
        default_factory=lambda: Attempts(Level.INFO, "attempts asked to be made again", whole=False)
    )
    dead_letters: Burst[EventLine] = field(
        default_factory=lambda: _lines(Level.WARNING, "records went to the dead-letter topic")
    )
    diversions: Burst[EventLine] = field(
        default_factory=lambda: _lines(Level.ERROR, "keys are diverted")
    )
    diverted: Burst[EventLine] = field(
        default_factory=lambda: _lines(
            Level.WARNING, "records of diverted keys went to the dead-letter topic"
        )
    )
    refusals: Burst[EventLine] = field(
        default_factory=lambda: _lines(Level.ERROR, "dead letters were not written")
    )
    undecodable: Burst[EventLine] = field(
        default_factory=lambda: _lines(Level.WARNING, "records had no readable key")
    )
    unread: Burst[EventLine] = field(
        default_factory=lambda: _lines(
            Level.ERROR, "times a key could not be read yet", UNREAD_INTERVAL
        )
    )
    blocks: Burst[EventLine] = field(
        default_factory=lambda: _lines(Level.ERROR, "keys are blocked")
    )
    shed: Burst[EventLine] = field(
        default_factory=lambda: _lines(Level.WARNING, "times a worker was full and records dropped")
    )
    stuck: Burst[EventLine] = field(
        default_factory=lambda: _lines(Level.ERROR, "records are stuck")
    )
    held: Burst[EventLine] = field(
        default_factory=lambda: _lines(Level.WARNING, "times records were held for a worker")
    )
    held_back: Burst[EventLine] = field(
        default_factory=lambda: _lines(Level.INFO, "times a partition was held back")
    )

    def due(self, now: float) -> list[Notice]:
        """Return the lines that are due."""
        return [notice for burst in self._all() for notice in burst.due(now)]

    def hurry(self, now: float) -> list[Notice]:
        """Return all remaining lines and delay none from now on, because the stop is near."""
        for burst in self._all():
            burst.interval = 0.0
        return self.due(now)

    def _all(self) -> tuple[Burst[Any], ...]:
        return (
            self.attempts,
            self.asked,
            self.dead_letters,
            self.diversions,
            self.diverted,
            self.refusals,
            self.undecodable,
            self.unread,
            self.blocks,
            self.shed,
            self.stuck,
            self.held,
            self.held_back,
        )

"""What goes between a simulated client and its brokers: in order, later, and sometimes not at all.

What is sent while nobody is there waits, and goes on its way when somebody is there again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kafka_keyshared.sim.timeline import Action, Timeline


class Brokers(Protocol):
    """What a link has to know of the cluster at its other end."""

    timeline: Timeline

    def there(self) -> bool:
        """Say whether brokers take connections."""

    def coordinator_there(self) -> bool:
        """Say whether the group's coordinator answers."""

    def latency(self) -> float:
        """Return how many seconds something takes on its way."""


class Link:
    """The connections of one client. ``connected`` is the client's end, dead when it has ended."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._timeline = brokers.timeline
        self.connected = True
        self.dead = False
        self._lands = False
        # Counts the times that it was cut, so that a check can tell one from the next.
        self.cuts = 0
        self._heard_at = self._asked_at = 0.0
        self._to_hear: list[Action] = []
        self._to_ask: list[Action] = []

    def open(self) -> bool:
        """Say whether anything gets through."""
        return self.connected and self._brokers.there()

    def coordinated(self) -> bool:
        """Say whether the coordinator can be reached."""
        return self.connected and self._brokers.coordinator_there()

    def hear(self, action: Action) -> None:
        """Have that happen when word of it has reached the client."""
        self._heard_at = when = max(self._heard_at, self._soon())
        self._timeline.at(when, lambda: self._pass(action, self._to_hear, self.open))

    def ask(self, action: Action) -> None:
        """Have that happen when word of it has reached the coordinator."""
        self._asked_at = when = max(self._asked_at, self._soon())
        self._timeline.at(when, lambda: self._land(action))

    def _soon(self) -> float:
        return self._timeline.now + self._brokers.latency()

    def _land(self, action: Action) -> None:
        if not self.dead:
            self._pass(action, self._to_ask, self.coordinated)
        elif self._lands and self._brokers.coordinator_there():
            action()

    def _pass(self, action: Action, waiting: list[Action], through: Callable[[], bool]) -> None:
        if self.dead:
            return
        if waiting or not through():
            waiting.append(action)
        else:
            action()

    def healed(self) -> None:
        """Let go on what has waited, as far as somebody is there now."""
        for waiting, send, through in (
            (self._to_hear, self.hear, self.open),
            (self._to_ask, self.ask, self.coordinated),
        ):
            if through():
                again, waiting[:] = waiting[:], []
                for action in again:
                    send(action)

    def cut(self) -> int:
        """Let nothing through; return which cut this is."""
        self.connected = False
        self.cuts += 1
        return self.cuts

    def end(self, *, lands: bool) -> None:
        """Let nothing through ever again; ``lands`` says whether what is on its way arrives."""
        self.cut()
        self.dead = True
        self._lands = lands
        self._to_hear.clear()
        self._to_ask.clear()

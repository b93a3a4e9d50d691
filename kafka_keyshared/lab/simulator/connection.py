"""Connections of a simulated client to its brokers.

Messages arrive in order, later, and sometimes not at all. A message that is sent while the other
end is away waits, and continues when that is back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kafka_keyshared.lab.simulator.timeline import Action, Timeline


class LinkedBrokers(Protocol):
    """The parts of the cluster that a link needs."""

    timeline: Timeline

    def there(self) -> bool:
        """Return whether brokers accept connections."""

    def coordinator_there(self) -> bool:
        """Return whether the group's coordinator answers."""

    def latency(self) -> float:
        """Return how many seconds a message takes."""


class Link:
    """The connections of one client. ``connected`` is its own end, ``dead`` once it has ended."""

    def __init__(self, brokers: LinkedBrokers) -> None:
        self._brokers = brokers
        self._timeline = brokers.timeline
        self.connected = True
        self.dead = False
        self._lands = False
        # Number of cuts, so that a check can distinguish one from the next.
        self.cuts = 0
        self._heard_at = self._asked_at = 0.0
        self._to_hear: list[Action] = []
        self._to_ask: list[Action] = []

    def open(self) -> bool:
        """Return whether anything gets through."""
        return self.connected and self._brokers.there()

    def coordinated(self) -> bool:
        """Return whether the coordinator can be reached."""
        return self.connected and self._brokers.coordinator_there()

    def hear(self, action: Action) -> None:
        """Run the action when its message has reached the client."""
        self._heard_at = when = max(self._heard_at, self._soon())
        self._timeline.at(when, lambda: self._pass(action, self._to_hear, self.open))

    def ask(self, action: Action) -> None:
        """Run the action when its message has reached the coordinator."""
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
        """Let waiting messages continue, as far as the other end is back."""
        for waiting, send, through in (
            (self._to_hear, self.hear, self.open),
            (self._to_ask, self.ask, self.coordinated),
        ):
            if through():
                again, waiting[:] = waiting[:], []
                for action in again:
                    send(action)

    def cut(self) -> int:
        """Block all messages; return the number of this cut."""
        self.connected = False
        self.cuts += 1
        return self.cuts

    def end(self, *, lands: bool) -> None:
        """Block all messages for good; ``lands`` says whether those in flight arrive."""
        self.cut()
        self.dead = True
        self._lands = lands
        self._to_hear.clear()
        self._to_ask.clear()

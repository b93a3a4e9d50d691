"""Simulated time: scheduled actions, and waits that block no thread.

There are no threads. A caller that waits runs the timeline. Everything due happens inside of the
wait, including the turns of other members. To all others, that is the same as a real wait.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

Action = Callable[[], None]


def never() -> bool:
    """Return False, for a wait that takes its whole time."""
    return False


def nothing() -> None:
    """Do nothing."""


class Killed(BaseException):
    """Raised out of a wait in a process that was killed during it: nothing of it goes on."""


class Timeline:
    """Scheduled actions by time. At the same time they run in the order of their entry."""

    def __init__(self, start: float = 1_000.0) -> None:
        self.now = start
        self._due: list[tuple[float, int, Action]] = []
        self._entered = 0

    def at(self, when: float, action: Action) -> None:
        """Run the action at that time, or next if that has passed."""
        self._entered += 1
        heapq.heappush(self._due, (when, self._entered, action))

    def after(self, seconds: float, action: Action) -> None:
        """Run the action after ``seconds``."""
        self.at(self.now + seconds, action)

    def run(self, until: float, over: Callable[[], bool] = never) -> None:
        """Run everything that is due, up to a time, or until ``over`` holds.

        The time may be later than that afterwards: an action may itself have waited.
        """
        due = self._due
        while not over():
            if not due or due[0][0] > until:
                self.now = max(self.now, until)
                return
            when, _, action = heapq.heappop(due)
            self.now = max(self.now, when)
            action()


class SimulatedProcess:
    """One process of the simulated machine: alive until it is killed, or has ended."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.alive = True
        # When the current wait should be over, and when a wait last took longer.
        self._due = float("inf")
        self._late = float("-inf")

    def wait(self, seconds: float, over: Callable[[], bool] = never) -> None:
        """Wait at most ``seconds``, or until ``over`` holds. Raises :class:`Killed`."""
        timeline = self.timeline
        if seconds > 0:
            before, due = self._due, timeline.now + seconds
            self._due = due
            timeline.run(due, lambda: over() or not self.alive)
            self._due = before
            if timeline.now > due:
                self._late = timeline.now
        if not self.alive:
            raise Killed

    def callback(self, call: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return the callback as one that raises :class:`Killed` if its process was killed in it.

        Code that catches every exception in a callback catches :class:`Killed`, too.
        """

        def called(about: Any) -> None:
            call(about)
            if not self.alive:
                raise Killed

        return called

    def free_since(self) -> float:
        """Return since when it has not been delayed; infinity while it is.

        A process is delayed if it waits longer than it meant to, because others wait inside of its
        wait.
        """
        return float("inf") if self.timeline.now > self._due else self._late

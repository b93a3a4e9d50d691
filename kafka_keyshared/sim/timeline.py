"""Made-up time: what is to happen and when, and how somebody waits without anybody standing still.

There are no threads. Whoever waits lets the timeline run, so that what is due meanwhile happens
inside of the wait, the turns of other members too. That is what a wait is to everybody else.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

Action = Callable[[], None]


def never() -> bool:
    """Say that it is not over: a wait that takes its whole time."""
    return False


def nothing() -> None:
    """Do nothing."""


class Killed(BaseException):
    """Raised out of a wait in a process that was killed meanwhile: nothing of it goes on."""


class Timeline:
    """What is to happen, by time; at the same time, in the order in which it was entered."""

    def __init__(self, start: float = 1_000.0) -> None:
        self.now = start
        self._due: list[tuple[float, int, Action]] = []
        self._entered = 0

    def at(self, when: float, action: Action) -> None:
        """Have that happen then, or next if that has passed."""
        self._entered += 1
        heapq.heappush(self._due, (when, self._entered, action))

    def after(self, seconds: float, action: Action) -> None:
        """Have that happen so many seconds from now."""
        self.at(self.now + seconds, action)

    def run(self, until: float, over: Callable[[], bool] = never) -> None:
        """Let everything happen that is due, up to a time, or up to when it is ``over``.

        It may be later than that afterwards: something that happened has waited itself.
        """
        due = self._due
        while not over():
            if not due or due[0][0] > until:
                self.now = max(self.now, until)
                return
            when, _, action = heapq.heappop(due)
            self.now = max(self.now, when)
            action()


class Process:
    """One process of the simulated machine: alive until it is killed, or has ended."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.alive = True
        # When the wait of this moment should be over, and when one was last that took longer.
        self._due = float("inf")
        self._late = float("-inf")

    def wait(self, seconds: float, over: Callable[[], bool] = never) -> None:
        """Wait, at most so long, or until it is ``over``. Raises :class:`Killed`."""
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
        """Return the callback as one that nobody comes out of whose process was killed in it.

        Whoever catches all that is raised in a callback catches :class:`Killed`, too.
        """

        def called(about: Any) -> None:
            call(about)
            if not self.alive:
                raise Killed

        return called

    def free_since(self) -> float:
        """Return since when it has not been held up; infinity while it is.

        Held up is who waits longer than he wanted to, because others wait inside of that.
        """
        return float("inf") if self.timeline.now > self._due else self._late

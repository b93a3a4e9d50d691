"""Event loop in simulated time, in the caller's thread.

It turns when the timeline says so.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import Context
from typing import Any, TypeVarTuple

from kafka_keyshared.lab.simulator.timeline import SimulatedProcess

Given = TypeVarTuple("Given")

TURNS_MOST = 50
"""Turns in a row before others have a turn."""


class _NoFiles:
    """A selector without any files to wait for."""

    def select(self, timeout: float | None = None) -> list[Any]:
        """Return at once: nothing is ready."""
        del timeout
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """Asyncio's own loop without real waits. ``wanted`` says that it has to turn."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self._selector = _NoFiles()
        self._now = now
        self.wanted = False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report nothing: tasks that are ended with the loop may end in any way."""
        del context

    def time(self) -> float:
        """Return the simulated time."""
        return self._now()

    def _process_events(self, event_list: list[Any]) -> None:
        del event_list

    def call_soon(
        self,
        callback: Callable[[*Given], object],
        *args: *Given,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Call it in the next turn."""
        self.wanted = True
        return super().call_soon(callback, *args, context=context)

    def turn(self) -> bool:
        """Run everything that is ready now; return whether there is more."""
        self.call_soon(self.stop)
        self.wanted = False
        self.run_forever()
        return self.wanted


class SimHost:
    """Runs the loop of one process. See
    :class:`kafka_keyshared.executors.coroutines.event_loop.Host`.

    ``latency`` draws the seconds until a loop with work turns. ``pauses`` draws whether others have
    a turn between two of its own, as the owner's thread has.
    """

    def __init__(
        self, process: SimulatedProcess, latency: Callable[[], float], pauses: Callable[[], bool]
    ) -> None:
        self._process = process
        self._latency = latency
        self._pauses = pauses
        self._scheduled = False
        self.alive = False
        self._loop: VirtualLoop | None = None
        # Ended loops with their tasks. A loop keeps no waiting task, and Python would end an
        # unreferenced one in the middle of other code.
        self._dead: list[tuple[VirtualLoop, set[asyncio.Task[Any]]]] = []

    def start(self) -> None:
        """Start the loop, also again."""
        self._loop = VirtualLoop(lambda: self._process.timeline.now)
        self.alive = True

    def tell(self, what: Callable[[], object]) -> None:
        """Make the loop call it soon."""
        if self.alive and self._loop is not None:
            self._loop.call_soon(what)
            self._turn_later()

    def wait(self, event: threading.Event, timeout: float | None = None) -> bool:
        """Turn until the event is set, or nothing is left to do at this moment."""
        del timeout
        while self.alive and self._loop is not None and not event.is_set():
            if not self._loop.turn():
                break
        return event.is_set()

    def standing(self) -> str:
        """Return an empty text: there is no thread."""
        return ""

    def stack(self) -> str:
        """Return an empty text: there is no thread."""
        return ""

    def close(self) -> None:
        """Do nothing."""

    def die(self) -> None:
        """End the loop in the middle of its work. Nothing of it is reported later."""
        if self._loop is not None:
            self._dead.append((self._loop, asyncio.all_tasks(self._loop)))
        self._loop, self.alive = None, False

    def bury(self) -> None:
        """End the remaining tasks of every loop, so that none of them runs later."""
        self.die()
        for loop, tasks in self._dead:
            for _ in range(TURNS_MOST):
                for task in tasks:
                    task.cancel()
                loop.turn()
                if all(task.done() for task in tasks):
                    break
            loop.close()
        self._dead.clear()

    def _turn_later(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._process.timeline.after(self._latency(), self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        if not self.alive or not self._process.alive or self._loop is None:
            return
        for _ in range(TURNS_MOST):
            if not self._loop.turn():
                return
            if self._pauses():
                break
        self._turn_later()

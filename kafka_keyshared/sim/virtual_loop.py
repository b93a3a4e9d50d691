"""An event loop in made-up time: it turns when the timeline says so, in the caller's thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import Context
from typing import Any, TypeVarTuple

from kafka_keyshared.sim.timeline import Process

Given = TypeVarTuple("Given")

TURNS_MOST = 50
"""Turns in a row before others have a turn."""


class _NoFiles:
    """There are no files to wait for, and nothing to wait with."""

    def select(self, timeout: float | None = None) -> list[Any]:
        """Return at once: nothing is ready."""
        del timeout
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop: asyncio's own, without what would wait. ``wanted`` says that it has to turn."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self._selector = _NoFiles()
        self._now = now
        self.wanted = False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Say nothing: what is buried may end as it likes."""
        del context

    def time(self) -> float:
        """Return the made-up time."""
        return self._now()

    def _process_events(self, event_list: list[Any]) -> None:
        del event_list

    def call_soon(
        self,
        callback: Callable[[*Given], object],
        *args: *Given,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Have it called in the next turn."""
        self.wanted = True
        return super().call_soon(callback, *args, context=context)

    def turn(self) -> bool:
        """Do what is to be done now; say whether there is more."""
        self.call_soon(self.stop)
        self.wanted = False
        self.run_forever()
        return self.wanted


class SimHost:
    """Runs the loop of one process. See :class:`kafka_keyshared.pools.loop_host.Host`.

    ``latency`` draws how long it takes in seconds until the loop turns that has something to do,
    ``pauses`` whether others have a turn between two of its own, as the owner's thread has.
    """

    def __init__(
        self, process: Process, latency: Callable[[], float], pauses: Callable[[], bool]
    ) -> None:
        self._process = process
        self._latency = latency
        self._pauses = pauses
        self._scheduled = False
        self.alive = False
        self._loop: VirtualLoop | None = None
        # With their tasks: a loop keeps none that waits, and what Python does with one once nobody
        # has it would be in the middle of something else.
        self._dead: list[tuple[VirtualLoop, set[asyncio.Task[Any]]]] = []

    def start(self) -> None:
        """Begin, also anew."""
        self._loop = VirtualLoop(lambda: self._process.timeline.now)
        self.alive = True

    def tell(self, what: Callable[[], object]) -> None:
        """Have the loop call it soon."""
        if self.alive and self._loop is not None:
            self._loop.call_soon(what)
            self._turn_later()

    def wait(self, event: threading.Event, timeout: float | None = None) -> bool:
        """Turn until that is so, or nothing is left to be done at this moment."""
        del timeout
        while self.alive and self._loop is not None and not event.is_set():
            if not self._loop.turn():
                break
        return event.is_set()

    def standing(self) -> str:
        """Return nothing: no thread stands anywhere."""
        return ""

    def stack(self) -> str:
        """Return nothing, for the same reason."""
        return ""

    def close(self) -> None:
        """Let nothing begin any more."""

    def die(self) -> None:
        """End in the middle of whatever runs there; nothing of it is heard any more."""
        if self._loop is not None:
            self._dead.append((self._loop, asyncio.all_tasks(self._loop)))
        self._loop, self.alive = None, False

    def bury(self) -> None:
        """End what is left on every loop that there was, so that nothing of it runs later."""
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

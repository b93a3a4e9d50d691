"""Inline pool of coroutines, on an event loop in the caller's thread.

The loop runs only while the caller waits for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from kafka_keyshared.clock import Clock
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.executors.coroutines.asyncio_pool import MakeWorker, TaskPool
from kafka_keyshared.executors.coroutines.asyncio_record_worker import TaskWorker
from kafka_keyshared.executors.coroutines.event_loop import end_tasks
from kafka_keyshared.executors.coroutines.task_frames import turning
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.platform.reentry_guard import handling

BUSY_TURNS = 100
"""Turns of the loop after which the handlers are assumed to wait for something outside."""

LOOK_AGAIN = 0.001
"""Seconds between two checks after that."""


class InlineLoop:
    """An event loop of this thread. See
    :class:`~kafka_keyshared.executors.coroutines.event_loop.Host`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    @property
    def alive(self) -> bool:
        """Return whether it has not been closed."""
        return not self._loop.is_closed()

    def start(self) -> None:
        """Do nothing: the loop runs when its result is awaited."""

    def tell(self, what: Callable[[], object]) -> None:
        """Schedule a call for the next turn of the loop."""
        if self.alive:
            self._loop.call_soon_threadsafe(what)

    def wait(self, event: threading.Event, timeout: float | None = None) -> bool:
        """Run the loop until the event is set; ``timeout`` is ignored."""
        del timeout
        self.turn_until(event.is_set)
        return event.is_set()

    def turn_until(self, over: Callable[[], bool]) -> None:
        """Run the loop until ``over()``; raises :class:`ConfigError` inside a running loop."""
        if turning() is not None:
            self._loop.close()
            raise ConfigError(
                "coroutines of a handler run here on an event loop of their own, and this thread "
                "runs one already: call this from a plain function, or with asyncio.to_thread()"
            )

        async def look() -> None:
            turns = 0
            while not over():
                turns += 1
                await asyncio.sleep(0 if turns < BUSY_TURNS else LOOK_AGAIN)

        if self.alive and not over():
            with handling():
                self._loop.run_until_complete(look())

    def standing(self) -> str:
        """Return nothing: the caller itself is inside the loop."""
        return ""

    def stack(self) -> str:
        """Return nothing, because the caller itself is inside the loop."""
        return ""

    def close(self) -> None:
        """End the tasks that handlers have left on the loop, and close it."""
        if self.alive:
            end_tasks(self._loop)
            self._loop.close()


class InlineTasks(TaskPool):
    """Runs coroutines in the thread that calls :meth:`work`, until none can make progress."""

    def __init__(
        self,
        specs: list[WorkerSpec],
        mailbox: SimpleQueue[Any],
        clock: Clock,
        *,
        limit: int,
        make: MakeWorker = TaskWorker,
    ) -> None:
        self._loop = InlineLoop()
        super().__init__(specs, mailbox, clock, limit=limit, host=self._loop, make=make)

    def work(self) -> None:
        """Run every worker until it has no work left."""
        workers = self.workers.values()
        self._loop.turn_until(lambda: not (self._inbox or any(each.given for each in workers)))

    def close(self) -> None:
        """Close the handlers and the loop."""
        self.stop(0.0)
        self._loop.close()

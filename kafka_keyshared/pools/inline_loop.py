"""Coroutines on an event loop that turns only while somebody waits for them, in their thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from kafka_keyshared.clock import Clock
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.pools.awaited import turning
from kafka_keyshared.pools.loop_host import end_tasks
from kafka_keyshared.pools.runners import TaskWorker
from kafka_keyshared.pools.tasks import MakeWorker, TaskPool
from kafka_keyshared.pools.worker_cells import WorkerSpec
from kafka_keyshared.program.importing import handling

BUSY_TURNS = 100
"""Turns of the loop after which handlers are taken to wait for something outside."""

LOOK_AGAIN = 0.001
"""Seconds between two looks then."""


class InlineLoop:
    """An event loop of this thread. See :class:`~.loop_host.Host`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    @property
    def alive(self) -> bool:
        """Say whether it has not been closed."""
        return not self._loop.is_closed()

    def start(self) -> None:
        """Do nothing: it turns when something is waited for."""

    def tell(self, what: Callable[[], object]) -> None:
        """Have it called when the loop turns next."""
        if self.alive:
            self._loop.call_soon_threadsafe(what)

    def wait(self, event: threading.Event, timeout: float | None = None) -> bool:
        """Turn until the event is set; it takes as long as the handler does."""
        del timeout
        self.turn_until(event.is_set)
        return event.is_set()

    def turn_until(self, over: Callable[[], bool]) -> None:
        """Turn until it is over. Raises :class:`ConfigError` on a thread whose loop turns."""
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
        """Return nothing: whoever could ask is in there."""
        return ""

    def stack(self) -> str:
        """Return nothing, for the same reason."""
        return ""

    def close(self) -> None:
        """End what handlers have left on the loop, and close it."""
        if self.alive:
            end_tasks(self._loop)
            self._loop.close()


class InlineTasks(TaskPool):
    """Runs coroutines where :meth:`work` is called, until none of them can go on."""

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
        """Let every worker do all that it has."""
        workers = self.workers.values()
        self._loop.turn_until(lambda: not (self._inbox or any(each.given for each in workers)))

    def close(self) -> None:
        """Close the handlers, and the loop."""
        self.stop(0.0)
        self._loop.close()

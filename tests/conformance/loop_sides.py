"""Pools whose owner or event loop is somebody's own, with one worker that is stepped."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract.commands import Fence
from kafka_keyshared.core.contract.slices import Slice
from kafka_keyshared.executors.coroutines.event_loop import CallersLoop, OwnLoop
from kafka_keyshared.executors.inline.driver import InlinePool
from kafka_keyshared.executors.thread_state import WorkerSpec
from tests.conformance.pool_sides import WAIT, Tasks, Threads
from tests.support.records import failure

TURNS = 12


class OwnTasks(Tasks):
    """Coroutines on an event loop that has a thread of its own, as an app runs them."""

    def make_host(self) -> Any:
        return OwnLoop()

    def turn(self) -> None:
        for _ in range(TURNS if self.host.alive else 0):
            turned = threading.Event()
            self.host.tell(turned.set)
            assert turned.wait(WAIT), "the loop does not turn"

    def end_loop(self) -> None:
        self.host.close()


class CallersTasks(OwnTasks):
    """Coroutines on the event loop of a caller, who runs it on a thread of theirs."""

    def make_host(self) -> Any:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

        async def make() -> CallersLoop:
            return CallersLoop()

        return asyncio.run_coroutine_threadsafe(make(), self._loop).result(WAIT)

    def lose(self) -> None:
        self.is_lost = True
        for record in self.rules.running():
            self._note_end(failure(), record)
        self.end_loop()

    def end_loop(self) -> None:
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT)
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.close()


class Inline(Threads):
    """Handlers on their owner's thread, which is in them while the test does something else.

    In a program the owner does nothing else meanwhile: what is asked here of a worker that is in a
    record is more than it ever has to answer.
    """

    knows_where = mortal = timed = False

    def __init__(self) -> None:
        self._wanted = threading.Semaphore(0)
        self._over = False
        super().__init__()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def make_pool(self, spec: WorkerSpec) -> InlinePool:
        return InlinePool([spec], self._stream, Clock(wall=self._wall))

    def _work(self) -> None:
        while self._wanted.acquire() and not self._over:
            self.pool.work()

    def _next(self) -> Any:
        self._wanted.release()
        return super()._next()

    def give(self, slice_: Slice) -> None:
        super().give(slice_)
        self._wanted.release()

    def put(self, fence: Fence) -> None:
        super().put(fence)
        self._wanted.release()

    def _lives(self) -> bool:
        return self._thread.is_alive()

    def _await_end(self) -> None:
        """Its thread is the owner's, and goes on."""

    def close(self) -> None:
        super().close()
        self._over = True
        self._wanted.release()
        self._thread.join(WAIT)

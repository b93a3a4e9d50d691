"""Threads for ``asyncio.to_thread()`` that do not keep a program from exiting.

The executor that an event loop makes for itself has threads that the interpreter joins when it
exits, without a limit: a call that hangs on one of them would keep the program although its run has
ended. Daemon threads are left behind, as those of handlers are.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

MOST = min(32, (os.cpu_count() or 1) + 4)
"""As many as a loop's own executor has."""


class DaemonThreads(ThreadPoolExecutor):
    """An executor with daemon threads; a loop takes none that is no :class:`ThreadPoolExecutor`."""

    def __init__(self, name: str) -> None:
        super().__init__(max_workers=MOST, thread_name_prefix=name)
        self._name = name
        self._todo: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._starting = threading.Lock()
        self._free = threading.Semaphore(0)
        self._count = 0

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Have a thread call this; return the future of its result."""
        future: Future[T] = Future()
        self._todo.put((future, partial(fn, *args, **kwargs)))
        with self._starting:
            if not self._free.acquire(blocking=False) and self._count < MOST:
                name = f"{self._name}_{self._count}"
                self._count += 1
                threading.Thread(target=self._work, name=name, daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the threads end behind what they have; nothing waits for them."""
        del wait, cancel_futures
        with self._starting:
            for _ in range(self._count):
                self._todo.put(None)

    def _work(self) -> None:
        while (item := self._todo.get()) is not None:
            future, call = item
            if future.set_running_or_notify_cancel():
                try:
                    result = call()
                except BaseException as error:  # noqa: BLE001 - raised where the future is awaited
                    future.set_exception(error)
                else:
                    future.set_result(result)
            del item, future, call
            self._free.release()

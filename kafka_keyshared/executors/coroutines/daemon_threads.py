"""Daemon threads for ``asyncio.to_thread()``, which do not block interpreter exit.

The default executor of an event loop has threads that the interpreter joins at exit, without a
limit. A hanging call on one of them would keep the program alive although its run has ended. Daemon
threads are left behind, as handler threads are.
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
"""Most threads, as many as the default executor of a loop has."""


class DaemonThreads(ThreadPoolExecutor):
    """An executor with daemon threads; a loop accepts only a :class:`ThreadPoolExecutor`."""

    def __init__(self, name: str) -> None:
        super().__init__(max_workers=MOST, thread_name_prefix=name)
        self._name = name
        self._todo: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._starting = threading.Lock()
        self._free = threading.Semaphore(0)
        self._count = 0

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run the call on a thread; return the future of its result."""
        future: Future[T] = Future()
        self._todo.put((future, partial(fn, *args, **kwargs)))
        with self._starting:
            if not self._free.acquire(blocking=False) and self._count < MOST:
                name = f"{self._name}_{self._count}"
                self._count += 1
                threading.Thread(target=self._work, name=name, daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the threads end after their queued calls, without waiting for them."""
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

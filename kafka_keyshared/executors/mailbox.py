"""The owner's mailbox: any thread posts to it, the owner reads it."""

from __future__ import annotations

import threading
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


class Mailbox(SimpleQueue[T]):
    """A ``SimpleQueue`` whose wait always ends at its timeout.

    Before Python 3.13, ``SimpleQueue.get`` can wait for ever. That happens when a signal arrives
    late and its handler uses up the rest of the timeout. The owner waits 2 ms at a time, so a
    SIGTERM could hang the loop instead of stopping the instance. A lock computes its timeout again
    after a signal.
    """

    def __init__(self) -> None:
        super().__init__()
        self._bell = threading.Lock()
        self._bell.acquire()

    def put(self, item: T, block: bool = True, timeout: float | None = None) -> None:
        """Add an item; from any thread, and from a signal handler."""
        super().put(item, block, timeout)
        if self._bell.locked():
            with suppress(RuntimeError):  # another thread has released it at the same time
                self._bell.release()

    def get(self, block: bool = True, timeout: float | None = None) -> T:
        """Take the oldest item; wait at most ``timeout`` seconds, then raise ``queue.Empty``.

        It may give up sooner, if the bell is released late for an item that was already taken.
        """
        if block and self.empty():
            # Clear a signal for items taken without a wait; items that came since are in the queue.
            self._bell.acquire(blocking=False)
            if self.empty():
                self._bell.acquire(timeout=-1 if timeout is None else timeout)
        return self.get_nowait()

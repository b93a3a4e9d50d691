"""The owner's mailbox: a queue that anyone may put into, and only the owner takes from."""

from __future__ import annotations

import threading
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


class Mailbox(SimpleQueue[T]):
    """A ``SimpleQueue`` whose wait always ends in time.

    Before Python 3.13, ``SimpleQueue.get`` waits for ever when a signal comes so late that its
    handler uses up what is left of the timeout, and the owner waits 2 ms at a time: a SIGTERM could
    stop the loop instead of the instance. A lock works its timeout out anew after a signal.
    """

    def __init__(self) -> None:
        super().__init__()
        self._bell = threading.Lock()
        self._bell.acquire()

    def put(self, item: T, block: bool = True, timeout: float | None = None) -> None:
        """Add an item; from any thread, and from a signal handler."""
        super().put(item, block, timeout)
        if self._bell.locked():
            with suppress(RuntimeError):  # somebody else has rung it meanwhile
                self._bell.release()

    def get(self, block: bool = True, timeout: float | None = None) -> T:
        """Take the oldest item, waiting at most ``timeout`` seconds; raises ``queue.Empty``.

        It may give up sooner, when the bell is rung late for an item already taken.
        """
        if block and self.empty():
            # Rung for what was taken without a wait; whatever came since stands in the queue.
            self._bell.acquire(blocking=False)
            if self.empty():
                self._bell.acquire(timeout=-1 if timeout is None else timeout)
        return self.get_nowait()

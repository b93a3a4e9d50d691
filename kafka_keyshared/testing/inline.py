"""A thread pool without threads: its workers do their work in the thread that tells them to.

What a worker does, from making its handler to closing it, is the thread pool's own code.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kafka_keyshared.handling.handlers import Made
from kafka_keyshared.pools.threads import ThreadPool, WorkerCell


class InlinePool(ThreadPool):
    """Runs handlers where :meth:`work` is called, so that a test can use what is bound to a thread.

    A worker lives for as long as there is something to do and is called into life again for the
    next; its handler is kept meanwhile.
    """

    def work(self) -> None:
        """Let every worker do all that it has."""
        for cell in self.cells.values():
            if not cell.inbox.empty():
                self._live_once(cell)

    def close(self) -> None:
        """Close the handlers, as workers do when they end."""
        for cell in self.cells.values():
            make = cell.spec.make
            if isinstance(make, _Kept):
                cell.spec = replace(cell.spec, make=make.last)
                self._live_once(cell)

    def _live_once(self, cell: WorkerCell) -> None:
        cell.inbox.put(None)
        self._pid = os.getpid()  # a test may be forked from the process that made this
        self.live(cell)

    def start_worker(self, cell: WorkerCell) -> None:
        """Make its handler, or say why not; it has nothing to do yet."""
        cell.spec = replace(cell.spec, make=_Kept(cell.spec.make))
        self._live_once(cell)


class _Kept:
    """Makes a handler once and gives it out again and again, without what would close it."""

    def __init__(self, make: Callable[[], Made]) -> None:
        self._make = make
        self.made: Made | None = None

    def __call__(self) -> tuple[Callable[[Any], Any], None]:
        if self.made is None:
            self.made = self._make()
        return self.made[0], None

    def last(self) -> Made:
        """Give it out for the last time, with what closes it."""
        return self.made or self._make()

"""Worker processes at the system level: start, kill, reap.

No process is left to the exit function of ``multiprocessing``. That function would send SIGTERM,
which a process may ignore, and wait without a limit. A process that has not ended by itself is
killed: by the pool, or at the latest when the interpreter exits. Its whole process group is killed
with it. Processes that a handler has started would otherwise run on beside the next attempt.
"""

from __future__ import annotations

import atexit
import multiprocessing
import multiprocessing.process
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any

SPAWN = multiprocessing.get_context("spawn")
"""A forked process would have the client's sockets, and locks that are never released."""

KILLED_WITHIN = 1.0
"""Seconds to wait for the end of a killed process; it mostly takes milliseconds."""

LOOK_AGAIN = 0.02
"""Seconds between two checks whether a process has ended, if the system does not signal it."""

_reaping = threading.Lock()
"""Held while processes start and are reaped: multiprocessing keeps one list of all of them."""

_never = threading.Event()


class Spawned:
    """A started process. Any thread may query and kill it; one thread reaps it."""

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...], name: str) -> None:
        with _reaping:
            self._process = SPAWN.Process(target=target, args=args, name=name, daemon=True)
            self._process.start()
        self.pid = int(self._process.pid or 0)
        self._end = self._process.sentinel
        # The sentinel is a pipe. Children of the process can keep it open, and the process can
        # write into it. A pidfd is reliable, if the system has one.
        if hasattr(os, "pidfd_open"):
            with suppress(OSError):
                self._end = os.pidfd_open(self.pid)
                weakref.finalize(self, os.close, self._end)
        _running.add(self)

    def fileno(self) -> int:
        """Return the file descriptor that is readable once the process has ended."""
        return self._end

    def over(self, seconds: float = 0.0) -> bool:
        """Wait at most ``seconds`` for its end; return whether it has ended."""
        until = time.monotonic() + seconds
        while self._process.exitcode is None:
            if (left := until - time.monotonic()) <= 0:
                return False
            if wait([self._end], left) and self._process.exitcode is None:
                _never.wait(min(left, LOOK_AGAIN))
        return True

    def kill(self) -> None:
        """Kill it and its process group, unless it has ended."""
        with _reaping:
            if self._process.exitcode is not None:
                return
            with suppress(OSError):  # a new process may not have a group of its own yet
                os.killpg(self.pid, signal.SIGKILL)
            self._process.kill()

    def reap(self) -> int | None:
        """Reap the process; return its exit status, None if it does not end at all."""
        if not self.over(KILLED_WITHIN):
            self.kill()
            self.over(KILLED_WITHIN)
        with _reaping:
            _running.discard(self)
            if (status := self._process.exitcode) is not None:
                self._process.join()
                return status
            # The system does not end it, in spite of SIGKILL. Nothing may wait for it.
            children: set[Any] = getattr(multiprocessing.process, "_children", set())
            children.discard(self._process)
            return None


_running: set[Spawned] = set()
"""Processes that are started and not reaped."""


def kill_all() -> None:
    """Kill and reap the remaining processes, because the program exits."""
    left = list(_running)
    for each in left:
        each.kill()
    for each in left:
        each.reap()


# It runs before the exit function of multiprocessing, which was registered at its import.
atexit.register(kill_all)

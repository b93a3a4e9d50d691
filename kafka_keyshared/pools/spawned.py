"""A process of a worker as the system knows it: started, killed, reaped.

Nothing of it is left to the end of the program: ``multiprocessing`` would send SIGTERM then, which
a process may ignore, and wait for its end without a limit. What has not ended by itself is killed,
by the pool or, at the latest, when the interpreter exits. It is killed with all others of its
process group: what a handler has started would else run on beside the next attempt.
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
"""Forked, a process would have the client's sockets, and locks that nobody there lets go of."""

KILLED_WITHIN = 1.0
"""Seconds for which the end of a killed process is waited for; mostly it takes milliseconds."""

LOOK_AGAIN = 0.02
"""Seconds between two looks whether a process has ended, where the system does not say so."""

_reaping = threading.Lock()
"""Held while processes start and are reaped: multiprocessing keeps one list of all of them."""

_never = threading.Event()


class Spawned:
    """A process that has been started. Any thread may ask and kill; one reaps."""

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...], name: str) -> None:
        with _reaping:
            self._process = SPAWN.Process(target=target, args=args, name=name, daemon=True)
            self._process.start()
        self.pid = int(self._process.pid or 0)
        self._end = self._process.sentinel
        # The sentinel is a pipe that children of the process can keep open, and that the process
        # can write into. The system itself knows better, where it says so.
        if hasattr(os, "pidfd_open"):
            with suppress(OSError):
                self._end = os.pidfd_open(self.pid)
                weakref.finalize(self, os.close, self._end)
        _running.add(self)

    def fileno(self) -> int:
        """Return what is readable once it has ended."""
        return self._end

    def over(self, seconds: float = 0.0) -> bool:
        """Wait for its end at most so many seconds; say whether it has ended."""
        until = time.monotonic() + seconds
        while self._process.exitcode is None:
            if (left := until - time.monotonic()) <= 0:
                return False
            if wait([self._end], left) and self._process.exitcode is None:
                _never.wait(min(left, LOOK_AGAIN))
        return True

    def kill(self) -> None:
        """Kill it and the others of its group, unless it has ended."""
        with _reaping:
            if self._process.exitcode is not None:
                return
            with suppress(OSError):  # it is so new that it has no group of its own
                os.killpg(self.pid, signal.SIGKILL)
            self._process.kill()

    def reap(self) -> int | None:
        """Leave it behind; return its exit status, None where it does not end at all."""
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
"""What has been started, and not reaped."""


def kill_all() -> None:
    """Kill and reap what is left: the program exits."""
    left = list(_running)
    for each in left:
        each.kill()
    for each in left:
        each.reap()


# It runs before the exit function of multiprocessing, which was registered with its import.
atexit.register(kill_all)

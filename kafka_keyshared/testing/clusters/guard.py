"""A guard process that ends brokers with the process that started them.

It works however the owner dies. A small process holds the reading end of a pipe. When the owner is
gone, also by SIGKILL, the pipe ends. The guard then kills the watched processes and deletes the
data. The Linux kernel's signal at a parent's death would need less code. However, it comes when the
*thread* that started the broker ends, and only on Linux.

This file is also the guard's program and is run by its path, so it imports only the library.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_GONE_AFTER = 10.0


class ProcessGuard:
    """Watches processes for their owner; deletes ``directory`` on close or at the owner's end."""

    def __init__(self, directory: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).resolve()), str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            # Ctrl-C in a terminal signals the whole session, but the guard must outlast its owner.
            start_new_session=True,
        )
        _guards.add(self)

    def watch(self, pid: int) -> None:
        """Kill the process when the owner is gone."""
        self._tell(f"watch {pid}\n")

    def forget(self, pid: int) -> None:
        """Stop watching a process; call this once it has ended, since its id may be reused."""
        self._tell(f"forget {pid}\n")

    def close(self) -> None:
        """Kill all watched processes, delete the directory and wait until that is done."""
        _guards.discard(self)
        self.let_go()
        self._process.wait()

    def let_go(self) -> None:
        """Close this process's end of the pipe without waiting."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    def _tell(self, line: str) -> None:
        if self._process.stdin is not None:
            # If the guard was killed, the protection is lost, but the broker keeps running.
            with suppress(BrokenPipeError):
                self._process.stdin.write(line.encode())
                self._process.stdin.flush()


_guards: weakref.WeakSet[ProcessGuard] = weakref.WeakSet()


def _let_go_in_child() -> None:
    # A forked child holds the pipe too, and a broker would live as long as the child.
    for guard in list(_guards):
        guard.let_go()
    _guards.clear()


if __name__ != "__main__" and hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_in_child)


def watched_at_end(lines: Iterable[bytes]) -> set[int]:
    """Read ``watch PID`` and ``forget PID`` until the owner is gone; return the watched ids."""
    watched: set[int] = set()
    for line in lines:
        verb, pid = line.split()
        if verb == b"watch":
            watched.add(int(pid))
        else:
            watched.discard(int(pid))
    return watched


def main(directory: Path) -> None:
    """Wait for the owner's end, then clean up."""
    for pid in watched_at_end(sys.stdin.buffer):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + _GONE_AFTER
    # A process that is being killed may still write. Its files show whether it is gone, because its
    # id stays until a parent reaps it.
    while directory.exists() and time.monotonic() < deadline:
        shutil.rmtree(directory, ignore_errors=True)
        time.sleep(0.02)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

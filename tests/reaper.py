"""Ends the processes that a test run has left behind, however the run itself ended.

A run that is killed, or ended from outside its own code by a time-out, ends nothing that it has
started. So a small process watches it, and when it is gone kills what still carries its mark: a
variable of the environment, which every process inherits from the one that starts it. On systems
without ``/proc`` there is none.

This file is also that process's program and is run by its path, so it imports only the library.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path

VARIABLE = "PYTEST_RUN_OF_KAFKA_KEYSHARED"
GRACE = 15.0
"""Seconds for those that end by themselves: the guard of a broker has its directory to delete."""

LOOK_EVERY = 0.25
PROC = Path("/proc")


def watch(grace: float = GRACE) -> None:
    """Mark this process for those that it starts from now on, and have it watched."""
    if not (PROC / "self" / "environ").exists():
        return
    mark = uuid.uuid4().hex
    nowhere = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
    program = [sys.executable, "-I", "-S", str(Path(__file__).resolve())]
    watched = [str(os.getpid()), mark, str(grace)]
    os.posix_spawn(sys.executable, [*program, *watched], _unmarked(), file_actions=nowhere)
    os.environ[VARIABLE] = mark


def _unmarked() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != VARIABLE}


def marked(mark: str) -> list[int]:
    """The processes that carry the mark."""
    wanted = f"{VARIABLE}={mark}".encode()
    found = []
    for each in PROC.iterdir():
        with suppress(OSError):  # it has ended meanwhile, or belongs to somebody else
            if each.name.isdigit() and wanted in (each / "environ").read_bytes().split(b"\0"):
                found.append(int(each.name))
    return found


def main(watched: int, mark: str, grace: float) -> None:
    """Wait for the end of the watched process, which is the parent, then for the others'."""
    os.setsid()  # Ctrl-C in a terminal goes to the whole session; this has to outlast its parent
    pause = threading.Event()
    while os.getppid() == watched:
        pause.wait(LOOK_EVERY)
    deadline = time.monotonic() + grace
    while marked(mark) and time.monotonic() < deadline:
        pause.wait(LOOK_EVERY)
    for pid in marked(mark):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]))

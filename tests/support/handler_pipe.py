"""What handlers tell from their processes: lines in a pipe of the file system, in order."""

from __future__ import annotations

import os
import select
from pathlib import Path

WAIT = 60.0
PLACE = "KEYSHARED_TEST_TOLD"
"""In the environment: where the pipe is."""


def tell(*words: object) -> None:
    """Tell a line, from whichever process."""
    with Path(os.environ[PLACE]).open("a") as told:
        told.write(" ".join(map(str, words)) + "\n")


def wait_for_go() -> None:
    """Wait until :meth:`Told.go`."""
    Path(f"{os.environ[PLACE]}.go").read_text()


class Told:
    """The reader. What has been told before it is asked is there."""

    def __init__(self, place: Path) -> None:
        os.mkfifo(place)
        self._go = Path(f"{place}.go")
        os.mkfifo(self._go)
        self._pipe = os.open(place, os.O_RDWR | os.O_NONBLOCK)  # which never ends for the reader
        self._text = ""

    def lines(self) -> list[str]:
        """Return what has been told so far."""
        while select.select([self._pipe], [], [], 0)[0]:
            self._text += os.read(self._pipe, 1 << 16).decode()
        return self._text.splitlines()

    def until(self, line: str) -> None:
        """Wait until this is told."""
        while line not in self.lines():
            ready, _, _ = select.select([self._pipe], [], [], WAIT)
            assert ready, f"{line!r} is not told; {self._text!r} is"

    def go(self) -> None:
        """Let the one go on that waits, or will."""
        self._go.write_text("go")

    def close(self) -> None:
        """Read no more."""
        os.close(self._pipe)

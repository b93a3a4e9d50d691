"""What a command prints, line by line, as it comes."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator


def drawn_on(terminal: int) -> Iterator[str]:
    """Yield what is written to a terminal, given its other end, in lines and drawn-over lines.

    It ends, and closes that end, when nobody has the terminal open any more.
    """
    left = ""
    while piece := _read(terminal):
        *whole, left = (left + piece.decode("utf-8", "replace")).replace("\r", "\n").split("\n")
        yield from (f"{line}\n" for line in whole if line)
    os.close(terminal)
    yield left


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:
        return b""  # how Linux says that the other side has closed


class Lines:
    """Reads a stream in a thread until its end."""

    def __init__(self, stream: Iterable[str]) -> None:
        self._stream = stream
        self._news = threading.Condition()
        self._lines: list[str] = []
        self._ended = False
        self._thread = threading.Thread(target=self._read, name="read-lines", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self._stream:
            with self._news:
                self._lines.append(line)
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    @property
    def text(self) -> str:
        """All that came so far."""
        with self._news:
            return "".join(self._lines)

    def first_with(self, text: str, seconds: float) -> str | None:
        """Wait for a line with this text; None when the stream ends without it, or time does."""

        def found() -> str | None:
            return next((line for line in self._lines if text in line), None)

        with self._news:
            self._news.wait_for(lambda: self._ended or found() is not None, seconds)
            return found()

    def join(self, seconds: float | None = None) -> None:
        """Wait for the end of the stream."""
        self._thread.join(seconds)

"""What a command prints, line by line, as it comes."""

from __future__ import annotations

import threading
from typing import IO


class Lines:
    """Reads a stream in a thread until its end."""

    def __init__(self, stream: IO[str]) -> None:
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

"""Framed messages, marked with a token, on a worker process's pipes.

A handler may write into file descriptors that are not its own: a number that was closed and reused,
or a library that closes too many. Without a mark, the reader would take such bytes as the length of
a message, and could wait for ever. Each message therefore begins with a token that is new for each
process. The reader refuses other bytes at once.
"""

from __future__ import annotations

import os
import pickle
import time
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from typing import Any, Protocol

from kafka_keyshared.errors import KeySharedError

TOKEN = 8
"""Bytes of a token."""

LENGTH = 8
"""Bytes of the length field of a message."""

PIECE = 1 << 16
"""Smallest buffer size of a read, in bytes."""


class GarbledError(KeySharedError):
    """A process has sent bytes that are not a message."""


def new_token() -> bytes:
    """Return a random token."""
    return os.urandom(TOKEN)


def framed(token: bytes, message: bytes) -> bytes:
    """Return a message as it is sent: token, length, content."""
    return b"".join((token, len(message).to_bytes(LENGTH, "big"), message))


class Frames:
    """Parser that takes bytes as they arrive, and returns complete messages."""

    def __init__(self, token: bytes) -> None:
        self._token = token
        self._came = bytearray()

    def feed(self, some: bytes) -> None:
        """Add received bytes."""
        self._came += some

    def missing(self) -> int:
        """Return how many bytes the first message lacks, as far as it is known."""
        return max(0, self._end() - len(self._came))

    def next(self) -> bytes | None:
        """Return the first message; None while it is incomplete.

        Raises :class:`GarbledError` for bytes that are not a message.
        """
        came = self._came
        if came[:TOKEN] != self._token[: len(came)]:
            raise GarbledError(
                f"{bytes(came[:32])!r} came from the process, and is no message of it"
            )
        end = self._end()
        if len(came) < end:
            return None
        message = bytes(came[TOKEN + LENGTH : end])
        del came[:end]
        return message

    def _end(self) -> int:
        head = TOKEN + LENGTH
        if len(self._came) < head:
            return head
        return head + int.from_bytes(self._came[TOKEN:head], "big")


class Outlet:
    """The process's end of a pipe: it sends messages with the token, and receives without one."""

    def __init__(self, connection: Connection, token: bytes) -> None:
        self._connection = connection
        self._token = token

    def send(self, what: object) -> None:
        """Send an object; if ``pickle`` raises, nothing of it is sent."""
        left = memoryview(framed(self._token, bytes(ForkingPickler.dumps(what))))
        while left:
            left = left[os.write(self._connection.fileno(), left) :]

    def recv(self) -> Any:
        """Return the next object of the parent; raises :class:`EOFError` if the parent is gone."""
        return self._connection.recv()

    def fileno(self) -> int:
        """Return the file descriptor to wait for."""
        return self._connection.fileno()


class Waitable(Protocol):
    """An object that can be waited for."""

    def fileno(self) -> int:
        """Return the file descriptor to wait for."""


class Inlet:
    """The parent's end of a pipe to a worker process.

    ``process`` can be waited for, and is readable once it has ended. The pipe alone is not enough:
    a child of the process may keep it open.
    """

    def __init__(self, connection: Connection, token: bytes, process: Waitable) -> None:
        self._connection = connection
        self._frames = Frames(token)
        self._process = process

    def send(self, what: object) -> None:
        """Send an object; raises :class:`OSError` if the process has ended."""
        self._connection.send(what)

    def recv(self, timeout: float | None = None) -> Any:
        """Return the next object; wait at most ``timeout`` seconds, None for no limit.

        Raises :class:`EOFError` when the process has ended, :class:`TimeoutError` at the timeout,
        and :class:`GarbledError` for bytes that are not a message. Errors of ``pickle`` pass
        through.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while (message := self._frames.next()) is None:
            self._read(until)
        return pickle.loads(message)

    def _read(self, until: float | None) -> None:
        pipe, process = self._connection.fileno(), self._process.fileno()
        left = None if until is None else max(0.0, until - time.monotonic())
        found = wait([pipe, process], left)
        if not found:
            raise TimeoutError("the process has not answered")
        if pipe not in found and not wait([pipe], 0):  # earlier messages are read first
            raise EOFError
        if not (some := os.read(pipe, max(PIECE, min(self._frames.missing(), 64 * PIECE)))):
            raise EOFError
        self._frames.feed(some)

    def close(self) -> None:
        """Close this end."""
        self._connection.close()

"""Messages on a pipe that a worker's process writes to, each marked as its own.

A handler can write into file descriptors that are not its own: a number that was closed and reused,
a library that closes too much. Without a mark such bytes would be read as the length of a message,
and the reader would wait for it for ever. So each message begins with a token that is new for each
process. Bytes that do not begin so are refused at once.
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
"""Bytes that say how long a message is."""

PIECE = 1 << 16
"""Bytes that are read at once, at least."""


class GarbledError(KeySharedError):
    """What a process has sent cannot be read."""


def new_token() -> bytes:
    """Return a token that nothing begins with by chance."""
    return os.urandom(TOKEN)


def framed(token: bytes, message: bytes) -> bytes:
    """Return a message as it is sent."""
    return b"".join((token, len(message).to_bytes(LENGTH, "big"), message))


class Frames:
    """Takes bytes as they come, and returns the messages in them."""

    def __init__(self, token: bytes) -> None:
        self._token = token
        self._came = bytearray()

    def feed(self, some: bytes) -> None:
        """Take what has come."""
        self._came += some

    def missing(self) -> int:
        """Return how many bytes the first message lacks, as far as that is known."""
        return max(0, self._end() - len(self._came))

    def next(self) -> bytes | None:
        """Return the first message; None while it is not complete.

        Raises :class:`GarbledError` for bytes that are no message.
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
    """In the process: sends messages with its token. Takes what the parent sends as it is."""

    def __init__(self, connection: Connection, token: bytes) -> None:
        self._connection = connection
        self._token = token

    def send(self, what: object) -> None:
        """Send an object; raises what ``pickle`` does, and then nothing of it is sent."""
        left = memoryview(framed(self._token, bytes(ForkingPickler.dumps(what))))
        while left:
            left = left[os.write(self._connection.fileno(), left) :]

    def recv(self) -> Any:
        """Return what the parent has sent; raises :class:`EOFError` when there is no parent."""
        return self._connection.recv()

    def fileno(self) -> int:
        """Return what can be waited for."""
        return self._connection.fileno()


class Waitable(Protocol):
    """What can be waited for."""

    def fileno(self) -> int:
        """Return what the system waits for."""


class Inlet:
    """In the parent: the end of a pipe whose other end a process has.

    ``process`` can be waited for, and is readable once it has ended: a child of the process may
    keep the pipe open behind it.
    """

    def __init__(self, connection: Connection, token: bytes, process: Waitable) -> None:
        self._connection = connection
        self._frames = Frames(token)
        self._process = process

    def send(self, what: object) -> None:
        """Send an object; raises :class:`OSError` where the process has ended."""
        self._connection.send(what)

    def recv(self, timeout: float | None = None) -> Any:
        """Return the next object, waiting at most ``timeout`` seconds for it; None: no limit.

        Raises :class:`EOFError` when the process has ended, :class:`TimeoutError` when nothing has
        come, :class:`GarbledError` for bytes that are no message, and what ``pickle`` does.
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
        if pipe not in found and not wait([pipe], 0):  # what it had sent before is read first
            raise EOFError
        if not (some := os.read(pipe, max(PIECE, min(self._frames.missing(), 64 * PIECE)))):
            raise EOFError
        self._frames.feed(some)

    def close(self) -> None:
        """Close this end."""
        self._connection.close()

"""Transport of log lines from a worker process to the parent's loggers.

In the parent, a line passes the handlers of its logger as a line of a thread does. A line is in the
pipe when the logging call returns. The last line of a process that dies therefore arrives too.
Logging never blocks. If the parent reads more slowly than the process logs and the pipe is full,
lines are dropped and counted.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from kafka_keyshared.executors.processes.frames import Frames, GarbledError, framed
from kafka_keyshared.logs import Seldom, hand_on, log_of

log = log_of("kafka_keyshared.pool")

LONGEST = 32_000
"""Most characters of a message and of a traceback; the rest is cut off."""

LAST_LINES = 1.0
"""Seconds to wait for the last lines of a process that has ended. The lines are in the pipe
already, but a child of the process may still keep it open."""

_PLAIN = (str, int, float, bool, type(None))


class LogLine(msgspec.Struct, array_like=True):
    """A log line. ``more`` has the plain values among the other fields of the log record.

    ``left_out`` is the number of lines that were dropped before it. If ``name`` is None, there is
    no line, only that number.
    """

    left_out: int
    name: str | None = None
    level: int = 0
    text: str = ""
    stack: str = ""
    more: dict[str, Any] = {}


_OWN = frozenset(vars(logging.makeLogRecord({})))
_KEPT = frozenset(
    ("created", "msecs", "thread", "threadName", "processName", "process", "taskName")
) | frozenset(("pathname", "filename", "module", "lineno", "funcName"))
"""Fields of a log record that keep the value from the process that logged it."""


class Homeward(logging.Handler):
    """Logging handler in the worker process that sends every line to the parent."""

    def __init__(self, connection: Connection, token: bytes) -> None:
        super().__init__()
        os.set_blocking(connection.fileno(), False)
        self._connection = connection
        self._token = token
        self._encode = msgspec.msgpack.Encoder().encode
        self._pid = os.getpid()
        self._rest = b""
        self._left_out = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Send a line, or count it as dropped if the pipe is full."""
        try:
            if (
                os.getpid() != self._pid
            ):  # a handler forked this process; its bytes would mix with the parent's
                sys.stderr.write(f"{record.levelname} {record.name}: {self.format(record)}\n")
            elif not self._sent(_line(record, self._left_out)):
                self._left_out += 1
        except Exception:  # noqa: BLE001 - as in every handler of the standard library
            self.handleError(record)

    def flush(self) -> None:
        """Send the rest of a line, or the number of dropped lines, as far as the pipe has room."""
        if self._left_out:
            self._sent(LogLine(self._left_out))
        elif self._rest:
            self._rest = self._rest[self._write(self._rest) :]

    def _sent(self, line: LogLine) -> bool:
        """Send a line, unless a previous one is only partly sent."""
        self._rest = self._rest[self._write(self._rest) :]
        if self._rest:
            return False
        told = framed(self._token, self._encode(line))
        if not (written := self._write(told)):
            return False
        self._rest = told[written:]
        self._left_out = 0
        return True

    def _write(self, told: bytes) -> int:
        try:
            return os.write(self._connection.fileno(), told) if told else 0
        except BlockingIOError:
            return 0


def _line(record: logging.LogRecord, left_out: int) -> LogLine:
    stack = record.exc_text or ""
    if record.exc_info and not stack:
        stack = logging.Formatter().formatException(record.exc_info)
    if record.stack_info:
        stack = f"{stack}\n{record.stack_info}".strip()
    more = {
        name: value
        for name, value in vars(record).items()
        if (name in _KEPT or name not in _OWN) and isinstance(value, _PLAIN)
    }
    text = _cut(record.getMessage())
    return LogLine(left_out, record.name, record.levelno, text, _cut(stack), more)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text):,} characters)"


def levels() -> dict[str | None, int]:
    """Return the levels that are set on loggers of this process; None is the root logger."""
    found: dict[str | None, int] = {None: logging.getLogger().level}
    for name, each in logging.getLogger().manager.loggerDict.copy().items():
        if isinstance(each, logging.Logger) and each.level:
            found[name] = each.level
    return found


def send_home(connection: Connection, token: bytes, wanted: Mapping[str | None, int]) -> Homeward:
    """Send every line of this process to the parent that the parent's levels allow."""
    for name, level in wanted.items():
        logging.getLogger(name).setLevel(level)
    handler = Homeward(connection, token)
    logging.getLogger().addHandler(handler)
    return handler


def only(handler: Homeward) -> None:
    """Remove all other handlers, which modules set up for the parent when they were imported."""
    logging.getLogger().handlers[:] = [handler]


class Homecoming:
    """Reader in the parent that passes the lines of a process to its loggers.

    It has its own thread. ``garbled`` is called with the error when lines cannot be read; after
    that no further line is read.
    """

    def __init__(
        self,
        name: str,
        connection: Connection,
        token: bytes,
        garbled: Callable[[Exception], None] | None = None,
    ) -> None:
        self._name = name
        self._connection = connection
        self._frames = Frames(token)
        self._garbled = garbled
        self._seldom = Seldom(log)
        self._left_out = 0
        self._decode = msgspec.msgpack.Decoder(LogLine).decode
        self._thread = threading.Thread(target=self._read, name=f"{name}-log", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Wait for the last lines of a process that has ended."""
        self._thread.join(LAST_LINES)

    def _read(self) -> None:
        frames = self._frames
        with self._connection:
            while more := os.read(self._connection.fileno(), 1 << 16):
                frames.feed(more)
                try:
                    while (line := frames.next()) is not None:
                        self._take(self._decode(line))
                except (GarbledError, msgspec.MsgspecError) as error:
                    if self._garbled is not None:
                        self._garbled(error)
                    return

    def _take(self, line: LogLine) -> None:
        if line.left_out:
            self._left_out += line.left_out
            self._seldom.warning(
                self._name,
                f"{self._name}: {self._left_out:,} log lines of its process are dropped so far: "
                "they come faster than this process writes them",
            )
        if line.name is not None and logging.getLogger(line.name).isEnabledFor(line.level):
            hand_on(_record(line))


def _record(line: LogLine) -> logging.LogRecord:
    record = logging.LogRecord(line.name or "", line.level, "", 0, line.text, None, None)
    elapsed = record.relativeCreated - record.created * 1000
    vars(record).update(line.more)
    record.relativeCreated = record.created * 1000 + elapsed
    if line.stack:
        record.exc_text = line.stack
        record.traceback = line.stack
    return record

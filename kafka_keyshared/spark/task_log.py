"""The processed log of a Spark run, written by its tasks.

A handler is wrapped before it is known where it will run. Therefore the wrapper reports to the log
of the task that it runs in (:class:`TaskLedger`). A folder has the same path on every executor. In
a folder the row of a call is written when the call ends, even if the executor is lost later. Rows
for a topic are handed out, since no executor has a client. A task that is killed leaves no row
there. The row of a dead letter is handed out in both cases. It means that brokers have the dead
letter, and only the driver knows that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from kafka_keyshared.core.records.lane_identity import NullKey, lane_by
from kafka_keyshared.errors import ConfigError, InvariantError
from kafka_keyshared.model import Record
from kafka_keyshared.observability.audit.ledger import Event, Ledger, LineFile
from kafka_keyshared.observability.audit.processed import (
    DEAD_LETTERED,
    LINES_SUFFIX,
    TOPIC,
    ProcessedLog,
    ProcessedRow,
    incarnation_name,
)


class LogRow(NamedTuple):
    """A row that is not written yet: its JSON, and its key in a topic."""

    key: bytes | None
    line: bytes


class TaskLog:
    """The processed log of one task. ``place`` is a folder or ``topic:NAME``.

    ``key_of`` returns the key that determines a record's order. It is the log of this process until
    the next one is opened. A Spark process runs one task at a time.
    """

    def __init__(self, place: str, worker: str, key_of: Callable[[Record], bytes | None]) -> None:
        incarnation = incarnation_name()
        self._file: LineFile | None = None
        self._folder = None if place.startswith(TOPIC) else Path(place)
        self._name = f"{incarnation}{LINES_SUFFIX}"
        self._rows: list[LogRow] = []
        self.ledger = ProcessedLog(self._put, incarnation, lambda: worker)
        self.ledger.key_of = key_of
        _Running.log = self.ledger

    def _put(self, row: ProcessedRow, line: bytes) -> None:
        if self._folder is None or row.event == DEAD_LETTERED:
            self._rows.append(LogRow(row.key, line))
            return
        if self._file is None:
            self._file = open_lines(self._folder, self._name)
        self._file.write(line)

    def take(self) -> list[LogRow]:
        """Return the rows that the driver must write, and clear them."""
        rows, self._rows = self._rows, []
        return rows

    def close(self) -> None:
        """Close the log."""
        if self._file is not None:
            self._file.close()
        _Running.log = None


class _Running:
    """The log of the task that this process runs."""

    log: ProcessedLog | None = None


class TaskLedger(Ledger):
    """Reports to the log of the task that it runs in."""

    def __init__(self) -> None:
        super().__init__(self._tell, "")
        self.key_of = _key_of

    def _tell(self, event: Event) -> None:
        _log().take(event)

    def __reduce__(self) -> tuple[type[TaskLedger], tuple[()]]:
        return TaskLedger, ()


def _log() -> ProcessedLog:
    if _Running.log is None:
        raise InvariantError("a handler that writes a processed log was called outside a task")
    return _Running.log


def _key_of(record: Record) -> bytes | None:
    return _log().key_of(record)


def ordered_by(keys: Callable[[Record], bytes | None]) -> Callable[[Record], bytes | None]:
    """Return a function for the key that determines a record's order, or None without one.

    ``keys`` is the core's key function. The one lane of null keys has a name that no key has.
    """

    def found(record: Record) -> bytes | None:
        key = keys(record)
        return lane_by(record, key, "topic")[2] if type(key) is NullKey else key

    return found


def open_lines(folder: Path, name: str) -> LineFile:
    """Open a file of rows; raise :class:`ConfigError` when the folder is not writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return LineFile(folder / name)
    except OSError as error:
        raise ConfigError(
            f"--audit-log {folder}: {error.strerror}; give a folder that can be written here and "
            f"on every executor, or {TOPIC}NAME"
        ) from error


def write_whole(folder: Path, name: str, lines: Iterable[bytes]) -> None:
    """Write a file of rows that is complete or absent; write none if there are no rows.

    A repeated write has the same content.
    """
    first = next(found := iter(lines), None)
    if first is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name}{LINES_SUFFIX}"
    begun = folder / f"{incarnation_name()}.begun"
    with begun.open("wb") as file:
        for line in chain([first], found):
            file.write(bytes(line) + b"\n")
    begun.replace(target)

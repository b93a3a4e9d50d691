"""The processed log of a run on Spark: each task writes down what it did, as each pod does.

A handler is wrapped before anybody knows where it will run. So what it is wrapped with reports to
the log of whichever task it finds itself in (:class:`TaskLedger`). In a folder, which every
executor sees under the same path, the row of a call is there when the call ends, whatever becomes
of the executor. What is to go to a topic is handed out, since no executor has a client, and a task
that a kill cuts short leaves no row there. A dead letter's row is handed out in both cases: it says
that brokers have the letter, and who knows that is the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from kafka_keyshared.audit.ledger import Event, Ledger, LineFile
from kafka_keyshared.audit.processed import (
    DEAD_LETTERED,
    LINES_SUFFIX,
    TOPIC,
    ProcessedLog,
    Row,
    incarnation_name,
)
from kafka_keyshared.core.lane_identity import NullKey, lane_by
from kafka_keyshared.errors import ConfigError, InvariantError
from kafka_keyshared.model import Record


class LogRow(NamedTuple):
    """A row that is not written yet: as JSON, and the key that it goes by in a topic."""

    key: bytes | None
    line: bytes


class TaskLog:
    """The processed log of one task. ``place`` is a folder or ``topic:NAME``.

    ``key_of`` tells the key by which a record's order goes. It is the log of this process until the
    next one is opened: a process of Spark's runs one task at a time.
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

    def _put(self, row: Row, line: bytes) -> None:
        if self._folder is None or row.event == DEAD_LETTERED:
            self._rows.append(LogRow(row.key, line))
            return
        if self._file is None:
            self._file = open_lines(self._folder, self._name)
        self._file.write(line)

    def take(self) -> list[LogRow]:
        """Return the rows that are to be written by others, since this was last asked."""
        rows, self._rows = self._rows, []
        return rows

    def close(self) -> None:
        """End it."""
        if self._file is not None:
            self._file.close()
        _Running.log = None


class _Running:
    """The log of the task that this process runs."""

    log: ProcessedLog | None = None


class TaskLedger(Ledger):
    """Reports to the log of the task in which it finds itself."""

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
    """Return what tells the key that a record's order goes by, given the core's; None: it has none.

    The one lane of null keys has a name that no key has.
    """

    def found(record: Record) -> bytes | None:
        key = keys(record)
        return lane_by(record, key, "topic")[2] if type(key) is NullKey else key

    return found


def open_lines(folder: Path, name: str) -> LineFile:
    """Make a file of rows; raise :class:`ConfigError` where the folder cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return LineFile(folder / name)
    except OSError as error:
        raise ConfigError(
            f"--audit-log {folder}: {error.strerror}; give a folder that can be written here and "
            f"on every executor, or {TOPIC}NAME"
        ) from error


def write_whole(folder: Path, name: str, lines: Iterable[bytes]) -> None:
    """Write a file of rows that is there whole or not at all, and none where there is no row.

    Whoever writes it once more writes the same.
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

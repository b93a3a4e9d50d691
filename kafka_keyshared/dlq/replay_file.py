"""The replay progress in an append-only file.

The first line names the topic. Each further line is a batch of dead letters that the broker has
acknowledged, in the format of :mod:`.replay_marks`. A line is synced to disk before the next batch
is sent. A torn last line, from a killed process, is cut off.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

from kafka_keyshared.dlq.letter import LetterPlace
from kafka_keyshared.dlq.replay_marks import marks_in, told_of
from kafka_keyshared.errors import ConfigError, KeySharedError

KIND = "keyshared replay"
VERSION = 1


class Journal:
    """The progress of replays of one topic: :meth:`load` it to read, :meth:`open` it to add.

    Both raise :class:`ConfigError` for a file that is no journal, or the journal of another topic.
    """

    lost: None = None
    """Always None, because the file lock cannot be taken over by another process."""

    def __init__(self, path: Path, topic: str) -> None:
        self.path = path
        self._topic = topic
        self._marks: set[int] = set()
        self._descriptor: int | None = None
        self._whole = 0

    def __len__(self) -> int:
        return len(self._marks)

    def __contains__(self, mark: object) -> bool:
        return mark in self._marks

    def __iter__(self) -> Iterator[int]:
        return iter(self._marks)

    def __str__(self) -> str:
        return f"file {self.path}"

    def load(self) -> Self:
        """Read the progress; a missing file means that nothing was replayed."""
        if self.path.exists():
            self._read()
        return self

    def _read(self) -> None:
        with self.path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    break
                try:
                    self._take(number, json.loads(line))
                except (ValueError, TypeError, AttributeError) as error:
                    raise ConfigError(
                        f"{self.path}: line {number} is not of a replay's progress ({error}); "
                        "give another file with --state"
                    ) from error
                self._whole += len(line)

    def _take(self, number: int, found: dict[str, Any]) -> None:
        if number > 1:
            self._marks.update(marks_in(found))
            return
        if (found.get("file"), found.get("version")) != (KIND, VERSION):
            raise ValueError("it has another first line")
        if found.get("topic") != self._topic:
            raise ConfigError(
                f"{self.path} is the progress of replays of {found.get('topic')!r}, not of "
                f"{self._topic!r}: give another file with --state"
            )

    def open(self) -> Self:
        """Open for writing by one process; raise :class:`ConfigError` if it is locked."""
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise ConfigError(f"--state {self.path}: {error.strerror}") from error
        self._descriptor = descriptor
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise ConfigError(
                f"{self.path}: another replay writes to it; wait for its end"
            ) from error
        self._read()
        os.ftruncate(descriptor, self._whole)
        os.lseek(descriptor, 0, os.SEEK_END)
        if self._whole == 0:
            self._write({"file": KIND, "version": VERSION, "topic": self._topic})
            sync_folder(self.path.parent)
        return self

    def add(self, letters: Iterable[tuple[LetterPlace, int]]) -> None:
        """Record durably that these dead letters were replayed."""
        marks = dict(letters)
        self._write(told_of(marks))
        self._marks.update(marks.values())

    def _write(self, line: dict[str, Any]) -> None:
        if self._descriptor is None:
            raise ValueError("the journal is not open")
        data = json.dumps(line).encode("ascii") + b"\n"
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
            os.fsync(self._descriptor)
        except OSError as error:
            raise KeySharedError(
                f"{self.path}: {error.strerror}: the last replayed letters could not be recorded "
                "and will be replayed again; make room, or move the file and name it with --state"
            ) from error

    def close(self) -> None:
        """Close the file and release its lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def sync_folder(folder: Path) -> None:
    """Sync a folder, which makes the names of its files durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""The handler state that passes from batch to batch in shared files.

The driver and all executors see the files. As its last act, a task has its handler release the
worker's state, and writes it. The task of the next batch adopts it before its first record, like a
worker that gets slots from another worker. The driver writes an index of the files *before* it
commits, with the positions that it is about to commit. The valid index is the one whose positions
are the group's. Therefore state and positions agree wherever a run is killed. If the group has
advanced without Spark, there is no valid state.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.dlq.replay_file import sync_folder
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.executors.handling.handlers import Made
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.model import TopicPartition

Positions = Mapping[TopicPartition, tuple[int, str]]
"""The committed position of each partition, and its metadata."""


@dataclass(frozen=True, slots=True)
class StateFile:
    """The state of some slots: its file, and the slots as inclusive pairs of first and last."""

    file: str
    slots: tuple[tuple[int, int], ...]

    def all_slots(self) -> list[int]:
        """Return the slots one by one."""
        return [slot for first, last in self.slots for slot in range(first, last + 1)]


def slots_of(settings: SubscriptionSettings, worker: int) -> tuple[tuple[int, int], ...]:
    """Return the slots of a worker, as inclusive pairs of first and last."""
    name = settings.workers[worker]
    spans = settings.routing.of(settings.workers).spans()
    return tuple((each.first, each.last) for each in spans if each.owner == name)


# --- in a task ---


def adopt(
    made: Made, spec: WorkerSpec, mine: Sequence[tuple[int, int]], kept: Sequence[StateFile]
) -> None:
    """Make a worker's handler adopt the stored state of its slots.

    If the workers have changed, a temporary handler adopts a file and releases the needed slots.
    """
    own = {slot for first, last in mine for slot in range(first, last + 1)}
    for each in kept:
        there = each.all_slots()
        wanted = [slot for slot in there if slot in own]
        if not wanted or made.adopt is None:
            continue
        state = _load(each.file)
        if len(wanted) < len(there):
            other = spec.make()
            if other.adopt is None or other.release is None:
                continue
            other.adopt(there, state)
            state = other.release(wanted)
        made.adopt(wanted, state)


def release(made: Made, mine: Sequence[tuple[int, int]], file: Path, *, go_on: bool) -> None:
    """Make a worker's handler release its state, and write it.

    With ``go_on`` the handler adopts a copy of it again, because it is then closed for good with
    its full state. Raises :class:`KeySharedError` for a state that cannot be written.
    """
    if made.release is None or made.adopt is None:
        return
    slots = [slot for first, last in mine for slot in range(first, last + 1)]
    state = made.release(slots)
    try:
        written = pickle.dumps(state)
    except Exception as error:
        raise KeySharedError(
            f"release(): its result cannot be written: {type(error).__name__}: {error}; return "
            "what can be pickled"
        ) from error
    file.parent.mkdir(parents=True, exist_ok=True)
    _write_for_good(file, written)
    if go_on:
        made.adopt(slots, pickle.loads(written))


def _write_for_good(file: Path, content: bytes) -> None:
    """Write a file that is complete or absent, and that survives a crash of the machine."""
    partial = file.with_suffix(".partial")
    with partial.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    partial.rename(file)
    sync_folder(file.parent)


def _load(file: str) -> Any:
    try:
        return pickle.loads(Path(file).read_bytes())
    except OSError as error:
        raise KeySharedError(
            f"the state in {file} cannot be read: {error}; give --state a folder that the driver "
            "and every executor see under the same path"
        ) from error


# --- in the driver ---


class StateStore:
    """The states of a group in its own folder below ``directory``."""

    def __init__(self, directory: Path, group: str) -> None:
        self._home = directory / quote(group, safe="")
        try:
            self._home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"--state {directory}: {error.strerror}") from error

    def find(
        self, positions: Positions, added: Collection[TopicPartition] = ()
    ) -> tuple[tuple[StateFile, ...], bool]:
        """Return the state at these positions, and whether there is only state at other positions.

        ``added`` are partitions without a committed position of the group. No member has read them.
        Therefore a state that was stored before they existed still matches the other positions.
        """
        stood = _texts(positions)
        others = False
        for index in self._indices():
            told = json.loads(index.read_text())
            new = {str(each) for each in added}.difference(told["positions"])
            if told["positions"] == {name: at for name, at in stood.items() if name not in new}:
                files = told["files"].items()
                return tuple(
                    StateFile(file, tuple((first, last) for first, last in slots))
                    for file, slots in files
                ), False
            others = True
        return (), others

    def next_folder(self) -> Path:
        """Return a new folder for the files of a batch."""
        numbers = [int(each.name) for each in self._home.iterdir() if each.name.isdecimal()]
        folder = self._home / str(max(numbers, default=0) + 1)
        folder.mkdir()
        return folder

    def keep(self, folder: Path, kept: Sequence[StateFile], positions: Positions) -> None:
        """Write the index of a batch's states, before these positions are committed.

        The index is durable when this returns. If a crash lost the index of a committed batch,
        handlers would start without state at positions that need it.
        """
        files = {each.file: [list(pair) for pair in each.slots] for each in kept}
        text = json.dumps({"positions": _texts(positions), "files": files})
        _write_for_good(self._home / f"{folder.name}.json", text.encode())

    def forget_before(self, folder: Path) -> None:
        """Remove the folders and indexes older than this one, whose positions are committed."""
        for each in self._home.iterdir():
            if each.stem.isdecimal() and int(each.stem) < int(folder.name):
                shutil.rmtree(each) if each.is_dir() else each.unlink()

    def _indices(self) -> list[Path]:
        found = [each for each in self._home.glob("*.json") if each.stem.isdecimal()]
        return sorted(found, key=lambda each: -int(each.stem))


def _texts(positions: Positions) -> dict[str, list[Any]]:
    return {str(each): [position, text] for each, (position, text) in sorted(positions.items())}

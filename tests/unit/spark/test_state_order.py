"""The state of a batch is on the disk for good before the commit that depends on it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared import KeyShared
from kafka_keyshared.cli.spark_wanted import wanted_of
from kafka_keyshared.core.contract.commands import CommitEntry
from kafka_keyshared.core.contract.events import StartPoint
from kafka_keyshared.core.offsets.metadata_sections import LaneNotes
from kafka_keyshared.executors.handling.handlers import maker
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.spark.driver import run
from kafka_keyshared.spark.state import StateFile, StateStore, release
from kafka_keyshared.spark.task import Settled, TaskReport

P0 = TopicPartition("t", 0)


class Counts:
    """A handler whose state goes from batch to batch."""

    def handle(self, record: Any) -> None: ...

    def release(self, slots: Any) -> Any:
        return "state"

    def adopt(self, slots: Any, state: Any) -> None: ...


class Member:
    """The group's only member; it notes its commit among what is written."""

    def __init__(self, events: list[str]) -> None:
        self._events = events

    def starts(self) -> tuple[dict[TopicPartition, StartPoint], set[TopicPartition]]:
        return {P0: StartPoint(0, None, 0, 10, True)}, set()

    def commit(self, entries: Mapping[TopicPartition, CommitEntry]) -> None:
        assert entries[P0].position == 10
        self._events.append("commit")


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was made durable under which name, and what was given its name, in order."""
    found: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def synced(descriptor: int) -> None:
        fsync(descriptor)
        place = Path(f"/proc/self/fd/{descriptor}").readlink()
        found.append(f"sync {place.name}")

    def renamed(self: Path, target: Path) -> Path:
        found.append(f"name {target.name}")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", renamed)
    return found


def test_states_and_their_index_are_there_for_good_before_the_commit(
    tmp_path: Path, events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = KeyShared({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}, ["t"], workers=1)
    app.handler(Counts)
    slots = ((0, 65_535),)

    def tasks(self: Any, made: Any, kept: Any, folder: Path) -> tuple[list[TaskReport], Any]:
        file = folder / "0-0.state"
        release(maker(Counts)(), slots, file, go_on=False)
        report = TaskReport(
            0, {P0: Settled(((0, 10),), LaneNotes())}, state=StateFile(str(file), slots)
        )
        return [report], None

    monkeypatch.setattr(run._Run, "_run", tasks)
    monkeypatch.setattr(run._Run, "_write", lambda *_: None)
    spark: Any = None
    member: Any = Member(events)
    store = StateStore(tmp_path, "g")
    run._Run(spark, wanted_of(app), member, lambda *_: None, store, streams=False).batch()
    assert events == [
        *("sync 0-0.partial", "name 0-0.state", "sync 1"),
        *("sync 1.partial", "name 1.json", "sync g"),
        "commit",
    ]

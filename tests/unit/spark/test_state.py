"""State of handler classes between batches: released, kept by positions, adopted."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.executors.handling.handlers import maker
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.hashing import slot_of
from kafka_keyshared.model import Record, TopicPartition
from kafka_keyshared.spark.placement import RecordPlacement, spark_partition
from kafka_keyshared.spark.state import StateFile, StateStore
from kafka_keyshared.spark.task import BatchShare, Drive, SparkJob, TaskReport
from kafka_keyshared.testing import record

P0 = TopicPartition("t", 0)


class Counts:
    """How many records there were of each key; what is closed tells it."""

    closed: dict[str, int]

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}

    def handle(self, given: Record) -> None:
        key = given.key().decode()
        self.seen[key] = self.seen.get(key, 0) + 1

    def release(self, slots: Sequence[int]) -> Any:
        gone = [key for key in self.seen if slot_of(key.encode()) in set(slots)]
        return {key: self.seen.pop(key) for key in gone}

    def adopt(self, slots: Sequence[int], state: dict[str, int]) -> None:
        del slots
        self.seen.update(state)

    def close(self) -> None:
        for key, count in self.seen.items():
            type(self).closed[key] = type(self).closed.get(key, 0) + count


def run_batch(
    handler: type[Counts], workers: int, begin: int, end: int, folder: Path, **given: Any
) -> list[TaskReport]:
    """Run a batch of records whose keys take turns, as so many tasks."""
    names = worker_names(workers)
    settings = SubscriptionSettings(workers=names, hands_over=True, instances=True)
    specs = [
        WorkerSpec("default", index, name, maker(handler), one_thread=True)
        for index, name in enumerate(names)
    ]
    share = BatchShare(ev.StartPoint(begin), begin, end)
    job = SparkJob(settings, specs, {P0: share}, "g", state_to=folder, **given)
    places = RecordPlacement(settings)
    records = [record(f"k{n % 20}", b"", topic="t", offset=n) for n in range(begin, end)]
    found = places.of([each.key() for each in records], [0] * len(records), range(begin, end))
    reports = []
    for worker in range(workers):
        mine = [
            each
            for each, place in zip(records, found, strict=True)
            if spark_partition(place, workers) == worker
        ]
        *_, report = Drive(job, worker).run_all([mine])
        assert isinstance(report, TaskReport)
        reports.append(report)
    return reports


def states(reports: list[TaskReport]) -> tuple[StateFile, ...]:
    return tuple(each.state for each in reports if each.state is not None)


@pytest.mark.parametrize("workers", [2, 3, 1])
def test_the_next_batch_goes_on_with_what_the_one_before_knew(tmp_path: Path, workers: int) -> None:
    """Also where it has other workers."""

    class Handler(Counts):
        closed: dict[str, int] = {}  # noqa: RUF012 - of this test's class alone

    handler = Handler
    first = run_batch(handler, 2, 0, 100, tmp_path / "1", last=False)
    assert handler.closed == {}, "what was released is not told as an end"
    run_batch(handler, workers, 100, 200, tmp_path / "2", kept=states(first))
    assert handler.closed == {f"k{n}": 10 for n in range(20)}


def test_a_state_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    class Locked(Counts):
        def release(self, slots: Sequence[int]) -> Any:
            return threading.Lock()

    with pytest.raises(KeySharedError, match=r"release\(\): its result cannot be written"):
        run_batch(Locked, 1, 0, 10, tmp_path / "1")


def test_the_state_that_counts_is_the_one_at_the_groups_positions(tmp_path: Path) -> None:
    """A run that was killed before its commit has written a newer one."""
    store = StateStore(tmp_path, "a/b")
    before, after = {P0: (10, "")}, {P0: (20, "text")}
    kept = StateFile("file", ((0, 65_535),))
    first = store.next_folder()
    store.keep(first, [kept], before)
    second = store.next_folder()
    store.keep(second, [replace(kept, file="newer")], after)
    assert store.find(before) == ((kept,), False)
    assert store.find(after) == ((replace(kept, file="newer"),), False)
    assert store.find({P0: (15, "")}) == ((), True), "pods have gone on"
    store.forget_before(second)
    assert store.find(before) == ((), True)
    assert not first.exists()
    assert StateStore(tmp_path, "other").find(before) == ((), False)


def test_a_partition_that_the_group_has_not_read_yet_costs_no_state(tmp_path: Path) -> None:
    """It was added to the topic, or its topic to the subscription, since the state was kept."""
    store, kept = StateStore(tmp_path, "g"), StateFile("f", ((0, 9),))
    added = TopicPartition("t", 1)
    store.keep(store.next_folder(), [kept], {P0: (5, "")})
    assert store.find({P0: (5, ""), added: (0, "")}, {added}) == ((kept,), False)
    assert store.find({P0: (6, ""), added: (0, "")}, {added}) == ((), True)
    assert store.find({P0: (5, ""), added: (3, "")}) == ((), True), "pods have read it"
    store.keep(store.next_folder(), [], {P0: (5, ""), added: (2, "")})
    assert store.find({P0: (5, ""), added: (0, "")}, {added}) == ((kept,), False), "not committed"

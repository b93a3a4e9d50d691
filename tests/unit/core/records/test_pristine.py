"""What records came in: found for each of them, and let go of once only a little of it is held."""

from __future__ import annotations

import gc
import weakref

import pytest

from kafka_keyshared.core.records.backlog import Backlog
from kafka_keyshared.core.records.pristine import Chunk, Originals
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import Record
from tests.support.core_harness import Harness
from tests.support.records import P0, TOPIC, FakeRecord, record


class Mortal(FakeRecord):
    """A record of which it can be seen whether anybody keeps it."""

    __slots__ = ("__weakref__",)


def records(first: int, count: int) -> list[Record]:
    return [Mortal(P0, offset, b"k") for offset in range(first, first + count)]


def offsets(found: list[Record]) -> list[int]:
    return [each.offset() for each in found]


def arrived(backlog: Backlog, chunk: Chunk) -> None:
    backlog.records += chunk.records
    backlog.came_in(chunk)


# --- a backlog ---


def test_what_is_taken_comes_with_the_chunks_that_it_came_in() -> None:
    backlog, first, second = Backlog(), Chunk(records(0, 3)), Chunk(records(3, 2))
    arrived(backlog, first)
    arrived(backlog, second)
    taken, chunks = backlog.take(2)
    assert (offsets(taken), chunks) == ([0, 1], [first])
    backlog.check()
    taken, chunks = backlog.take(2)
    assert (offsets(taken), chunks) == ([2, 3], [first, second])
    backlog.check()
    taken, chunks = backlog.take(9)
    assert (offsets(taken), chunks) == ([4], [second])
    assert backlog.take(1) == ([], [])


def test_records_are_put_first_and_last_and_replaced_with_what_they_came_in() -> None:
    backlog = Backlog()
    arrived(backlog, Chunk(records(3, 2)))
    backlog.put_first(records(0, 3))
    backlog.extend(records(5, 1))
    backlog.check()
    assert offsets(backlog.records) == [0, 1, 2, 3, 4, 5]
    backlog.replace(backlog.records[1::2])
    backlog.check()
    assert offsets(backlog.take(3)[0]) == [1, 3, 5]


def test_a_record_that_came_in_no_chunk_is_found() -> None:
    backlog = Backlog()
    arrived(backlog, Chunk(records(0, 2)))
    backlog.records[1] = record(7)
    with pytest.raises(InvariantError, match="the original of"):
        backlog.check()
    backlog.records.append(record(8))
    backlog.records[1] = record(1)
    with pytest.raises(InvariantError, match="the original of"):
        backlog.check()


# --- what is kept alive ---


def kept(harness: Harness) -> int:
    """How many records the core keeps alive, by what it remembers of chunks."""
    sub = harness.sub()
    keepers: list[Backlog | Originals] = [each.row.backlog for each in sub.workers.values()]
    keepers += [leased.slice.came for leased in sub.unsettled.leases()]
    chunks = [chunk for each in keepers for chunk, _ in each.chunks()]
    return len({id(each) for chunk in chunks for each in chunk.records})


@pytest.mark.parametrize(
    ("size", "spare"), [(0, 100), (1_000, 10)], ids=["by their number", "by their bytes"]
)
def test_a_slow_worker_that_has_a_little_of_each_fetch_does_not_keep_the_rest_alive(
    size: int, spare: int
) -> None:
    """In records as many as the window may hold, in bytes a tenth of it, and half of that more."""
    settings = SubscriptionSettings(
        workers=("slow", "fast"), window_records=100, window_bytes=100_000, prefetch_records=2
    )
    harness = Harness(settings)
    harness.assign(position=0)
    keys = [b"%d" % number for number in range(100)]
    slow, fast = (
        next(key for key in keys if harness.owner_of(FakeRecord(P0, 0, key)).index == worker)
        for worker in range(2)
    )
    for at in range(0, 800, 10):
        chunk = [
            FakeRecord(P0, offset, slow if offset == at else fast, size=size)
            for offset in range(at, at + 10)
        ]
        harness.fetch(*chunk)
        worker = harness.worker(1)
        while worker.start() is not None:
            worker.finish()
            harness.deliver()
    held = harness.sub().window.records
    assert held >= 70, "all of the slow worker's, of 80 fetches"
    harness.core.check()
    assert held <= kept(harness) <= held + spare * 3 // 2 + 10


def test_what_is_remembered_apart_is_what_came_and_not_what_was_written_since() -> None:
    chunk = Chunk(records(0, 10), received=0)
    held = list(chunk.records[4:6])
    was = [(each.key(), each.value()) for each in held]
    came = Originals(held, TOPIC, [chunk])
    gone = weakref.ref(chunk.records[0])
    held[0].set_key(b"written")  # type: ignore[attr-defined]
    held[1].set_value(b"too")  # type: ignore[attr-defined]
    del chunk
    came.let_go(1)
    gc.collect()
    assert gone() is None
    for index in range(len(held)):
        came.restore(index)
    assert [(each.key(), each.value()) for each in held] == was


def test_a_slice_keeps_what_came_with_it_while_that_is_young() -> None:
    chunk = Chunk(records(0, 10), received=5)
    came = Originals(list(chunk.records[4:6]), TOPIC, [chunk])
    came.let_go(5)
    assert came.find(chunk.records[4]) == (chunk, 4)
    came.let_go(6)
    assert came.find(chunk.records[4])[0] is not chunk

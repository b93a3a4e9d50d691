"""What a handler may ask of the lease that it works under."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from kafka_keyshared import Lease, lease_of
from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract.commands import Lapse
from kafka_keyshared.core.contract.events import SliceEnded
from kafka_keyshared.core.contract.slices import Slice
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.executors.handling.handlers import maker
from kafka_keyshared.executors.inline.driver import InlinePool
from kafka_keyshared.executors.lease import WORKER
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.executors.threads.pool import ThreadPool
from kafka_keyshared.model import partition_of
from tests.support.records import P0, P1, FakeRecord, record
from tests.support.slices import slice_of

WAIT = 30.0


class Asking:
    """A worker whose handler asks for its lease, and waits where it is told to."""

    def __init__(self, kind: type[ThreadPool] = ThreadPool) -> None:
        self.leases: list[Lease] = []
        self.over: list[bool] = []
        self.started = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0)
        self.mailbox: SimpleQueue[Any] = SimpleQueue()
        self.pool = kind(
            [WorkerSpec("default", 0, "worker-0", maker(self.handle))], self.mailbox, Clock()
        )
        self.pool.start()

    def handle(self, of: Any) -> None:
        lease = lease_of(of)
        self.leases.append(lease)
        self.started.release()
        assert self.go_on.acquire(timeout=WAIT)
        self.over.append(lease.over())

    def submit(self, *records: FakeRecord, epoch: int = 1) -> Slice:
        slice_ = slice_of(*records)._replace(epoch=epoch)
        self.pool.submit(slice_)
        return slice_

    def lapse(self, slice_: Slice, *partitions: Any) -> None:
        self.pool.lapse(Lapse("default", 0, (slice_.id,), frozenset(partitions)))

    def end(self) -> None:
        self.go_on.release(2)
        while not isinstance(self.mailbox.get(timeout=WAIT), SliceEnded):
            pass


@pytest.fixture
def asking() -> Iterator[Asking]:
    made = Asking()
    yield made
    made.go_on.release(100)
    assert made.pool.stop(WAIT) == []


def test_it_names_worker_partition_and_epoch(asking: Asking) -> None:
    asking.submit(record(3, "a", P1), epoch=7)
    asking.end()
    (lease,) = asking.leases
    assert (lease.worker, lease.partition, lease.epoch) == ("worker-0", P1, 7)
    assert asking.over == [False]


def test_it_is_over_once_the_partition_has_gone_while_the_handler_runs(asking: Asking) -> None:
    slice_ = asking.submit(record(3, "a", P0))
    assert asking.started.acquire(timeout=WAIT)
    asking.lapse(slice_, P0)
    asking.end()
    assert asking.over == [True]


def test_that_of_another_partition_of_the_slice_goes_on(asking: Asking) -> None:
    slice_ = asking.submit(record(3, "a", P0), record(4, "b", P1))
    assert asking.started.acquire(timeout=WAIT)
    asking.lapse(slice_, P1)
    asking.end()
    assert asking.over == [False, True]


def test_a_partition_that_comes_back_does_not_bring_it_back(asking: Asking) -> None:
    gone = asking.submit(record(3, "a", P0), epoch=1)
    assert asking.started.acquire(timeout=WAIT)
    asking.lapse(gone, P0)
    asking.submit(record(3, "a", P0), epoch=3)
    asking.end()
    asking.end()
    assert asking.over == [True, False]
    assert [lease.epoch for lease in asking.leases] == [1, 3]


def test_one_that_has_ended_is_not_told_any_more(asking: Asking) -> None:
    slice_ = asking.submit(record(3, "a", P0))
    asking.end()
    asking.lapse(slice_, P0)
    assert not asking.leases[0].over()


def test_nobody_else_has_one() -> None:
    with pytest.raises(KeySharedError, match=r"no handler runs here: ask lease_of\(record\) in"):
        lease_of(record(0))


def test_neither_has_a_handler_that_is_being_made_or_closed() -> None:
    found: list[str] = []

    class Handler:
        def __init__(self) -> None:
            self.ask()

        def ask(self) -> None:
            with pytest.raises(KeySharedError) as caught:
                lease_of(record(0))
            found.append(str(caught.value))

        def handle(self, of: Any) -> None:
            assert lease_of(of).partition == partition_of(of)

        def close(self) -> None:
            self.ask()

    mailbox: SimpleQueue[Any] = SimpleQueue()
    pool = ThreadPool([WorkerSpec("default", 0, "worker-0", maker(Handler))], mailbox, Clock())
    pool.start()
    pool.submit(slice_of(record(0)))
    assert isinstance(mailbox.get(timeout=WAIT), SliceEnded)
    assert pool.stop(WAIT) == []
    assert len(found) == 2


def test_what_a_handler_awaits_has_it() -> None:
    found: list[Lease] = []

    async def work(of: Any) -> None:
        found.append(lease_of(of))
        found.append(await asyncio.to_thread(lease_of, of))

    mailbox: SimpleQueue[Any] = SimpleQueue()
    spec = WorkerSpec("default", 0, "worker-0", maker(lambda of: asyncio.run(work(of))))
    pool = ThreadPool([spec], mailbox, Clock())
    pool.start()
    pool.submit(slice_of(record(0)))
    assert isinstance(mailbox.get(timeout=WAIT), SliceEnded)
    assert pool.stop(WAIT) == []
    assert len(found) == 2
    assert found[0] == found[1]


def test_after_an_inline_worker_the_thread_is_its_owners_again() -> None:
    inline = Asking(InlinePool)
    inline.go_on.release()
    inline.submit(record(0))
    assert isinstance(inline.pool, InlinePool)
    inline.pool.work()
    assert [lease.partition for lease in inline.leases] == [P0]
    with pytest.raises(KeySharedError):
        lease_of(record(0))
    assert WORKER.get(None) is None

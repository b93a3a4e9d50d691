"""A pool without threads: every step of every worker is the test's to choose.

It keeps to the protocol of the thread pool to the letter: first in, first out per worker; a failed
record is made what it was, then posted before the next one is taken; what follows in a failed lane
is set aside until the fence; unstarted records are taken back at once, whatever the worker is doing
(with the real hand-over). Its mailbox is a list that the test delivers when and in what portions it
likes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeAlias

from kafka_keyshared.core.dispatcher import Dispatcher
from kafka_keyshared.core.events import (
    Ended,
    Failed,
    Failure,
    Fence,
    FencePassed,
    Recalled,
    Report,
    SetAside,
    Slice,
)
from kafka_keyshared.core.lanes import Lane, is_keyless
from kafka_keyshared.model import Drop, Record
from kafka_keyshared.pools.port import Handover, _Stop
from tests.support.records import failure

Verdict: TypeAlias = Failure | Drop | None


def ignore(_sub: str, _worker: int, _record: Record) -> None:
    """Observe nothing."""


def leave_alone(_record: Record) -> None:
    """Write nothing into it."""


def ignore_end(_sub: str, _worker: int, _record: Record, _verdict: Verdict) -> None:
    """Observe nothing."""


class FakeWorker:
    """One worker, stepped by hand."""

    def __init__(self, pool: FakePool, sub: str, index: int) -> None:
        self.pool = pool
        self.sub = sub
        self.index = index
        self.inbox: deque[Handover | Fence] = deque()
        self.given: dict[Slice, Handover] = {}
        self.current: Handover | None = None
        self.running: Record | None = None
        self.failed_lanes: set[Lane] = set()
        self.alive = True

    @property
    def busy(self) -> bool:
        """Whether it has anything to do."""
        return self.alive and bool(self.current or self.inbox)

    def step(self) -> Record | None:
        """Take one thing; return the record when that starts one."""
        if not self.alive or self.running is not None:
            return None
        if self.current is None:
            if self.inbox:
                self._open(self.inbox.popleft())
            return None
        item = self.current.todo.popleft()
        if isinstance(item, _Stop):
            share = self.current.slice
            self.current = None
            self._end(share)
        elif self.current.slice.lane_of(item) in self.failed_lanes:
            self.pool.post(SetAside(self.current.slice, item))
        else:
            self.running = item
            self.pool.on_start(self.sub, self.index, item)
            self.pool.write_into(item)
            return item
        return None

    def start(self) -> Record | None:
        """Go on until a record starts; None when there is none to start."""
        if self.running is not None:
            return None
        while self.busy:
            if (started := self.step()) is not None:
                return started
        return None

    def finish(self, verdict: Verdict = None) -> None:
        """End the running record."""
        item, handover = self.running, self.current
        assert item is not None, "nothing is running"
        assert handover is not None, "nothing is running"
        self.running = None
        self.pool.on_end(self.sub, self.index, item, verdict)
        if verdict is not None:
            handover.slice.came.restore(item)
        if isinstance(verdict, Drop):
            handover.slice.dropped.append(item)
        elif verdict is not None:
            lane = handover.slice.lane_of(item)
            if not is_keyless(lane):
                self.failed_lanes.add(lane)
            self.pool.post(Failed(handover.slice, item, verdict))

    def die(self) -> None:
        """End the thread in the middle of whatever it does."""
        self.alive = False

    def fail_running(self) -> None:
        """Report what the dead thread was running as failed, once."""
        if self.running is not None:
            self.finish(failure())

    def _open(self, item: Handover | Fence) -> None:
        if isinstance(item, Fence):
            self.failed_lanes.difference_update(item.lanes)
            self.pool.post(FencePassed(item.subscription, item.worker, item.lanes))
        else:
            self.current = item

    def _end(self, share: Slice) -> None:
        self.pool.post(Ended(share, self.pool.seconds))
        del self.given[share]

    def abandon(self) -> None:
        """Report everything that the dead worker was given as over."""
        self.fail_running()
        self.current = None
        self.inbox.clear()
        for share in list(self.given):
            self._end(share)


class FakePool:
    """All workers of a dispatcher, and the mailbox that they post to."""

    def __init__(self, core: Dispatcher, post: Callable[[Report], None]) -> None:
        self.post = post
        self.on_start: Callable[[str, int, Record], None] = ignore
        self.on_end: Callable[[str, int, Record, Verdict], None] = ignore_end
        self.write_into: Callable[[Record], None] = leave_alone
        self.seconds = 0.001
        self.replaceable = True
        self.workers = {
            (name, worker.index): FakeWorker(self, name, worker.index)
            for name, sub in core.subscriptions.items()
            for worker in sub.workers
        }

    def submit(self, share: Slice) -> None:
        """Hand a slice to its worker."""
        worker = self.workers[share.subscription, share.worker]
        handover = Handover(share)
        worker.given[share] = handover
        worker.inbox.append(handover)

    def fence(self, fence: Fence) -> None:
        """Put a fence behind everything the worker has."""
        self.workers[fence.subscription, fence.worker].inbox.append(fence)

    def recall(self, subscription: str, index: int) -> Recalled:
        """Take back every unstarted record of the worker."""
        worker = self.workers[subscription, index]
        return Recalled([(share, given.take_back()) for share, given in worker.given.items()])

    def progress(self) -> Mapping[Slice, int]:
        """Return how much of each outstanding slice has not started."""
        return {
            share: handover.unstarted()
            for worker in self.workers.values()
            for share, handover in worker.given.items()
        }

    def dead(self) -> list[tuple[str, int]]:
        """Return the workers whose thread has ended."""
        return [place for place, worker in self.workers.items() if not worker.alive]

    def left(self) -> list[tuple[str, int]]:
        """Return the workers that have gone for good: none."""
        return []

    def where(self, subscription: str, index: int) -> str:
        """Return nothing: no thread stands anywhere."""
        return ""

    def tend(self) -> None:
        """Nothing is due."""

    def replace(self, subscription: str, index: int) -> None:
        """Go on where the dead thread ended; the record that it ran counts as failed."""
        worker = self.workers[subscription, index]
        worker.fail_running()
        worker.alive = self.replaceable

    def abandon(self, subscription: str, index: int) -> None:
        """Report what the dead worker was running as failed, and all its slices as ended."""
        self.workers[subscription, index].abandon()

"""A pool without threads: every step of every worker is chosen by whoever drives it.

It keeps to the protocol of the thread pool to the letter: first in, first out per worker; a failed
record is made what it was, then posted before the next one is taken; what follows in a failed lane
is set aside until the fence; unstarted records are taken back at once, whatever the worker is doing
(with the real hand-over). A test steps it by hand, a simulation by its timeline
(:mod:`kafka_keyshared.sim.pool`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from kafka_keyshared.core.commands import Adopt, Fence, Lapse, Recall, Release, StartWorker
from kafka_keyshared.core.dispatcher import Dispatcher
from kafka_keyshared.core.dispositions import Disposition, Failure
from kafka_keyshared.core.events import (
    Ended,
    Failed,
    FencePassed,
    Recalled,
    Released,
    Report,
    SetAside,
)
from kafka_keyshared.core.slices import Progress, Slice
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import Drop, Record
from kafka_keyshared.pools.failed_lanes import FailedLanes, Lanes, own_lanes
from kafka_keyshared.pools.port import Handover, Stop
from kafka_keyshared.sim.handlers import Ending

DIED = Failure(
    Disposition.ERROR, "RuntimeError", "the worker's thread ended while it was running", "", 0
)
"""How an attempt ends whose worker has died in it."""


def ignore(_sub: str, _worker: int, _record: Record) -> None:
    """Observe nothing."""


def leave_alone(_record: Record) -> None:
    """Write nothing into it."""


def ignore_end(_sub: str, _worker: int, _record: Record, _verdict: Ending) -> None:
    """Observe nothing."""


def no_state(_sub: str, _worker: int, _slots: Sequence[int]) -> None:
    """Have no state."""


def ignore_state(_sub: str, _worker: int, _slots: Sequence[int], _state: object) -> None:
    """Adopt nothing."""


class SteppedWorker:
    """One worker, stepped by hand."""

    def __init__(self, pool: SteppedPool, sub: str, index: int, name: str) -> None:
        self.pool = pool
        self.sub = sub
        self.index = index
        self.name = name
        self.inbox: deque[Handover | Fence | Release | Adopt] = deque()
        self.given: dict[int, Handover] = {}
        self.current: Handover | None = None
        self.running: Record | None = None
        self.failed = FailedLanes(pool.lanes(sub))
        self.asked: deque[Recall] = deque()
        self.alive = True
        self.left = False
        self.abandoned = False

    @property
    def busy(self) -> bool:
        """Whether it has anything to do."""
        return self.alive and bool(self.current or self.asked or (self.inbox and not self.left))

    @property
    def there(self) -> bool:
        """Whether it takes what it is given: it has neither died nor left."""
        return self.alive and not self.left

    @property
    def gone(self) -> bool:
        """Whether it has left for good, and is through with what it had begun."""
        return self.left and self.current is None

    def slices(self) -> list[Slice]:
        """What it was given and has not reported as ended."""
        return [handover.slice for handover in self.given.values()]

    def step(self) -> Record | None:
        """Take one thing; return the record when that starts one."""
        if self.asked and not self.pool.hesitates():
            self.answer()
        if not self.alive or self.running is not None:
            return None
        if self.current is None:
            if self.inbox and not self.left:
                self._open(self.inbox.popleft())
            return None
        item = self.current.todo.popleft()
        if isinstance(item, Stop):
            ended, self.current = self.current, None
            self._end(ended)
        elif self.failed.lanes and self.failed.holds(item):
            self.pool.post(SetAside(self.current.slice.id, self.current.index_of(item)))
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

    def finish(self, verdict: Ending = None) -> None:
        """End the running record."""
        item, handover = self.running, self.current
        if item is None or handover is None:
            raise InvariantError(f"{self.name} is to end what it runs, and runs nothing")
        self.running = None
        self.pool.on_end(self.sub, self.index, item, verdict)
        if verdict is None:
            return
        index = handover.index_of(item)
        if isinstance(verdict, Drop):
            handover.slice.came.restore(index)
            handover.dropped.append(index)
        else:
            self.failed.fail(handover.slice, index)
            self.pool.post(Failed(handover.slice.id, index, verdict))

    def answer(self) -> None:
        """Answer what it was asked back first, whatever it is doing."""
        self.pool.post(self.take_back(self.asked.popleft()))

    def take_back(self, recall: Recall) -> Recalled:
        """Take back what has not started of the slices that are asked for."""
        back = [
            (id_, given.take_back())
            for id_, given in self.given.items()
            if recall.only is None or id_ in recall.only
        ]
        return Recalled(self.sub, self.index, back)

    def die(self) -> None:
        """End the thread in the middle of whatever it does."""
        self.alive = False

    def leave(self) -> None:
        """Begin no slice any more, and be gone when the one that it is in has ended."""
        self.left = True

    def fail_running(self) -> None:
        """Report what the dead thread was running as failed, once."""
        if self.running is not None:
            self.finish(DIED)

    def _open(self, item: Handover | Fence | Release | Adopt) -> None:
        if isinstance(item, Fence):
            self.failed.passed(item.lanes)
            self.pool.post(FencePassed(item.subscription, item.worker, item.lanes))
        elif isinstance(item, Release):
            state = self.pool.on_release(self.sub, self.index, item.slots)
            self.pool.post(Released(self.sub, self.index, item.number, state))
        elif isinstance(item, Adopt):
            self.pool.on_adopt(self.sub, self.index, item.slots, item.state)
        else:
            self.current = item

    def _end(self, handover: Handover) -> None:
        self.pool.post(Ended(handover.slice.id, self.pool.seconds, handover.dropped))
        del self.given[handover.slice.id]

    def end(self) -> None:
        """End, with nothing left to do."""
        if self.given or self.running is not None:
            raise InvariantError(f"{self.name} is to end, and has {len(self.given)} slices")
        self.abandoned = True
        self.alive = False

    def abandon(self) -> None:
        """Report everything that the dead worker was given as over."""
        self.fail_running()
        self.abandoned = True
        self.current = None
        self.inbox.clear()
        for handover in list(self.given.values()):
            self._end(handover)


class SteppedPool:
    """All workers of a dispatcher, and the mailbox that they post to."""

    def __init__(self, core: Dispatcher, post: Callable[[Report | Recalled], None]) -> None:
        self.post = post
        self.lanes = core.lanes
        # Whether the next recall is answered by the worker, when it gets to it.
        self.answers_later: Callable[[], bool] = lambda: False
        # And whether a worker that is asked goes on first, and may start what it is to give back.
        self.hesitates: Callable[[], bool] = lambda: False
        self.on_start: Callable[[str, int, Record], None] = ignore
        self.on_end: Callable[[str, int, Record, Ending], None] = ignore_end
        self.on_release: Callable[[str, int, Sequence[int]], object] = no_state
        self.on_adopt: Callable[[str, int, Sequence[int], object], None] = ignore_state
        self.write_into: Callable[[Record], None] = leave_alone
        self.seconds = 0.001
        self.replaceable = True
        self.workers = {
            (name, worker.id): SteppedWorker(self, name, worker.id, worker.name)
            for name, sub in core.subscriptions.items()
            for worker in sub.workers.values()
        }

    def start(self, lanes: Lanes = own_lanes) -> None:
        """Start nothing: the test is every worker's thread."""

    def submit(self, slice_: Slice) -> None:
        """Hand a slice to its worker."""
        worker = self.workers[slice_.subscription, slice_.worker]
        handover = Handover(slice_)
        if worker.asked:
            raise InvariantError(f"{worker.name} is being recalled and gets more")
        worker.given[slice_.id] = handover
        worker.inbox.append(handover)

    def fence(self, fence: Fence) -> None:
        """Put a fence behind everything the worker has."""
        self.workers[fence.subscription, fence.worker].inbox.append(fence)

    def recall(self, recall: Recall) -> Recalled | None:
        """Take back every unstarted record of the worker, or have the worker do it."""
        worker = self.workers[recall.subscription, recall.worker]
        if worker.asked or (worker.alive and not worker.gone and self.answers_later()):
            worker.asked.append(recall)
            return None
        return worker.take_back(recall)

    def lapse(self, lapse: Lapse) -> None:
        """Nothing to do."""

    def add(self, worker: StartWorker) -> None:
        """Start one more worker."""
        place = worker.subscription, worker.worker
        self.workers[place] = SteppedWorker(self, *place, worker.name)

    def progress(self) -> Progress:
        """Return how far each outstanding slice has got."""
        return {
            id_: handover.progress()
            for worker in self.workers.values()
            for id_, handover in worker.given.items()
        }

    def dead(self) -> list[tuple[str, int]]:
        """Return the workers whose thread has ended and that were not given up."""
        return [
            place
            for place, worker in self.workers.items()
            if not (worker.alive or worker.abandoned)
        ]

    def departed(self) -> list[tuple[str, int]]:
        """Return the workers that have gone for good, by their own will."""
        return [
            place for place, worker in self.workers.items() if worker.gone and not worker.abandoned
        ]

    def where(self, subscription: str, worker: int) -> str:
        """Return nothing: no thread stands anywhere."""
        del subscription, worker
        return ""

    def expire_leases(self) -> None:
        """Nothing is due."""

    def replace(self, subscription: str, worker: int) -> None:
        """Go on where the dead thread ended; the record that it ran counts as failed."""
        found = self.workers[subscription, worker]
        while found.asked:
            found.answer()
        found.fail_running()
        found.alive = self.replaceable

    def abandon(self, subscription: str, worker: int) -> None:
        """Report what the dead worker was running as failed, and all its slices as ended."""
        self.workers[subscription, worker].abandon()

    def release(self, release: Release) -> None:
        """Have the worker give up the state of slots, when it gets to it."""
        self.workers[release.subscription, release.worker].inbox.append(release)

    def adopt(self, adopt: Adopt) -> None:
        """Have the worker take over the state of slots, when it gets to it."""
        self.workers[adopt.subscription, adopt.worker].inbox.append(adopt)

    def end(self, subscription: str, worker: int) -> None:
        """End a worker that has nothing left."""
        self.workers[subscription, worker].end()

    def stop(self, timeout: float) -> list[str]:
        """Let nothing start any more; return the names of those still running."""
        del timeout
        for worker in self.workers.values():
            for handover in worker.given.values():
                handover.take_back()
        return [worker.name for worker in self.workers.values() if worker.running is not None]

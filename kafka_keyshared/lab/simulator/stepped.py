"""Pool without threads: its caller chooses every step of every worker.

It keeps exactly to the protocol of the thread pool. Each worker is first in, first out. A failed
record is restored, then posted before the next one is taken. Later records of a failed lane are set
aside until the fence. Unstarted records are taken back at once, during any work of the worker (with
the real handover). A test steps it by hand, a simulation by its timeline
(:mod:`kafka_keyshared.lab.simulator.pool`).

It plays the ack timeout of every kind of pool (:data:`PoolKind`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from kafka_keyshared.core.contract.commands import (
    Adopt,
    Fence,
    Lapse,
    Recall,
    Release,
    StartWorker,
    TimeOut,
)
from kafka_keyshared.core.contract.events import (
    Failed,
    FencePassed,
    Recalled,
    Released,
    Report,
    SetAside,
    SliceEnded,
    Stuck,
)
from kafka_keyshared.core.contract.outcomes import Disposition, Failure
from kafka_keyshared.core.contract.slices import Progress, Slice
from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.executors.failed_lanes import FailedLanes, Lanes, own_lanes
from kafka_keyshared.executors.port import Handover, take_back_all
from kafka_keyshared.lab.simulator.handlers import Ending
from kafka_keyshared.model import Drop, Record

DIED = Failure(
    Disposition.ERROR, "RuntimeError", "the worker's thread ended while it was running", "", 0
)
"""Outcome of an attempt in which the worker has died."""

TIMED_OUT = Failure(
    Disposition.ERROR, "TimeoutError", "it ran past the ack timeout", "", 0, timed_out=True
)
"""Outcome of an attempt that was ended at its ack timeout."""

PoolKind: TypeAlias = Literal["thread", "instance", "process", "task", "lease"]
"""Kinds of workers.

Threads with a function: another thread may go on beside a stuck one. Threads with an instance of a
class each: none may. Processes are killed and replaced. Tasks are cancelled, and may not heed that.
Leases of members end.
"""


def ignore(_sub: str, _worker: int, _record: Record) -> None:
    """Observe nothing."""


def leave_alone(_record: Record) -> None:
    """Leave the record unchanged."""


def ignore_end(_sub: str, _worker: int, _record: Record, _verdict: Ending) -> None:
    """Observe nothing."""


def no_state(_sub: str, _worker: int, _slots: Sequence[int]) -> None:
    """Have no state."""


def never_fails(_sub: str, _worker: int) -> bool:
    """Return False: it does not fail."""
    return False


def ignore_state(_sub: str, _worker: int, _slots: Sequence[int], _state: object) -> None:
    """Adopt nothing."""


class Apart(NamedTuple):
    """A stuck record beside which a worker has gone on, and the number of its run."""

    handover: Handover
    record: Record
    run: int


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
        self.run = 0
        """The number of its current run, or of the last one."""
        self.failed = FailedLanes(pool.lanes(sub))
        self.asked: deque[Recall] = deque()
        # Stuck records beside which it goes on, and the run that was cancelled.
        self.apart: list[Apart] = []
        self.cancelled: int | None = None
        self.alive = True
        self.left = False
        self.abandoned = False

    @property
    def busy(self) -> bool:
        """Whether it has anything to do."""
        return self.alive and bool(self.current or self.asked or (self.inbox and not self.left))

    @property
    def there(self) -> bool:
        """Whether it takes slices: it has neither died nor left."""
        return self.alive and not self.left

    @property
    def gone(self) -> bool:
        """Whether it has left for good, and has ended everything it had begun."""
        return self.left and self.current is None

    def slices(self) -> list[Slice]:
        """Return the slices that it has not reported as ended."""
        return [handover.slice for handover in self.given.values()]

    def step(self) -> Record | None:
        """Take one step; return the record if that starts one."""
        if self.asked and not self.pool.hesitates():
            self.answer()
        if not self.alive or self.running is not None:
            return None
        if self.current is None:
            if self.inbox and not self.left:
                self._open(self.inbox.popleft())
            return None
        item = next(self.current.todo, None)
        if item is None:
            ended, self.current = self.current, None
            self._end(ended)
        elif self.failed.lanes and self.failed.holds(item):
            self.pool.post(SetAside(self.current.slice.id, self.current.index_of(item)))
        else:
            self.running = item
            self.run += 1
            self.pool.on_start(self.sub, self.index, item)
            self.pool.write_into(item)
            return item
        return None

    def start(self) -> Record | None:
        """Go on until a record starts; return None if there is none to start."""
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
        self._finish(handover, item, verdict, self.failed)

    def _finish(
        self, handover: Handover, item: Record, verdict: Ending, failed: FailedLanes
    ) -> None:
        self.pool.on_end(self.sub, self.index, item, verdict)
        if verdict is None:
            return
        index = handover.index_of(item)
        if isinstance(verdict, Drop):
            handover.slice.came.restore(index)
            handover.dropped.append(index)
        else:
            failed.fail(handover.slice, index)
            self.pool.post(Failed(handover.slice.id, index, verdict))

    # --- past the ack timeout ---

    def runs(self, id_: int, index: int) -> bool:
        """Return whether it runs that record of the slice."""
        handover = self.current
        if not self.alive or self.running is None or handover is None:
            return False
        return handover.slice.id == id_ and handover.progress().started == index + 1

    def time_out(self, past: TimeOut) -> None:
        """Handle the record that it runs as its kind of pool does, and answer."""
        ((id_, index),) = past.running
        runs, kind = self.runs(id_, index), self.pool.kind
        stuck: tuple[Stuck, ...] = ()
        back: list[tuple[int, range]] = []
        if kind in ("thread", "instance") or (kind == "task" and self.cancelled == self.run):
            back = take_back_all(self.given)
            if runs and self.current is not None:
                goes_on = self.pool.may_go_on()
                stuck = (Stuck(id_, index, goes_on, tuple(self.current.dropped)),)
        elif runs and kind == "task" and not self.pool.heeds():
            self.cancelled = self.run
        elif runs:
            self.finish(TIMED_OUT)
        self.pool.post(Recalled(self.sub, self.index, back, stuck))
        if any(each.goes_on for each in stuck):
            self._go_on()

    def _go_on(self) -> None:
        """Leave the running record to itself, and go on with the rest."""
        if self.running is None or self.current is None:
            raise InvariantError(f"{self.name} is to go on beside what it runs, and runs nothing")
        self.apart.append(Apart(self.current, self.running, self.run))
        self.current = self.running = None
        self.failed = FailedLanes(self.pool.lanes(self.sub))

    def finish_apart(self, record: Record, verdict: Ending = None) -> None:
        """End a record beside which it has gone on."""
        found = next(each for each in self.apart if each.record is record)
        self.apart.remove(found)
        no_lanes = FailedLanes(self.pool.lanes(self.sub))
        self._finish(found.handover, record, verdict, no_lanes)
        self._end(found.handover)

    def answer(self) -> None:
        """Answer its oldest recall, during any work."""
        self.pool.post(self.take_back(self.asked.popleft()))

    def take_back(self, recall: Recall) -> Recalled:
        """Take back the unstarted records of the recalled slices."""
        return Recalled(self.sub, self.index, take_back_all(self.given, recall.only))

    def die(self) -> None:
        """End the thread in the middle of its work."""
        self.alive = False

    def leave(self) -> None:
        """Begin no further slice, and be gone when the current one has ended."""
        self.left = True

    def fail_running(self) -> None:
        """Report the record that the dead thread was running as failed, once."""
        if self.running is not None:
            self.finish(DIED)

    def _open(self, item: Handover | Fence | Release | Adopt) -> None:
        if isinstance(item, Fence):
            self.failed.passed(item.lanes)
            self.pool.post(FencePassed(item.subscription, item.worker, item.lanes))
        elif isinstance(item, Release):
            if self.pool.release_fails(self.sub, self.index):
                error = "RuntimeError: on purpose"
                self.pool.post(Released(self.sub, self.index, item.number, None, error))
                return
            state = self.pool.on_release(self.sub, self.index, item.slots)
            self.pool.post(Released(self.sub, self.index, item.number, state))
        elif isinstance(item, Adopt):
            self.pool.on_adopt(self.sub, self.index, item.slots, item.state)
        else:
            self.current = item

    def _end(self, handover: Handover) -> None:
        self.pool.post(SliceEnded(handover.slice.id, self.pool.seconds, handover.dropped))
        del self.given[handover.slice.id]

    def end(self) -> None:
        """End, with nothing left to do."""
        if self.given or self.running is not None:
            raise InvariantError(f"{self.name} is to end, and has {len(self.given)} slices")
        self.abandoned = True
        self.alive = False

    def abandon(self, *, settle: bool = False) -> None:
        """Report every slice of the dead worker as over, or as dropped."""
        if settle:
            for handover in self.given.values():
                handover.drop_rest()
        self.fail_running()
        self.abandoned = True
        self.current = None
        self.inbox.clear()
        for handover in list(self.given.values()):
            if not any(handover is each.handover for each in self.apart):
                self._end(handover)


class SteppedPool:
    """All workers of a dispatcher, and the mailbox that they post to."""

    def __init__(self, core: Dispatcher, post: Callable[[Report | Recalled], None]) -> None:
        self.post = post
        self.lanes = core.lanes
        # Whether the worker answers the next recall itself, when it gets to it.
        self.answers_later: Callable[[], bool] = lambda: False
        # Whether a recalled worker goes on first, and may start a recalled record.
        self.hesitates: Callable[[], bool] = lambda: False
        self.on_start: Callable[[str, int, Record], None] = ignore
        self.on_end: Callable[[str, int, Record, Ending], None] = ignore_end
        self.on_release: Callable[[str, int, Sequence[int]], object] = no_state
        # Whether the handler of a worker raises when it is to release the state of slots.
        self.release_fails: Callable[[str, int], bool] = never_fails
        self.on_adopt: Callable[[str, int, Sequence[int], object], None] = ignore_state
        self.write_into: Callable[[Record], None] = leave_alone
        self.seconds = 0.001
        self.replaceable = True
        self._revived: list[tuple[str, int]] = []
        self.kind: PoolKind = "thread"
        # Whether a cancelled task ends.
        self.heeds: Callable[[], bool] = lambda: True
        self.workers = {
            (name, worker.id): SteppedWorker(self, name, worker.id, worker.name)
            for name, sub in core.subscriptions.items()
            for worker in sub.workers.values()
        }

    def start(self, lanes: Lanes = own_lanes) -> None:
        """Start nothing: the caller is every worker's thread."""

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

    def time_out(self, past: TimeOut) -> None:
        """Handle the record that a worker runs past its ack timeout, as this kind of pool does."""
        self.workers[past.subscription, past.worker].time_out(past)

    def may_go_on(self) -> bool:
        """Return whether another one may go on in place of a worker with a stuck record."""
        beside = sum(len(worker.apart) for worker in self.workers.values())
        return self.kind == "task" or (self.kind == "thread" and beside < len(self.workers))

    def lapse(self, lapse: Lapse) -> None:
        """Do nothing."""

    def add(self, worker: StartWorker) -> None:
        """Start one more worker."""
        place = worker.subscription, worker.worker
        self.workers[place] = SteppedWorker(self, *place, worker.name)

    def progress(self) -> Progress:
        """Return the progress of each outstanding slice."""
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

    def revived(self) -> list[tuple[str, int]]:
        """Return the workers that were replaced since the last call."""
        found, self._revived = self._revived, []
        return found

    def departed(self) -> list[tuple[str, int]]:
        """Return the workers that have left for good by themselves."""
        return [
            place for place, worker in self.workers.items() if worker.gone and not worker.abandoned
        ]

    def where(self, subscription: str, worker: int, slice_: int, index: int) -> str:
        """Return an empty text: there is no thread."""
        del subscription, worker, slice_, index
        return ""

    def stack(self, subscription: str, worker: int, slice_: int, index: int) -> str:
        """Return an empty text: there is no thread."""
        del subscription, worker, slice_, index
        return ""

    def beat(self) -> None:
        """Do nothing."""

    def late(self) -> dict[str, int]:
        """Return nothing: late ends are not reported here."""
        return {}

    def replace(self, subscription: str, worker: int) -> None:
        """Continue where the dead thread ended. The record that it ran counts as failed."""
        found = self.workers[subscription, worker]
        while found.asked:
            found.answer()
        found.fail_running()
        found.alive = self.replaceable
        if found.alive:
            self._revived.append((subscription, worker))

    def abandon(self, subscription: str, worker: int, *, settle: bool = False) -> None:
        """Report the dead worker's record as failed, and all its slices as ended."""
        self.workers[subscription, worker].abandon(settle=settle)

    def release(self, release: Release) -> None:
        """Make the worker release the state of slots, when it gets to it."""
        self.workers[release.subscription, release.worker].inbox.append(release)

    def adopt(self, adopt: Adopt) -> None:
        """Make the worker adopt the state of slots, when it gets to it."""
        self.workers[adopt.subscription, adopt.worker].inbox.append(adopt)

    def end(self, subscription: str, worker: int) -> None:
        """End a worker that has nothing left."""
        self.workers[subscription, worker].end()

    def stop(self, timeout: float) -> list[str]:
        """Stop all further starts; return the names of workers that still run a record."""
        del timeout
        for worker in self.workers.values():
            take_back_all(worker.given)
        return [
            worker.name
            for worker in self.workers.values()
            if worker.running is not None or worker.apart
        ]

"""The coroutine pool: one event loop, many concurrent records per worker.

A worker starts a record when no other record of its lane runs there and fewer than its *limit* run.
A record that waits for an earlier one of its lane is *chained* to it. Long-lived tasks, the runners
of :mod:`.asyncio_record_worker`, run one record after the other. A task for each record would cost
three times that.

All data of a worker belongs to the loop's thread. The owner's commands reach it in order, through
one inbox. A recall, a fence and a time-out are answered when the loop processes them.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeAlias

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract.commands import (
    Adopt,
    Fence,
    Lapse,
    Recall,
    Release,
    StartWorker,
    TimeOut,
)
from kafka_keyshared.core.contract.slices import Progress, Slice
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.executors.coroutines.asyncio_base import LoopWorker, Post
from kafka_keyshared.executors.coroutines.asyncio_record_worker import TaskWorker
from kafka_keyshared.executors.coroutines.event_loop import END_PATIENCE, Host, OwnLoop
from kafka_keyshared.executors.failed_lanes import FailedLanes, Lanes, own_lanes
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import in_words
from kafka_keyshared.platform import forks

log = log_of("kafka_keyshared.pool")

BLOCKED_AFTER = 1.0
"""Seconds after which a loop that has not turned is logged as blocked."""

Whose: TypeAlias = tuple[str, int]
MakeWorker: TypeAlias = Callable[[WorkerSpec, int, Post, Clock], LoopWorker[Any]]


class TaskPool:
    """Runs coroutine functions on an event loop. See :class:`~kafka_keyshared.executors.port.Pool`.

    ``make`` makes its workers: those for single records, or those for batches.
    """

    def __init__(
        self,
        specs: list[WorkerSpec],
        mailbox: SimpleQueue[Any],
        clock: Clock,
        *,
        limit: int,
        host: Host | None = None,
        make: MakeWorker = TaskWorker,
    ) -> None:
        self._mailbox = mailbox
        self._clock = clock
        self._limit = limit
        self._make_worker = make
        self._host: Host = OwnLoop() if host is None else host
        self._lanes: Lanes = own_lanes
        self._inbox: deque[Callable[[], object]] = deque()
        self._told = False
        self._asked_at: float | None = None
        self._blocked = False
        self.workers: dict[Whose, LoopWorker[Any]] = {}
        for spec in specs:
            self._make(spec)

    def _make(self, spec: WorkerSpec) -> LoopWorker[Any]:
        worker = self._make_worker(spec, self._limit, self._mailbox.put, self._clock)
        self.workers[spec.subscription, spec.index] = worker
        return worker

    # --- calls of the owner ---

    def start(self, lanes: Lanes = own_lanes) -> None:
        """Start the loop, and wait until the handler of each worker is made.

        Raises :class:`ConfigError` if a handler cannot be made. Raises :class:`KeySharedError` if
        the caller closed the loop before that.
        """
        self._lanes = lanes
        forks.watch(self)
        self._host.start()
        for worker in self.workers.values() if self._host.alive else ():
            self._open(worker)
        for worker in self.workers.values():
            if not self._host.wait(worker.made):
                self.stop(0.0)
                raise KeySharedError("the event loop was closed before the workers had started")
            if worker.broken is not None:
                self.stop(0.0)
                raise ConfigError(
                    f"the handler of {worker.name} could not be made: "
                    f"{type(worker.broken).__name__}: {worker.broken}"
                ) from worker.broken

    def forked(self) -> None:
        """Mark the workers as forked: the child ends when its handler returns."""
        for worker in self.workers.values():
            worker.forked = True

    def _open(self, worker: LoopWorker[Any]) -> None:
        worker.failed = FailedLanes(self._lanes(worker.spec.subscription))
        self._tell(worker.open)

    def submit(self, slice_: Slice) -> None:
        """Hand a slice to its worker."""
        worker = self.workers[slice_.subscription, slice_.worker]
        worker.given[slice_.id] = given = worker.in_hand(slice_)
        self._tell(partial(worker.accept, given))

    def fence(self, fence: Fence) -> None:
        """Post the fence when the loop gets to it: a failed lane's records are back by then."""
        worker = self.workers[fence.subscription, fence.worker]
        self._tell(partial(worker.pass_fence, fence))

    def recall(self, recall: Recall) -> None:
        """Have the worker hand back its unstarted records."""
        self._tell(partial(self.workers[recall.subscription, recall.worker].recall, recall))

    def time_out(self, past: TimeOut) -> None:
        """Cancel these records; report those that were cancelled before as stuck."""
        self._tell(partial(self.workers[past.subscription, past.worker].time_out, past))

    def lapse(self, lapse: Lapse) -> None:
        """Mark leases as over, for handlers that ask."""
        given = self.workers[lapse.subscription, lapse.worker].given
        for id_ in lapse.slices:
            if (each := given.get(id_)) is not None:
                each.gone |= lapse.partitions

    def progress(self) -> Progress:
        """Return which records have started."""
        return {
            id_: given.progress()
            for worker in self.workers.values()
            # A copy in one C call, because the loop removes slices concurrently.
            for id_, given in worker.given.copy().items()
        }

    def add(self, worker: StartWorker) -> None:
        """Add one more worker on the loop."""
        of = next(
            each for each in self.workers.values() if each.spec.subscription == worker.subscription
        )
        self._open(self._make(replace(of.spec, index=worker.worker, name=worker.name)))

    def resize(self, limit: int) -> None:
        """Set the number of records that each worker runs at once; from any thread.

        Records that run beyond the new limit end as usual, and are not replaced.
        """
        self._limit = limit
        for worker in list(self.workers.values()):
            worker.limit = limit
        self._tell(_look)

    def dead(self) -> list[Whose]:
        """Return all workers if the loop's thread has ended, else none."""
        return [] if self._host.alive else list(self.workers)

    def revived(self) -> list[Whose]:
        """Return nothing: an ended loop of the caller's is not run again."""
        return []

    def departed(self) -> list[Whose]:
        """Return nothing: a worker lives as long as the loop."""
        return []

    def where(self, subscription: str, worker: int, slice_: int, index: int) -> str:
        """Return the place in the user's program of the coroutine that runs the record."""
        found = self.workers.get((subscription, worker))
        return "" if found is None else found.where(slice_, index)

    def stack(self, subscription: str, worker: int, slice_: int, index: int) -> str:
        """Return the call stack of the coroutine; the outermost call comes first."""
        found = self.workers.get((subscription, worker))
        return "" if found is None else found.stack(slice_, index)

    def beat(self) -> None:
        """Log a handler that blocks the loop, and the end of the block."""
        now = self._clock.monotonic()
        asked = self._asked_at  # read once: the loop may reset it
        if asked is None:
            self._asked_at = now
            self._host.tell(self._turned)
        elif not self._blocked and now - asked >= BLOCKED_AFTER:
            self._blocked = True
            log.warning(
                "the event loop has not turned for %s, so no other record gets on; its thread "
                "stands %s: await what takes time, or give it to asyncio.to_thread()\n%s",
                in_words(now - asked),
                self._host.standing() or "in no code of the program's",
                self._host.stack().rstrip(),
            )

    def _turned(self) -> None:
        asked, self._asked_at = self._asked_at, None
        if self._blocked and asked is not None:
            self._blocked = False
            seconds = in_words(self._clock.monotonic() - asked)
            log.info("the event loop turns again, after %s", seconds)

    def late(self) -> dict[str, int]:
        """Return nothing: a coroutine reports the result of a record once."""
        return {}

    def replace(self, subscription: str, worker: int) -> None:
        """Restart the loop, unless it is the caller's; records that ran there count as failed."""
        if not self._host.alive:
            self._take_in()
            self._host.start()
        lost = self.workers[subscription, worker]
        if self._host.alive:
            self._tell(lost.reopen)
        else:
            lost.lose()

    def abandon(self, subscription: str, worker: int, *, settle: bool = False) -> None:
        """Report the dead worker's running records as failed, and its slices as ended."""
        self._take_in()
        self.workers[subscription, worker].abandon(settle=settle)

    def release(self, release: Release) -> None:
        """Have the worker's handler release the state of slots, behind all that it holds."""
        worker = self.workers[release.subscription, release.worker]
        self._tell(partial(worker.hand_over, release))

    def adopt(self, adopt: Adopt) -> None:
        """Have the worker's handler adopt the state of slots."""
        self._tell(partial(self.workers[adopt.subscription, adopt.worker].hand_over, adopt))

    def end(self, subscription: str, worker: int) -> None:
        """Have the worker close its handler and end."""
        self._tell(self.workers.pop((subscription, worker)).close)

    def stop(self, timeout: float) -> list[str]:
        """Start nothing more; close the handlers of idle workers.

        Return the names of the workers that still run records.
        """
        deadline = time.monotonic() + timeout
        for worker in self.workers.values():
            self._tell(worker.close)
        left = [
            worker.name
            for worker in self.workers.values()
            if not self._host.wait(worker.closed, max(0.0, deadline - time.monotonic()))
            and worker.runs
        ]
        if not left:
            self._host.close()
        return left

    async def quit(self) -> None:
        """Cancel all that still runs on the caller's loop; awaited there when the run is over.

        Nothing waits for the cancelled records. They run again at the next start.
        """
        left = [task for worker in self.workers.values() for task in worker.quit()]
        if left:
            await asyncio.wait(left, timeout=END_PATIENCE)

    # --- commands to the loop ---

    def _tell(self, what: Callable[[], object]) -> None:
        """Queue a command for the loop; one wake-up covers all queued commands."""
        self._inbox.append(what)
        if not self._host.alive:
            self._take_in()
        elif not self._told:
            self._told = True
            self._host.tell(self._take_in)

    def _take_in(self) -> None:
        # Reset first: a command that is appended after the last check schedules this again.
        # GIL: two threads each write one variable and then read the other's, so at least one of
        # them sees the write.
        self._told = False
        while self._inbox:
            self._inbox.popleft()()
        for worker in list(self.workers.values()):  # the owner adds and removes workers
            worker.wake()


def _look() -> None:
    """Do nothing; after any command the workers look for records that may start."""

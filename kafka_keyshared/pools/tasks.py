"""The pool of coroutines: one event loop, and in each of its workers many records at once.

A worker starts a record as soon as none of its lane runs there and fewer than its *limit* run:
what waits for an earlier one of its lane is *chained* to it. Long-lived tasks, the runners of
:mod:`.runners`, run one record after the other; a task for each record would cost three times that.

All that a worker has belongs to the loop's thread. The owner's commands reach it through one inbox,
in their order, so a recall, a fence and a time-out are answered when the loop gets to them.
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
from kafka_keyshared.core.commands import Adopt, Fence, Lapse, Recall, Release, StartWorker, TimeOut
from kafka_keyshared.core.slices import Progress, Slice
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import in_words
from kafka_keyshared.pools.failed_lanes import FailedLanes, Lanes, own_lanes
from kafka_keyshared.pools.loop_host import END_PATIENCE, Host, OwnLoop
from kafka_keyshared.pools.loop_worker import LoopWorker, Post
from kafka_keyshared.pools.runners import TaskWorker
from kafka_keyshared.pools.worker_cells import WorkerSpec
from kafka_keyshared.program import forks

log = log_of("kafka_keyshared.pool")

BLOCKED_AFTER = 1.0
"""Seconds after which a loop that has not turned is told of."""

Whose: TypeAlias = tuple[str, int]
MakeWorker: TypeAlias = Callable[[WorkerSpec, int, Post, Clock], LoopWorker[Any]]


class TaskPool:
    """Runs coroutine functions on an event loop. See :class:`~.port.Pool`.

    ``make`` makes its workers: those that call a handler with one record, or with several.
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

    # --- what the owner asks ---

    def start(self, lanes: Lanes = own_lanes) -> None:
        """Start the loop, and wait until the handler of each worker is made.

        Raises :class:`ConfigError` when one cannot be made, and :class:`KeySharedError` when the
        loop is the caller's and closed meanwhile.
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
        """Let the child of a handler end when it comes back: records are the parent's."""
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
        """Have the fence come back: what is behind a failed record is handed back as it fails."""
        worker = self.workers[fence.subscription, fence.worker]
        self._tell(partial(worker.pass_fence, fence))

    def recall(self, recall: Recall) -> None:
        """Have the worker give back what has not started."""
        self._tell(partial(self.workers[recall.subscription, recall.worker].recall, recall))

    def time_out(self, past: TimeOut) -> None:
        """Cancel these; name those that have been cancelled before as stuck."""
        self._tell(partial(self.workers[past.subscription, past.worker].time_out, past))

    def lapse(self, lapse: Lapse) -> None:
        """Note it for the handlers that ask."""
        given = self.workers[lapse.subscription, lapse.worker].given
        for id_ in lapse.slices:
            if (each := given.get(id_)) is not None:
                each.gone |= lapse.partitions

    def progress(self) -> Progress:
        """Return which records have started."""
        return {
            id_: given.progress()
            for worker in self.workers.values()
            # A copy in one C call: the loop removes them meanwhile.
            for id_, given in worker.given.copy().items()
        }

    def add(self, worker: StartWorker) -> None:
        """Make room for one more worker on the loop."""
        of = next(
            each for each in self.workers.values() if each.spec.subscription == worker.subscription
        )
        self._open(self._make(replace(of.spec, index=worker.worker, name=worker.name)))

    def resize(self, limit: int) -> None:
        """Have each worker run so many records at once from now on; from any thread.

        What runs beyond that ends as ever, and nothing takes its place.
        """
        self._limit = limit
        for worker in list(self.workers.values()):
            worker.limit = limit
        self._tell(_look)

    def dead(self) -> list[Whose]:
        """Return everybody when the loop's thread has ended, else nobody."""
        return [] if self._host.alive else list(self.workers)

    def revived(self) -> list[Whose]:
        """Return nothing: a loop that has ended is the caller's, and is not run again."""
        return []

    def departed(self) -> list[Whose]:
        """Return nothing: a worker is there as long as the loop."""
        return []

    def where(self, subscription: str, worker: int, slice_: int, index: int) -> str:
        """Return where in the user's program the coroutine stands that has the record."""
        found = self.workers.get((subscription, worker))
        return "" if found is None else found.where(slice_, index)

    def stack(self, subscription: str, worker: int, slice_: int, index: int) -> str:
        """Return the calls that the coroutine is in, the one that awaits all the others first."""
        found = self.workers.get((subscription, worker))
        return "" if found is None else found.stack(slice_, index)

    def beat(self) -> None:
        """Tell of a handler that keeps the loop from turning, and of its end."""
        now = self._clock.monotonic()
        asked = self._asked_at  # read once: the loop answers meanwhile
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
        """Return nothing: a coroutine says what becomes of a record once."""
        return {}

    def replace(self, subscription: str, worker: int) -> None:
        """Start the loop anew, unless it is the caller's; what ran there counts as failed."""
        if not self._host.alive:
            self._take_in()
            self._host.start()
        lost = self.workers[subscription, worker]
        if self._host.alive:
            self._tell(lost.reopen)
        else:
            lost.lose()

    def abandon(self, subscription: str, worker: int, *, settle: bool = False) -> None:
        """Report what the dead worker was running as failed, and the rest as ended."""
        self._take_in()
        self.workers[subscription, worker].abandon(settle=settle)

    def release(self, release: Release) -> None:
        """Have the worker's handler give up the state of slots, behind what it has."""
        worker = self.workers[release.subscription, release.worker]
        self._tell(partial(worker.hand_over, release))

    def adopt(self, adopt: Adopt) -> None:
        """Have the worker's handler take over the state of slots."""
        self._tell(partial(self.workers[adopt.subscription, adopt.worker].hand_over, adopt))

    def end(self, subscription: str, worker: int) -> None:
        """Have the worker close its handler and end."""
        self._tell(self.workers.pop((subscription, worker)).close)

    def stop(self, timeout: float) -> list[str]:
        """Let nothing start any more; close the handlers of those that have nothing left."""
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
        """Leave nothing behind on the loop that this is awaited on, when the run is over there.

        What still runs is cancelled: nobody waits for it, and it runs again at the next start.
        """
        left = [task for worker in self.workers.values() for task in worker.quit()]
        if left:
            await asyncio.wait(left, timeout=END_PATIENCE)

    # --- the way to the loop ---

    def _tell(self, what: Callable[[], object]) -> None:
        """Have the loop do it behind all that it was told before; once it turns, for all of it."""
        self._inbox.append(what)
        if not self._host.alive:
            self._take_in()
        elif not self._told:
            self._told = True
            self._host.tell(self._take_in)

    def _take_in(self) -> None:
        # First: who appends behind the last look has it come again.
        # GIL: of two threads that each write one thing and then read the other's, one sees it.
        self._told = False
        while self._inbox:
            self._inbox.popleft()()
        for worker in list(self.workers.values()):  # the owner adds and removes some meanwhile
            worker.wake()


def _look() -> None:
    """Nothing but that the workers look for what may start."""

"""The thread pool: one thread with an inbox per worker.

The owner's commands are here. :class:`~.thread_lifecycle.WorkerThreads` starts and ends the
threads, and :class:`~.handler_calls.HandlerCalls` runs the records of a slice.

A thread cannot be ended from outside. If a record does not end, its thread stays with it. A
*replacement thread* does the worker's work from then on. When the stuck record ends at last, its
thread reports it and ends too. There are at most as many replacement threads as workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from kafka_keyshared.core.contract.events import (
    Failed,
    FencePassed,
    Recalled,
    SliceEnded,
    Stuck,
)
from kafka_keyshared.core.contract.slices import Progress, Slice
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.executors.failed_lanes import Lanes, own_lanes
from kafka_keyshared.executors.handling.failure import describe
from kafka_keyshared.executors.handling.handlers import Made
from kafka_keyshared.executors.port import Handover, take_back_all
from kafka_keyshared.executors.state_calls import hand_over
from kafka_keyshared.executors.thread_state import Handle, WorkerCell, WorkerSpec
from kafka_keyshared.executors.threads.handler_calls import HandlerCalls, SliceRunner
from kafka_keyshared.executors.threads.thread_lifecycle import Place, ThreadWork, WorkerThreads

ManageThreads: TypeAlias = Callable[
    [Sequence[WorkerSpec], ThreadWork[WorkerCell], Clock], WorkerThreads[WorkerCell]
]


class ThreadPool:
    """Runs plain functions and handler classes on threads. See
    :class:`~kafka_keyshared.executors.port.Pool`.

    ``runner`` runs the records of a slice, by default with a handler call each. ``threads`` manages
    the workers' threads.
    """

    def __init__(
        self,
        specs: Sequence[WorkerSpec],
        mailbox: SimpleQueue[Any],
        clock: Clock,
        *,
        runner: SliceRunner | None = None,
        threads: ManageThreads = WorkerThreads,
    ) -> None:
        self._mailbox = mailbox
        self._clock = clock
        self._threads = threads(specs, self, clock)
        self._runner = runner or HandlerCalls(mailbox, clock, self._threads.in_child)
        self._in_child = self._threads.in_child
        self.cells = self._threads.cells
        self.beside = self._threads.beside

    # --- calls of the owner ---

    def start(self, lanes: Lanes = own_lanes) -> None:
        """Start one thread per worker and wait until each has made its handler.

        Raises :class:`ConfigError` if a handler cannot be made.
        """
        try:
            self._threads.start(lanes)
        except ConfigError:
            self.stop(0.0)
            raise

    def add(self, worker: StartWorker) -> None:
        """Start one more worker thread, with the same handler as the others."""
        self._threads.add(worker)

    def dead(self) -> list[Place]:
        """Return the workers whose thread has ended."""
        return self._threads.dead()

    def revived(self) -> list[Place]:
        """Return the workers whose handlers were made since the previous call."""
        return self._threads.revived()

    def departed(self) -> list[Place]:
        """Return nothing: a thread that has ended is replaced."""
        return []

    def late(self) -> dict[str, int]:
        """Return nothing: a thread reports the result of a record once."""
        return {}

    def where(self, subscription: str, worker: int, slice_: int, index: int) -> str:
        """Return the place in the user's program of the thread that runs the slice."""
        del index  # a thread is in one place only
        return self._threads.where(subscription, worker, slice_)

    def stack(self, subscription: str, worker: int, slice_: int, index: int) -> str:
        """Return the call stack of this thread."""
        del index
        return self._threads.stack(subscription, worker, slice_)

    def stop(self, timeout: float) -> list[str]:
        """End the workers and close their handlers; return the names of those still running."""
        return self._threads.stop(timeout)

    def submit(self, slice_: Slice) -> None:
        """Hand a slice to its worker."""
        cell = self.cells[slice_.subscription, slice_.worker]
        handover = cell.given[slice_.id] = cell.handover(slice_)
        cell.inbox.put(handover)

    def fence(self, fence: Fence) -> None:
        """Put a fence behind everything the worker has."""
        self.cells[fence.subscription, fence.worker].inbox.put(fence)

    def recall(self, recall: Recall) -> Recalled:
        """Take back all unstarted records of the slices at once, also while the worker is busy."""
        cell = self.cells[recall.subscription, recall.worker]
        back = take_back_all(cell.given, recall.only)
        return Recalled(recall.subscription, recall.worker, back)

    def time_out(self, past: TimeOut) -> None:
        """Take back the unstarted records; another thread continues where that is allowed."""
        ((id_, index),) = past.running
        cell = self.cells[past.subscription, past.worker]
        with cell.changing:
            back = take_back_all(cell.given)
            stuck: list[Stuck] = []
            following = None
            # Otherwise the record has ended already, or its thread has; the thread is then replaced
            # at this heartbeat.
            if cell.current is not None and cell.lives() and cell.runs(id_, index):
                following = self._following(cell)
                dropped = tuple(cell.current.dropped)
                stuck = [Stuck(id_, index, following is not None, dropped)]
            self._mailbox.put(Recalled(past.subscription, past.worker, back, stuck))
            if following is not None:
                cell.hand_over(following)
                self.beside.append(cell)
                self.cells[past.subscription, past.worker] = following
        if following is not None:
            self._threads.start_worker(following)

    def lapse(self, lapse: Lapse) -> None:
        """Mark leases as over for handlers that ask.

        The thread goes on, and its result settles nothing.
        """
        given = self.cells[lapse.subscription, lapse.worker].given
        for id_ in lapse.slices:
            if (handover := given.get(id_)) is not None:
                handover.gone |= lapse.partitions

    def progress(self) -> Progress:
        """Return how far each outstanding slice has got."""
        return {
            id_: handover.progress()
            for cell in self.cells.values()
            # A copy in one C call, because the worker removes slices concurrently.
            for id_, handover in cell.given.copy().items()
        }

    def beat(self) -> None:
        """Clean up stuck threads that have ended."""
        for cell in [each for each in self.beside if not each.lives()]:
            self.beside.remove(cell)
            self._abandon(cell, [cell.current] if cell.current is not None else [])

    def replace(self, subscription: str, worker: int) -> None:
        """Start another thread for the worker; the record that the old one ran counts as failed.

        The new thread continues behind that record. It keeps setting aside the later records of
        failed lanes.
        """
        cell = self.cells[subscription, worker]
        self._fail_running(cell)
        self._threads.start_worker(cell)

    def abandon(self, subscription: str, worker: int, *, settle: bool = False) -> None:
        """Report the record that the dead worker was running as failed, and its slices as ended."""
        cell = self.cells[subscription, worker]
        handovers = [
            each
            for each in cell.given.copy().values()
            if not any(other.is_in(each.slice.id) for other in self.beside)
        ]
        if settle:
            for each in handovers:
                each.drop_rest()
        self._abandon(cell, handovers)

    def _abandon(self, cell: WorkerCell, handovers: list[Handover]) -> None:
        self._fail_running(cell)
        for handover in handovers:
            self._end(cell, handover, 0.0)
        cell.inbox = SimpleQueue()
        cell.current = cell.thread = None

    def release(self, release: Release) -> None:
        """Have the worker's handler release the state of slots, in the order of its inbox."""
        self.cells[release.subscription, release.worker].inbox.put(release)

    def adopt(self, adopt: Adopt) -> None:
        """Have the worker's handler adopt the state of slots, in the order of its inbox."""
        self.cells[adopt.subscription, adopt.worker].inbox.put(adopt)

    def end(self, subscription: str, worker: int) -> None:
        """Have the worker's thread close its handler and end, after its current work."""
        cell = self.cells[subscription, worker]
        if cell.thread is None:
            del self.cells[subscription, worker]
        else:
            cell.sent_home = True
            cell.finish()

    # --- the work of its threads ---

    def make_cell(self, spec: WorkerSpec) -> WorkerCell:
        """Return the cell of a worker."""
        return WorkerCell(spec)

    def send_off(self, cell: WorkerCell) -> None:
        """Take back the unstarted records, and end the thread behind the started ones."""
        take_back_all(cell.given)
        cell.finish()

    def run_given(self, cell: WorkerCell, made: Made) -> bool:
        """Run slices until the end of the inbox."""
        handle = made.handle
        if cell.current is not None:
            self._run_slice(cell, cell.current, handle)
        goes_on = not self._in_child()
        while goes_on and (item := cell.inbox.get()) is not None:
            if isinstance(item, Handover):
                goes_on = self._run_slice(cell, item, handle)
            else:
                goes_on = self.carry_out(cell, made, item)
        return goes_on

    def carry_out(self, cell: WorkerCell, made: Made, item: Fence | Release | Adopt) -> bool:
        """Process a fence or an order about state; return False in a forked child."""
        if isinstance(item, Fence):
            cell.failed.passed(item.lanes)
            self._mailbox.put(FencePassed(item.subscription, item.worker, item.lanes))
            return True
        answer = cell.contexts.new().run(hand_over, cell.spec.name, made, item, self._in_child)
        if self._in_child():
            return False
        if answer is not None:
            self._mailbox.put(answer)
        return True

    def _run_slice(self, cell: WorkerCell, handover: Handover, handle: Handle) -> bool:
        """Run a slice and report its end; return False in a forked child."""
        began = self.begin(cell, handover)
        self._runner.run(cell, handover, handle)
        if self._in_child():
            return False
        self.through(cell, handover, began)
        return True

    def begin(self, cell: WorkerCell, handover: Handover) -> float:
        """Enter a slice; return the time."""
        cell.current = handover
        return self._clock.monotonic()

    def through(self, cell: WorkerCell, handover: Handover, began: float) -> None:
        """Leave a slice, and report its end."""
        self._end(cell, handover, self._clock.monotonic() - began)
        cell.current = cell.reported = None

    def _end(self, cell: WorkerCell, handover: Handover, seconds: float) -> None:
        with cell.changing:
            # In this order: a slice that is neither given nor reported would look unstarted.
            self._mailbox.put(SliceEnded(handover.slice.id, seconds, handover.dropped))
            del cell.given[handover.slice.id]

    def _following(self, cell: WorkerCell) -> WorkerCell | None:
        """Return the cell of a replacement thread, None if none is allowed.

        The new cell starts without failed lanes. The worker's records of those lanes have been
        taken back. It gets none of them until their fences have passed.
        """
        if not self._threads.may_follow(cell):
            return None
        failed = self._threads.no_lanes(cell.spec)
        return WorkerCell(cell.spec, given=cell.given, failed=failed)

    def _fail_running(self, cell: WorkerCell) -> None:
        """Report a dead thread's running record as failed, once, and mark its lane."""
        handover = cell.current
        if handover is None or handover.slice.id not in cell.given:
            cell.current = None
            return
        index = cell.unreported()
        if index is None:
            return
        cell.reported = handover.slice.records[index]
        ended = RuntimeError("the worker's thread ended while it was running")
        failure = describe(ended, self._clock)
        cell.failed.fail(handover.slice, index)
        self._mailbox.put(Failed(handover.slice.id, index, failure))

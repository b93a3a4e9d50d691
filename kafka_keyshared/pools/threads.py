"""The thread pool: one thread per worker, each with a mailbox of slices.

On the common path a record costs the worker one step of an iterator, the handler call, an identity
test and a look whether its context has changed. Everything else is paid per slice, or where
something failed.

A thread cannot be ended from outside. Where a record does not end, its thread is left with it, and
a *replacement thread* does the worker's work from there on; when the record ends at last, its
thread reports that and ends too. There are no more of these than there are workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue

from kafka_keyshared.core.commands import Adopt, Fence, Lapse, Recall, Release, TimeOut
from kafka_keyshared.core.events import (
    Ended,
    Failed,
    FencePassed,
    Recalled,
    SetAside,
    Stuck,
)
from kafka_keyshared.core.slices import Progress, Slice
from kafka_keyshared.handling.failure import describe
from kafka_keyshared.handling.handlers import Made
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import Ack, Drop, Record
from kafka_keyshared.pools.crew import Crew
from kafka_keyshared.pools.failed_lanes import FailedLanes
from kafka_keyshared.pools.port import Handover, take_back_all
from kafka_keyshared.pools.state import hand_over
from kafka_keyshared.pools.worker_cells import Handle, WorkerCell, WorkerSpec

log = log_of("kafka_keyshared.pool")


class ThreadPool(Crew[WorkerCell]):
    """Runs plain functions and handler classes on threads. See :class:`~.port.Pool`."""

    def make_cell(self, spec: WorkerSpec) -> WorkerCell:
        """Return the cell of a worker."""
        return WorkerCell(spec)

    def submit(self, slice_: Slice) -> None:
        """Hand a slice to its worker."""
        cell = self.cells[slice_.subscription, slice_.worker]
        handover = cell.given[slice_.id] = cell.handover(slice_)
        cell.inbox.put(handover)

    def fence(self, fence: Fence) -> None:
        """Put a fence behind everything the worker has."""
        self.cells[fence.subscription, fence.worker].inbox.put(fence)

    def recall(self, recall: Recall) -> Recalled:
        """Take back every unstarted record of the slices, at once, whatever the worker is doing."""
        cell = self.cells[recall.subscription, recall.worker]
        back = take_back_all(cell.given, recall.only)
        return Recalled(recall.subscription, recall.worker, back)

    def time_out(self, past: TimeOut) -> None:
        """Take back what has not started, and have another thread go on where that is allowed."""
        ((id_, index),) = past.running
        cell = self.cells[past.subscription, past.worker]
        with cell.changing:
            back = take_back_all(cell.given)
            stuck: list[Stuck] = []
            following = None
            # Else it has ended meanwhile, or its thread has and is replaced at this beat.
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
            self.start_worker(following)

    def lapse(self, lapse: Lapse) -> None:
        """Note it for the handler that asks: a thread goes on, and what it says settles nothing."""
        given = self.cells[lapse.subscription, lapse.worker].given
        for id_ in lapse.slices:
            if (handover := given.get(id_)) is not None:
                handover.gone |= lapse.partitions

    def progress(self) -> Progress:
        """Return how far each outstanding slice has got."""
        return {
            id_: handover.progress()
            for cell in self.cells.values()
            # A copy in one C call: the worker removes slices meanwhile.
            for id_, handover in cell.given.copy().items()
        }

    def beat(self) -> None:
        """See to threads that have ended in the record with which they were left."""
        for cell in [each for each in self.beside if not each.lives()]:
            self.beside.remove(cell)
            self._abandon(cell, [cell.current] if cell.current is not None else [])

    def is_in(self, cell: WorkerCell, slice_: int) -> bool:
        """Say whether the cell's thread is in that slice."""
        return cell.is_in(slice_)

    def replace(self, subscription: str, worker: int) -> None:
        """Start another thread for the worker; the record that the old one ran counts as failed.

        The new thread goes on behind that record, and goes on setting aside what follows in lanes
        that have failed.
        """
        cell = self.cells[subscription, worker]
        self._fail_running(cell)
        self.start_worker(cell)

    def abandon(self, subscription: str, worker: int, *, settle: bool = False) -> None:
        """Report what the dead worker was running as failed, and its slices as ended."""
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
        """Have the worker's handler give up the state of slots, when it gets to it."""
        self.cells[release.subscription, release.worker].inbox.put(release)

    def adopt(self, adopt: Adopt) -> None:
        """Have the worker's handler take over the state of slots, when it gets to it."""
        self.cells[adopt.subscription, adopt.worker].inbox.put(adopt)

    def end(self, subscription: str, worker: int) -> None:
        """Have the worker's thread close its handler and end, when it gets to it."""
        cell = self.cells[subscription, worker]
        if cell.thread is None:
            del self.cells[subscription, worker]
        else:
            cell.sent_home = True
            cell.inbox.put(None)

    def send_off(self, cell: WorkerCell) -> None:
        """Take back what has not started, and end the thread behind what has."""
        take_back_all(cell.given)
        cell.inbox.put(None)

    def forked(self) -> None:
        """Leave nothing to do in the child: what it takes next is the end of its slice."""
        for cell in self.cells.values():
            take_back_all(cell.given)

    # --- inside ---

    def run_given(self, cell: WorkerCell, made: Made) -> bool:
        """Run slices until told to end."""
        handle = made.handle
        if cell.current is not None:
            self._run_slice(cell, cell.current, handle)
        goes_on = not self.in_child()
        while goes_on and (item := cell.inbox.get()) is not None:
            if isinstance(item, Handover):
                goes_on = self._run_slice(cell, item, handle)
            else:
                goes_on = self.see_to(cell, made, item)
        return goes_on

    def see_to(self, cell: WorkerCell, made: Made, item: Fence | Release | Adopt) -> bool:
        """Do what is no slice; say whether this is still the worker, not its child."""
        if isinstance(item, Fence):
            cell.failed.passed(item.lanes)
            self._mailbox.put(FencePassed(item.subscription, item.worker, item.lanes))
            return True
        answer = cell.contexts.new().run(hand_over, cell.spec.name, made, item, self.in_child)
        if self.in_child():
            return False
        if answer is not None:
            self._mailbox.put(answer)
        return True

    def _run_slice(self, cell: WorkerCell, handover: Handover, handle: Handle) -> bool:
        """Run a slice and report its end; say whether this is still the worker, not its child."""
        began = self.begin(cell, handover)
        self._run(cell, handover, handle, cell.failed)
        if self.in_child():
            return False
        self.through(cell, handover, began)
        return True

    def begin(self, cell: WorkerCell, handover: Handover) -> float:
        """Be in a slice; return when that began."""
        cell.current = handover
        return self._clock.monotonic()

    def through(self, cell: WorkerCell, handover: Handover, began: float) -> None:
        """Be through with it, and report its end."""
        self._end(cell, handover, self._clock.monotonic() - began)
        cell.current = cell.reported = None

    def _end(self, cell: WorkerCell, handover: Handover, seconds: float) -> None:
        with cell.changing:
            # In this order: a slice that is neither given nor reported would look unstarted.
            self._mailbox.put(Ended(handover.slice.id, seconds, handover.dropped))
            del cell.given[handover.slice.id]

    def _run(
        self, cell: WorkerCell, handover: Handover, handle: Handle, failed: FailedLanes
    ) -> None:
        while True:
            todo = self._open(cell, handover, failed) if failed.lanes else handover.todo
            raised = cell.contexts.call_each(handle, todo)
            if raised is None:
                return
            self._see_to_raised(cell, handover, *raised)
            del raised  # or what was raised would keep itself, by way of this call

    def _open(self, cell: WorkerCell, handover: Handover, failed: FailedLanes) -> Iterator[Record]:
        """Yield what is in no failed lane, and set the rest aside."""
        for record in handover.todo:
            if failed.holds(record):
                self._mailbox.put(SetAside(handover.slice.id, handover.index_of(record)))
                cell.reported = record
            else:
                yield record

    def _see_to_raised(
        self, cell: WorkerCell, handover: Handover, record: Record, error: BaseException
    ) -> None:
        """Act on what a call has raised: a verdict, or a failed attempt."""
        if self.in_child():
            raise error
        if isinstance(error, Ack):
            return
        index, slice_ = handover.index_of(record), handover.slice
        if isinstance(error, Drop):
            slice_.came.restore(index)
            handover.dropped.append(index)
            return
        failure = describe(error, self._clock, cell.spec.dead_letter_on)
        cell.failed.fail(slice_, index)
        # Posted before the next record is taken: whoever reads progress first and the
        # mailbox after it knows of every failure among the started records.
        self._mailbox.put(Failed(slice_.id, index, failure))
        cell.reported = record

    def _following(self, cell: WorkerCell) -> WorkerCell | None:
        """Return the cell of a thread that may go on in the place of this one, if one may.

        Of lanes that have failed it knows nothing, and needs not: what the worker had of them has
        been taken back, and it gets nothing of them until their fences have passed.
        """
        if not self.may_follow(cell):
            return None
        failed = self.no_lanes(cell.spec)
        return WorkerCell(cell.spec, given=cell.given, failed=failed)

    def _fail_running(self, cell: WorkerCell) -> None:
        """Report what a dead thread was running as failed, once, and close its lane here too."""
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

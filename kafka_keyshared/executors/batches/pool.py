"""The batch pool: threads whose handler takes several records per call.

Each record is a slice of its own. A call may therefore contain any records that wait at the worker,
and may settle any of them. To the core, a call is a set of records that start together. A call may
contain several records of a key, in order. If it does not settle one of them, it settles no later
record of that key either.
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
from kafka_keyshared.core.contract.events import FencePassed, Recalled, Stuck
from kafka_keyshared.core.contract.slices import Progress, SerialProgress, Slice
from kafka_keyshared.core.records.lane_identity import is_keyless
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.executors.batches.batch_queue import BatchCell
from kafka_keyshared.executors.batches.batch_reports import CallReports
from kafka_keyshared.executors.failed_lanes import FailedLanes, Lanes, own_lanes
from kafka_keyshared.executors.handling.batching import BatchRule, Outcome, for_all, outcomes_of
from kafka_keyshared.executors.handling.failure import describe
from kafka_keyshared.executors.handling.handlers import Made
from kafka_keyshared.executors.key_chains import Given
from kafka_keyshared.executors.state_calls import hand_over
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.executors.threads.thread_lifecycle import Place, ThreadWork, WorkerThreads

ManageThreads: TypeAlias = Callable[
    [Sequence[WorkerSpec], ThreadWork[BatchCell], Clock], WorkerThreads[BatchCell]
]


class BatchPool:
    """Runs batch handlers on threads. See :class:`~kafka_keyshared.executors.port.Pool`.

    ``threads`` manages the workers' threads.
    """

    def __init__(
        self,
        specs: Sequence[WorkerSpec],
        mailbox: SimpleQueue[Any],
        clock: Clock,
        rule: BatchRule,
        *,
        threads: ManageThreads = WorkerThreads,
    ) -> None:
        self._rule = rule
        self._clock = clock
        self._post = mailbox.put
        self._reports = CallReports(mailbox.put, clock)
        self._threads = threads(specs, self, clock)
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
        """Return the place in the user's program of the thread that runs the call."""
        del index  # each slice has one record
        return self._threads.where(subscription, worker, slice_)

    def stack(self, subscription: str, worker: int, slice_: int, index: int) -> str:
        """Return the call stack of this thread."""
        del index
        return self._threads.stack(subscription, worker, slice_)

    def stop(self, timeout: float) -> list[str]:
        """End the workers and close their handlers; return the names of those still running."""
        return self._threads.stop(timeout)

    def submit(self, slice_: Slice) -> None:
        """Queue a record at its worker; hand it back at once if its lane has failed."""
        cell = self.cells[slice_.subscription, slice_.worker]
        given = Given(slice_)
        lane = cell.failed.lane_of(slice_.records[0])
        given.lane = None if is_keyless(lane) else lane
        with cell.bell:
            cell.given[slice_.id] = given
            if lane in cell.failed.lanes:
                self._reports.set_aside(cell, [given])
            else:
                cell.add(given)

    def fence(self, fence: Fence) -> None:
        """Post the fence at once: records behind a failed one come back when it fails."""
        cell = self.cells[fence.subscription, fence.worker]
        with cell.bell:
            cell.failed.passed(fence.lanes)
            self._post(FencePassed(fence.subscription, fence.worker, fence.lanes))

    def recall(self, recall: Recall) -> Recalled:
        """Take back the unstarted records of the slices at once, also while the worker is busy."""
        cell = self.cells[recall.subscription, recall.worker]
        with cell.bell:
            return self._taken_back(cell, recall, cell.take_back(recall.only))

    def _taken_back(
        self,
        cell: BatchCell,
        asked: Recall | TimeOut,
        back: list[Given],
        stuck: Sequence[Stuck] = (),
    ) -> Recalled:
        slices = [(each.slice.id, range(1)) for each in back]
        answer = Recalled(asked.subscription, asked.worker, slices, stuck)
        if isinstance(asked, TimeOut):
            self._post(answer)
        for each in back:
            self._reports.end_lease(cell, each, 0.0)
        return answer

    def time_out(self, past: TimeOut) -> None:
        """Mark the running call as stuck; another thread continues where that is allowed.

        A call is stuck as a whole, because the responsible record is not known. The first record of
        each key is stuck. The later ones come back, and run again once the call has ended.
        """
        cell = self.cells[past.subscription, past.worker]
        following = None
        with cell.bell:
            running = {each.slice.id for each in cell.running}
            back: list[Given] = []
            stuck: list[Stuck] = []
            # Otherwise the call has ended already, or its thread has; the thread is then replaced
            # at this heartbeat.
            if cell.lives() and any(id_ in running for id_, _ in past.running):
                back = [*cell.behind_others(), *cell.take_back()]
                following = self._following(cell)
                goes_on = following is not None
                stuck = [Stuck(each.slice.id, 0, goes_on) for each in cell.running]
            self._taken_back(cell, past, back, stuck)
            if following is not None:
                self.beside.append(cell)
                self.cells[past.subscription, past.worker] = following
        if following is not None:
            self._threads.start_worker(following)

    def _following(self, cell: BatchCell) -> BatchCell | None:
        """Return the cell of a replacement thread, None if none is allowed."""
        return (
            cell.following(self._threads.no_lanes(cell.spec))
            if self._threads.may_follow(cell)
            else None
        )

    def lapse(self, lapse: Lapse) -> None:
        """Mark leases as over for handlers that ask.

        The thread goes on, and its result settles nothing.
        """
        given = self.cells[lapse.subscription, lapse.worker].given
        for id_ in lapse.slices:
            if (each := given.get(id_)) is not None:
                each.gone |= lapse.partitions

    def progress(self) -> Progress:
        """Return which records have started; all records of a call start together."""
        found: dict[int, SerialProgress] = {}
        for cell in self.cells.values():
            with cell.bell:
                for id_, given in cell.given.items():
                    found[id_] = given.progress()
        return found

    def beat(self) -> None:
        """Clean up stuck threads that have ended."""
        for cell in [each for each in self.beside if not each.lives()]:
            self.beside.remove(cell)
            self._fail_running(cell)

    def replace(self, subscription: str, worker: int) -> None:
        """Start another thread for the worker; the records that the old one ran count as failed."""
        cell = self.cells[subscription, worker]
        self._fail_running(cell)
        self._threads.start_worker(cell)

    def abandon(self, subscription: str, worker: int, *, settle: bool = False) -> None:
        """Report a dead worker's running records as failed, and its slices as ended."""
        cell = self.cells[subscription, worker]
        self._fail_running(cell)
        with cell.bell:
            cell.take_back()
            for each in [each for each in cell.given.values() if not each.started]:
                self._reports.end_lease(cell, each, 0.0, (0,) if settle else ())
            cell.thread = None

    def release(self, release: Release) -> None:
        """Have the worker's handler release the state of slots, behind all that it holds."""
        cell = self.cells[release.subscription, release.worker]
        with cell.bell:
            cell.order(release)

    def adopt(self, adopt: Adopt) -> None:
        """Have the worker's handler adopt the state of slots, before its next call."""
        cell = self.cells[adopt.subscription, adopt.worker]
        with cell.bell:
            cell.order(adopt)

    def end(self, subscription: str, worker: int) -> None:
        """Have the worker's thread close its handler and end, after its current work."""
        cell = self.cells[subscription, worker]
        if cell.thread is None:
            del self.cells[subscription, worker]
            return
        cell.sent_home = True
        cell.finish()

    # --- the work of its threads ---

    def make_cell(self, spec: WorkerSpec) -> BatchCell:
        """Return the cell of a worker."""
        return BatchCell(spec, self._rule, self._clock.monotonic, FailedLanes())

    def send_off(self, cell: BatchCell) -> None:
        """Take back the unstarted records, and end the thread after its call."""
        with cell.bell:
            cell.take_back()
            cell.finish()

    def run_given(self, cell: BatchCell, made: Made) -> bool:
        """Run calls until the cell is closed."""
        while not self._in_child() and (work := cell.take()) is not None:
            if isinstance(work, list):
                self._call(cell, work, made)
                continue
            answer = cell.contexts.new().run(hand_over, cell.name, made, work, self._in_child)
            if answer is not None and not self._in_child():
                self._post(answer)
        return not cell.gone and not self._in_child()

    def _call(self, cell: BatchCell, batch: list[Given], made: Made) -> None:
        """Call the handler with these records, and report the outcome of each."""
        started = self._clock.monotonic()
        outcomes: Sequence[Outcome]
        try:
            records = [each.slice.records[0] for each in batch]
            answer = cell.contexts.new().run(made.handle, records)
            outcomes = outcomes_of(answer, len(batch))
        except BaseException as error:
            if self._in_child():
                raise
            if len(batch) > 1 and not for_all(error) and self._alone(cell, batch, error):
                return
            outcomes = [error] * len(batch)
        if self._in_child():
            return
        failures = self._reports.described(cell, outcomes)
        seconds = (self._clock.monotonic() - started) / len(batch)
        with cell.bell:
            cell.running = []
            self._reports.report(cell, batch, outcomes, failures, seconds)
        del outcomes  # otherwise the exception and this frame would keep each other alive

    def _alone(self, cell: BatchCell, batch: list[Given], error: BaseException) -> bool:
        """Run each record of a failed call alone; return False if the call is stuck.

        The error does not say which record caused it, so it counts as an attempt of none of them.
        """
        with cell.bell:
            if cell.gone:
                return False
            cell.put_back(batch)
            self._reports.tell_alone(cell, len(batch), error)
        return True

    def _fail_running(self, cell: BatchCell) -> None:
        """Report the records that a dead thread was running as failed, once."""
        ended = RuntimeError("the worker's thread ended while it was running")
        with cell.bell:
            batch, cell.running = cell.running, []
            failures = [describe(ended, self._clock) for _ in batch]
            self._reports.report(cell, batch, [ended] * len(batch), failures, 0.0)

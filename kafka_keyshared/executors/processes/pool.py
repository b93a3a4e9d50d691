"""The process pool: a process and a parent thread per worker.

The thread works as in the thread pool. Instead of calling the handler, it sends a batch to the
process and waits for the result. A process therefore holds one batch at most, and no state that it
could lose. The worker's :class:`~.shm_progress.ProgressBoard` shows the owner the progress of a
running batch.

A process that exceeds the ack timeout is killed. A process that dies fails the record that it was
running, and no other. The worker's thread ends with it, and both are replaced as a dead thread is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, takewhile
from typing import TypeAlias, cast

from kafka_keyshared.core.contract.commands import Lapse, TimeOut
from kafka_keyshared.core.contract.events import Failed, Recalled, SetAside
from kafka_keyshared.core.contract.slices import Slice
from kafka_keyshared.errors import InvariantError, KeySharedError
from kafka_keyshared.executors.failed_lanes import FailedLanes
from kafka_keyshared.executors.handling.call_record import OK
from kafka_keyshared.executors.handling.failure import describe
from kafka_keyshared.executors.handling.handlers import Made
from kafka_keyshared.executors.port import Handover
from kafka_keyshared.executors.processes.remote_batch import SentSlice
from kafka_keyshared.executors.processes.spawned import KILLED_WITHIN
from kafka_keyshared.executors.processes.wire_records import columns_of
from kafka_keyshared.executors.processes.worker_main import (
    BatchResult,
    OutputAnswer,
    OutputRequest,
    ProcessBatch,
    SlicePart,
)
from kafka_keyshared.executors.processes.worker_process import (
    BATCH,
    HandlerRaisedError,
    OverwritingError,
    ProcessEndedError,
    StoppedError,
    TimedOutError,
    WorkerProcess,
)
from kafka_keyshared.executors.thread_state import Handle, WorkerCell, WorkerSpec
from kafka_keyshared.executors.threads.pool import ThreadPool
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import Record

log = log_of("kafka_keyshared.pool")

Batches: TypeAlias = Generator[ProcessBatch | OutputAnswer, BatchResult | OutputRequest, None]
"""Messages to a process; each needs an answer before the next one."""

BATCH_BYTES = 1 << 20
"""Bytes of values after which a batch takes no further record."""

STARTS = 5
"""Processes, one after the other, in which a handler may fail to be made. One more would be one too
many: the core gives up a worker that is dead at six heartbeats."""

STOPPED_WITHIN = 0.2
"""Seconds beyond the stop timeout that a process without a record has before it is killed."""


ENDS = (ProcessEndedError, TimedOutError, StoppedError)
"""Errors of a process that has ended while it had a batch."""


@dataclass(eq=False)
class ProcessCell(WorkerCell):
    """A worker's thread, its process, and the size of its next batch."""

    process: WorkerProcess = None  # type: ignore[assignment] # set by make_cell
    batch: int = BATCH

    def make(self) -> Made:
        """Start a process, which makes the handler."""
        return self.process.start()

    def ended_by(self, deadline: float, now: Callable[[], float]) -> bool:
        """Wait until ``deadline`` for the worker's thread to end; return whether it has."""
        if self.thread is not None:
            self.thread.join(max(0.0, deadline - now()))
        return not self.lives()

    def handover(self, slice_: Slice) -> Handover:
        """Return a slice that is sent one batch at a time."""
        if (called := self.spec.called) is None:
            return SentSlice(slice_, self.process.board)
        return SentSlice(slice_, self.process.board, partial(called, worker=self.name))


class ProcessPool(ThreadPool):
    """Runs functions and handler classes in processes. See
    :class:`~kafka_keyshared.executors.port.Pool`."""

    def make_cell(self, spec: WorkerSpec) -> WorkerCell:
        """Return the cell of a worker whose handler is made and called in a process."""
        return ProcessCell(spec, process=WorkerProcess(spec))

    def beat(self) -> None:
        """Limit how often a worker is restarted.

        Raises :class:`HandlerRaisedError` if a worker could not make its handler in the last
        :data:`STARTS` processes. The error ends the instance. This check runs before the core finds
        the worker dead. The core would give the worker up, and the error of its handler would be
        lost.
        """
        super().beat()
        for cell in self.cells.values():
            not_made = cast(ProcessCell, cell).process.not_made
            if cell.over() and len(not_made) >= STARTS:
                raise HandlerRaisedError(
                    f"the handler of {cell.name} could not be made in {len(not_made)} processes, "
                    f"one after the other: {not_made[-1].text}\n{not_made[-1].stack}".rstrip()
                )

    def time_out(self, past: TimeOut) -> None:
        """Kill the process that runs the record, and start another one."""
        ((id_, index),) = past.running
        cell = cast(ProcessCell, self.cells[past.subscription, past.worker])
        handover = cell.given.get(id_)
        if isinstance(handover, SentSlice) and cell.lives() and handover.holds_at(index):
            cell.process.kill()
            if cell.thread is not None:
                cell.thread.join(KILLED_WITHIN)
            if cell.over():
                self.start_worker(cell)
        self._mailbox.put(Recalled(past.subscription, past.worker))

    def lapse(self, lapse: Lapse) -> None:
        """Notify the process that leases are over; results of their records settle nothing."""
        super().lapse(lapse)
        cell = cast(ProcessCell, self.cells[lapse.subscription, lapse.worker])
        if cell.lives():
            cell.process.lapse(lapse.slices, lapse.partitions)

    def stop(self, timeout: float) -> list[str]:
        """End the workers; kill each process that still exists at the end of the timeout.

        A process may be stopped, or its handler may ignore SIGTERM. If it were left alone, it would
        keep the program from exiting.
        """
        running = super().stop(timeout)
        left = [each for each in map(_as_processes, self.cells.values()) if each.name in running]
        killed = [cell for cell in left if cell.current is not None and cell.process.stop()]
        # The others close their handlers; after that a process ends within milliseconds.
        deadline = self._clock.monotonic() + STOPPED_WITHIN
        for cell in left:
            if cell not in killed and not cell.ended_by(deadline, self._clock.monotonic):
                killed += [cell] if cell.process.stop() else []
        deadline = self._clock.monotonic() + KILLED_WITHIN
        killed = [cell for cell in killed if not cell.process.closed]
        for cell in killed:
            ended = cell.process.ended(max(0.0, deadline - self._clock.monotonic()))
            log.error(
                "%s: its process %d %s when the stop timeout was over, and %s",
                cell.name,
                cell.process.pid,
                "had not closed its handler" if cell.current is None else "still ran a record",
                "was killed" if ended else "does not end although it was killed",
                extra={"worker": cell.name},
            )
        return [cell.name for cell in killed]

    def where(self, subscription: str, worker: int, slice_: int, index: int) -> str:
        """Return the place in the user's program of the process that has the slice."""
        del index  # it runs one record at a time
        cell = cast(ProcessCell | None, self.cells.get((subscription, worker)))
        return cell.process.where() if cell is not None and cell.is_in(slice_) else ""

    def stack(self, subscription: str, worker: int, slice_: int, index: int) -> str:
        """Return nothing: a process reports only the place."""
        del subscription, worker, slice_, index
        return ""

    def forked(self) -> None:
        """Clear the remaining work in the child of a callback of this process."""
        for cell in self.cells.values():
            for handover in cell.given.values():
                cast(SentSlice, handover).clear()

    def live(self, cell: WorkerCell) -> None:
        """Run slices until the end of the inbox, or until the process has died."""
        try:
            super().live(cell)
        except (ProcessEndedError, TimedOutError) as error:
            # Only the text is logged: a log record with the exception would keep its frames alive.
            text, worker = "%s: %s; another one is started", {"worker": cell.name}
            log.warning(text, cell.name, str(error), extra=worker)
        except StoppedError:
            return  # stop() has logged it

    def _run(
        self, cell: WorkerCell, handover: Handover, handle: Handle, failed: FailedLanes
    ) -> None:
        batches = self.batches(cast(ProcessCell, cell), cast(SentSlice, handover), failed)
        asked = next(batches, None)
        while asked is not None:
            try:
                ran = handle(asked)
            except ENDS as error:
                batches.throw(error)
                raise
            try:
                asked = batches.send(ran)
            except StopIteration:
                return

    def batches(self, cell: ProcessCell, sent: SentSlice, failed: FailedLanes) -> Batches:
        """Yield the batches of a slice, one after the other; the caller sends the result of each.

        It also yields the answers to outputs of the handler. Errors that end the process, or the
        wait for it, are thrown in and raised again. The generator itself never waits.
        """
        slice_ = sent.slice
        while (at := sent.next()) is not None:
            if failed.lanes and failed.holds(slice_.records[at]):
                if sent.sets_aside(at):
                    self._mailbox.put(SetAside(slice_.id, at))
                    cell.reported = slice_.records[at]
                continue
            batch = sent.send(self._many(cell, slice_, at, failed))
            if not batch:  # all of it was taken back in the meantime
                continue
            columns = columns_of(slice_.records[at : batch.stop], cell.process.board.shared.values)
            try:
                ran = yield ProcessBatch(columns, SlicePart(slice_.id, slice_.epoch))
                while isinstance(ran, OutputRequest):
                    ran = yield self._taken(cell, slice_.records[at + ran.at], ran)
            except ENDS as error:
                self._broken_off(cell, sent, len(batch), error)
                raise
            index, outcome = at + ran.done, ran.outcome()
            ended = ran.done + (outcome != OK)
            cell.batch = BATCH if ended == len(batch) else min(BATCH, 2 * ended + 1)
            sent.tell(ran.done, outcome)
            if ran.dropped:
                sent.dropped.append(index)
            elif ran.failure is not None:
                failed.fail(slice_, index)
                self._mailbox.put(Failed(slice_.id, index, ran.failure))
                cell.reported = slice_.records[index]
            sent.passed(ended)

    def _taken(self, cell: ProcessCell, record: Record, handed: OutputRequest) -> OutputAnswer:
        """Have the outputs of a handler written; return the answer for the process."""
        if cell.spec.take is None:
            raise InvariantError(f"{cell.name} hands out what nobody takes")
        try:
            cell.spec.take(record, handed.outputs)
        except Exception as error:  # noqa: BLE001 - a failed attempt of the record
            kind = "" if isinstance(error, KeySharedError) else f"{type(error).__name__}: "
            return OutputAnswer(f"{kind}{error}")
        return OutputAnswer()

    def _many(self, cell: ProcessCell, slice_: Slice, at: int, failed: FailedLanes) -> int:
        """Return the size of the next batch: it ends before the first record to set aside."""
        records = slice_.records[at : at + cell.batch]
        if failed.lanes:
            records = [*takewhile(lambda record: not failed.holds(record), records)]
        if sum(map(len, records)) <= BATCH_BYTES:
            return len(records)
        sizes = accumulate(map(len, records))
        return next(many for many, size in enumerate(sizes, 1) if size > BATCH_BYTES)

    def _broken_off(self, cell: ProcessCell, sent: SentSlice, count: int, error: Exception) -> None:
        """Report the record that the process was running as failed.

        If memory was overwritten, the responsible record is not known; it may have ended already.
        The records that have not ended are then sent again one by one. A record fails if the
        overwrite is detected again while it runs.
        """
        unsure = cell.process.board.garbled or isinstance(error, OverwritingError)
        if unsure:
            cell.batch = 1
        index = sent.broken_off(self._clock(), counts=not unsure or count == 1)
        if index is None:
            cell.reported = sent.last()
            return
        failure = describe(error, self._clock)
        if isinstance(error, TimedOutError):
            failure = replace(failure, timed_out=True)
        cell.failed.fail(sent.slice, index)
        self._mailbox.put(Failed(sent.slice.id, index, failure))
        cell.reported = sent.slice.records[index]


def _as_processes(cell: WorkerCell) -> ProcessCell:
    return cast(ProcessCell, cell)

"""Slices in the process of their worker, one batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, takewhile
from queue import SimpleQueue
from typing import Any, TypeAlias, cast

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract.events import Failed, SetAside
from kafka_keyshared.core.contract.slices import Slice
from kafka_keyshared.errors import InvariantError, KeySharedError
from kafka_keyshared.executors.failed_lanes import FailedLanes
from kafka_keyshared.executors.handling.call_record import OK
from kafka_keyshared.executors.handling.failure import describe
from kafka_keyshared.executors.handling.handlers import Made
from kafka_keyshared.executors.port import Handover
from kafka_keyshared.executors.processes.remote_batch import SentSlice
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
    OverwritingError,
    ProcessEndedError,
    StoppedError,
    TimedOutError,
    WorkerProcess,
)
from kafka_keyshared.executors.thread_state import Handle, WorkerCell
from kafka_keyshared.model import Record

Batches: TypeAlias = Generator[ProcessBatch | OutputAnswer, BatchResult | OutputRequest, None]
"""Messages to a process; each needs an answer before the next one."""

BATCH_BYTES = 1 << 20
"""Bytes of values after which a batch takes no further record."""

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

    def clear(self) -> None:
        """Leave nothing to send in the child of a callback of this process."""
        for handover in self.given.values():
            cast(SentSlice, handover).clear()


class ProcessBatches:
    """Sends the records of a slice to the worker's process, and reports the results."""

    def __init__(self, mailbox: SimpleQueue[Any], clock: Clock) -> None:
        self._mailbox = mailbox
        self._clock = clock

    def run(self, cell: WorkerCell, handover: Handover, handle: Handle) -> None:
        """Run all records that are not taken back, and report failures."""
        batches = self.exchange(cast(ProcessCell, cell), cast(SentSlice, handover))
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

    def exchange(self, cell: ProcessCell, sent: SentSlice) -> Batches:
        """Yield the batches of a slice, one after the other; the caller sends the result of each.

        It also yields the answers to outputs of the handler. Errors that end the process, or the
        wait for it, are thrown in and raised again. The generator itself never waits.
        """
        slice_, failed = sent.slice, cell.failed
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
                ran = yield ProcessBatch(
                    columns, SlicePart(slice_.id, slice_.epoch, slice_.attempts)
                )
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

"""Handler calls of a slice on its worker's thread, one per record.

On the common path a record costs the worker four things: one step of an iterator, the handler call,
an identity test, and a check whether its context has changed. All other costs are per slice, or per
failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, Protocol

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract.events import Failed, SetAside
from kafka_keyshared.executors.failed_lanes import FailedLanes
from kafka_keyshared.executors.handling.failure import describe
from kafka_keyshared.executors.port import Handover
from kafka_keyshared.executors.thread_state import Handle, WorkerCell
from kafka_keyshared.model import Ack, Drop, Record


class SliceRunner(Protocol):
    """Runs the records of a slice, on the worker's thread."""

    def run(self, cell: WorkerCell, handover: Handover, handle: Handle) -> None:
        """Run all records that are not taken back, and report failures."""


class HandlerCalls:
    """Calls the handler with one record after the other, and reports failures.

    ``in_child`` returns whether the handler has forked, and this is the child.
    """

    def __init__(
        self, mailbox: SimpleQueue[Any], clock: Clock, in_child: Callable[[], bool]
    ) -> None:
        self._mailbox = mailbox
        self._clock = clock
        self._in_child = in_child

    def run(self, cell: WorkerCell, handover: Handover, handle: Handle) -> None:
        """Run all records that are not taken back, and report failures."""
        failed = cell.failed
        while True:
            todo = self._open(cell, handover, failed) if failed.lanes else handover.todo
            raised = cell.contexts.call_each(handle, todo)
            if raised is None:
                return
            self._settle_raised(cell, handover, *raised)
            del raised  # otherwise the exception and this frame would keep each other alive

    def _open(self, cell: WorkerCell, handover: Handover, failed: FailedLanes) -> Iterator[Record]:
        """Yield the records that are in no failed lane, and set the rest aside."""
        for record in handover.todo:
            if failed.holds(record):
                self._mailbox.put(SetAside(handover.slice.id, handover.index_of(record)))
                cell.reported = record
            else:
                yield record

    def _settle_raised(
        self, cell: WorkerCell, handover: Handover, record: Record, error: BaseException
    ) -> None:
        """Process the exception of a call: a verdict, or a failed attempt."""
        if self._in_child():
            raise error
        if isinstance(error, Ack):
            return
        index, slice_ = handover.index_of(record), handover.slice
        if isinstance(error, Drop):
            slice_.came.restore(index)
            handover.dropped.append(index)
            return
        failure = describe(error, self._clock, cell.spec.rules)
        cell.failed.fail(slice_, index)
        # Posted before the next record is taken. The owner reads progress first and the mailbox
        # after it. It then knows every failure among the started records.
        self._mailbox.put(Failed(slice_.id, index, failure))
        cell.reported = record

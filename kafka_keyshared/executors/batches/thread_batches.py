"""Worker threads of the batch pool: handler calls and their reports."""

from __future__ import annotations

from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any

from kafka_keyshared.clock import Clock
from kafka_keyshared.executors.batches.batch_queue import BatchCell
from kafka_keyshared.executors.batches.batch_reports import CallReports
from kafka_keyshared.executors.handling.batching import BatchRule, Outcome, for_all, outcomes_of
from kafka_keyshared.executors.handling.failure import describe
from kafka_keyshared.executors.handling.handlers import Made
from kafka_keyshared.executors.key_chains import Given
from kafka_keyshared.executors.state_calls import hand_over
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.executors.threads.thread_lifecycle import WorkerThreads


class BatchThreads(WorkerThreads[BatchCell], CallReports):
    """The threads of a batch pool: their calls and their reports."""

    def __init__(
        self, specs: list[WorkerSpec], mailbox: SimpleQueue[Any], clock: Clock, rule: BatchRule
    ) -> None:
        self._rule = rule
        super().__init__(specs, mailbox, clock)
        self._post = mailbox.put

    def make_cell(self, spec: WorkerSpec) -> BatchCell:
        """Return the cell of a worker."""
        return BatchCell(spec, self._rule, self._clock.monotonic, self.no_lanes(spec))

    def run_given(self, cell: BatchCell, made: Made) -> bool:
        """Run calls until the cell is closed."""
        while not self.in_child() and (work := cell.take()) is not None:
            if isinstance(work, list):
                self._call(cell, work, made)
                continue
            answer = cell.contexts.new().run(hand_over, cell.name, made, work, self.in_child)
            if answer is not None and not self.in_child():
                self._post(answer)
        return not cell.gone and not self.in_child()

    def _call(self, cell: BatchCell, batch: list[Given], made: Made) -> None:
        """Call the handler with these records, and report the outcome of each."""
        started = self._clock.monotonic()
        outcomes: Sequence[Outcome]
        try:
            records = [each.slice.records[0] for each in batch]
            answer = cell.contexts.new().run(made.handle, records)
            outcomes = outcomes_of(answer, len(batch))
        except BaseException as error:
            if self.in_child():
                raise
            if len(batch) > 1 and not for_all(error) and self._alone(cell, batch, error):
                return
            outcomes = [error] * len(batch)
        if self.in_child():
            return
        failures = self.described(cell, outcomes)
        seconds = (self._clock.monotonic() - started) / len(batch)
        with cell.bell:
            cell.running = []
            self.report(cell, batch, outcomes, failures, seconds)
        del outcomes  # otherwise the exception and this frame would keep each other alive

    def _alone(self, cell: BatchCell, batch: list[Given], error: BaseException) -> bool:
        """Run each record of a failed call alone; return False if the call is stuck.

        The error does not say which record caused it, so it counts as an attempt of none of them.
        """
        with cell.bell:
            if cell.gone:
                return False
            cell.put_back(batch)
            self.tell_alone(cell, len(batch), error)
        return True

    def fail_running(self, cell: BatchCell) -> None:
        """Report the records that a dead thread was running as failed, once."""
        ended = RuntimeError("the worker's thread ended while it was running")
        with cell.bell:
            batch, cell.running = cell.running, []
            failures = [describe(ended, self._clock) for _ in batch]
            self.report(cell, batch, [ended] * len(batch), failures, 0.0)

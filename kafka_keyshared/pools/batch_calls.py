"""A worker's thread in the pool of batches: its calls, and what it reports of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from queue import SimpleQueue
from typing import Any

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.dispositions import Failure
from kafka_keyshared.core.events import Ended, Failed, SetAside
from kafka_keyshared.core.lanes import Lane
from kafka_keyshared.handling.batching import BatchRule, Outcome, for_all, outcomes_of, settles
from kafka_keyshared.handling.failure import describe, text_of
from kafka_keyshared.handling.handlers import Made
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import Drop
from kafka_keyshared.pools.batch_cells import BatchCell
from kafka_keyshared.pools.chains import Given
from kafka_keyshared.pools.crew import Crew
from kafka_keyshared.pools.state import hand_over
from kafka_keyshared.pools.worker_cells import WorkerSpec

log = log_of("kafka_keyshared.pool")

TELL_EVERY = 10.0
"""Seconds until a worker speaks again of calls that have failed."""


class Calls(Crew[BatchCell]):
    """What the threads of a pool of batches do, and whose they are."""

    def __init__(
        self, specs: list[WorkerSpec], mailbox: SimpleQueue[Any], clock: Clock, rule: BatchRule
    ) -> None:
        self._rule = rule
        super().__init__(specs, mailbox, clock)
        self.post = mailbox.put

    def make_cell(self, spec: WorkerSpec) -> BatchCell:
        """Return the cell of a worker."""
        return BatchCell(spec, self._rule, self._clock.monotonic, self.no_lanes(spec))

    def run_given(self, cell: BatchCell, made: Made) -> bool:
        """Run calls until told to end."""
        while not self.in_child() and (work := cell.take()) is not None:
            if isinstance(work, list):
                self._call(cell, work, made)
                continue
            answer = hand_over(cell.name, made, work, self.in_child)
            if answer is not None and not self.in_child():
                self.post(answer)
        return not cell.gone and not self.in_child()

    def _call(self, cell: BatchCell, batch: list[Given], made: Made) -> None:
        """Call the handler with these records, and report what becomes of each."""
        started = self._clock.monotonic()
        outcomes: Sequence[Outcome]
        try:
            answer = made.handle([each.slice.records[0] for each in batch])
            outcomes = outcomes_of(answer, len(batch))
        except BaseException as error:
            if self.in_child():
                raise
            if len(batch) > 1 and not for_all(error) and self._alone(cell, batch, error):
                return
            outcomes = [error] * len(batch)
        if self.in_child():
            return
        failures = self._described(cell, outcomes)
        seconds = (self._clock.monotonic() - started) / len(batch)
        with cell.bell:
            self._report(cell, batch, outcomes, failures, seconds)

    def _alone(self, cell: BatchCell, batch: list[Given], error: BaseException) -> bool:
        """Have each record of a call that has failed called for alone; not of one that is stuck.

        An error says nothing of which record it is about, so it is an attempt of none.
        """
        with cell.bell:
            if cell.gone:
                return False
            cell.put_back(batch)
            now = self._clock.monotonic()
            if now >= cell.tell_at:
                cell.tell_at = now + TELL_EVERY
                log.warning(
                    "%s: a call with %d records failed (%s: %.200s), so each is handled alone",
                    cell.name,
                    len(batch),
                    type(error).__name__,
                    text_of(error),
                )
        return True

    def _described(self, cell: BatchCell, outcomes: Iterable[Outcome]) -> list[Failure | None]:
        on = cell.spec.dead_letter_on
        return [
            None
            if outcome is None or settles(outcome) or isinstance(outcome, Drop)
            else describe(outcome, self._clock, on)
            for outcome in outcomes
        ]

    def _report(
        self,
        cell: BatchCell,
        batch: list[Given],
        outcomes: Sequence[Outcome],
        failures: Sequence[Failure | None],
        seconds: float,
    ) -> None:
        """Report a call that has ended, in the order of its records; holding the bell."""
        closed: set[Lane] = set()
        cell.running = []
        for given in batch:
            if given.slice.id not in cell.given:
                given.slice.came.restore(0)  # taken back from a stuck call, and runs again
        for given, outcome, failure in zip(batch, outcomes, failures, strict=True):
            if given.slice.id not in cell.given:
                continue
            if given.lane is not None and given.lane in closed:
                given.slice.came.restore(0)
                self.set_aside(cell, [given])
            elif failure is not None:
                if given.apart:
                    given.slice.came.restore(0)  # the core has closed its lane already
                else:
                    cell.failed.fail(given.slice, 0)
                if given.lane is not None:
                    closed.add(given.lane)
                self.post(Failed(given.slice.id, 0, failure))
                self.end_lease(cell, given, seconds)
            elif isinstance(outcome, Drop):
                given.slice.came.restore(0)
                self.end_lease(cell, given, seconds, (0,))
            else:
                self.end_lease(cell, given, seconds)
        if closed and not cell.gone:
            self.set_aside(cell, cell.cut(closed))

    def fail_running(self, cell: BatchCell) -> None:
        """Report what a dead thread was running as failed, once."""
        ended = RuntimeError("the worker's thread ended while it was running")
        with cell.bell:
            batch = cell.running
            failures = [describe(ended, self._clock) for _ in batch]
            self._report(cell, batch, [ended] * len(batch), failures, 0.0)

    def set_aside(self, cell: BatchCell, those: Iterable[Given]) -> None:
        """Hand these back unrun, in this order; holding the bell."""
        for each in those:
            self.post(SetAside(each.slice.id, 0))
            self.end_lease(cell, each, 0.0)

    def end_lease(
        self, cell: BatchCell, given: Given, seconds: float, dropped: tuple[int, ...] = ()
    ) -> None:
        """Report the end of a slice of one record; holding the bell."""
        # In this order: a slice that is neither given nor reported would look unstarted.
        self.post(Ended(given.slice.id, seconds, dropped))
        del cell.given[given.slice.id]

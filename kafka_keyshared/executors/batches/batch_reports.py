"""Reports on calls with several records: the outcome of each record.

Calls on threads and calls on an event loop share this code.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract.events import Failed, Recalled, Report, SetAside, SliceEnded
from kafka_keyshared.core.contract.outcomes import Failure
from kafka_keyshared.core.records.lane_identity import Lane
from kafka_keyshared.executors.failed_lanes import FailedLanes
from kafka_keyshared.executors.handling.batching import Outcome, settles
from kafka_keyshared.executors.handling.failure import describe, text_of
from kafka_keyshared.executors.key_chains import Given
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import Drop

log = log_of("kafka_keyshared.pool")

TELL_EVERY = 10.0
"""Seconds between two log lines of a worker about failed calls."""


class Holder(Protocol):
    """A holder of records: ``given`` is all that its worker holds."""

    given: dict[int, Given]


class Caller(Holder, Protocol):
    """The caller of a handler; it is ``gone`` if its call is stuck and a replacement runs."""

    spec: WorkerSpec
    failed: FailedLanes
    gone: bool

    def cut(self, lanes: Collection[Lane]) -> list[Given]:
        """Remove the waiting records of these lanes, in lease order."""


class Teller(Protocol):
    """A worker that logs failed calls; ``tell_at`` is the time of its next line."""

    spec: WorkerSpec
    tell_at: float


class CallReports:
    """Posts the outcomes of a call. The calling code has exclusive access to its records.

    ``ended`` is called with the id of each slice that has ended, after its report.
    """

    def __init__(
        self,
        post: Callable[[Report | Recalled], None],
        clock: Clock,
        ended: Callable[[int], None] | None = None,
    ) -> None:
        self._post = post
        self._clock = clock
        self._ended = ended

    def tell_alone(self, teller: Teller, count: int, error: BaseException) -> None:
        """Log, at most every 10 s, that the records of a failed call are handled alone."""
        now = self._clock.monotonic()
        if now >= teller.tell_at:
            teller.tell_at = now + TELL_EVERY
            log.warning(
                "%s: a call with %d records failed (%s: %.200s), so each is handled alone",
                teller.spec.name,
                count,
                type(error).__name__,
                text_of(error),
                extra={"worker": teller.spec.name},
            )

    def described(self, caller: Caller, outcomes: Iterable[Outcome]) -> list[Failure | None]:
        """Describe the outcomes that are failed attempts; None for the others."""
        rules = caller.spec.rules
        return [
            None
            if outcome is None or settles(outcome) or isinstance(outcome, Drop)
            else describe(outcome, self._clock, rules)
            for outcome in outcomes
        ]

    def report(
        self,
        caller: Caller,
        batch: Sequence[Given],
        outcomes: Sequence[Outcome],
        failures: Sequence[Failure | None],
        seconds: float,
    ) -> set[Lane]:
        """Report an ended call, in the order of its records; return the lanes that failed."""
        closed: set[Lane] = set()
        for given in batch:
            if given.slice.id not in caller.given:
                given.slice.came.restore(0)  # taken back from a stuck call; it runs again
        for given, outcome, failure in zip(batch, outcomes, failures, strict=True):
            if given.slice.id not in caller.given:
                continue
            if given.lane is not None and given.lane in closed:
                given.slice.came.restore(0)
                self.set_aside(caller, [given])
            elif failure is not None:
                if given.apart:
                    given.slice.came.restore(0)  # the core has already closed its lane
                else:
                    caller.failed.fail(given.slice, 0)
                if given.lane is not None:
                    closed.add(given.lane)
                self._post(Failed(given.slice.id, 0, failure))
                self.end_lease(caller, given, seconds)
            elif isinstance(outcome, Drop):
                given.slice.came.restore(0)
                self.end_lease(caller, given, seconds, (0,))
            else:
                self.end_lease(caller, given, seconds)
        if closed and not caller.gone:
            self.set_aside(caller, caller.cut(closed))
        return closed

    def set_aside(self, holder: Holder, those: Iterable[Given]) -> None:
        """Hand these records back unrun, in this order."""
        for each in those:
            self._post(SetAside(each.slice.id, 0))
            self.end_lease(holder, each, 0.0)

    def end_lease(
        self, holder: Holder, given: Given, seconds: float, dropped: tuple[int, ...] = ()
    ) -> None:
        """Report the end of a slice of one record."""
        # In this order: a slice that is neither given nor reported would look unstarted.
        self._post(SliceEnded(given.slice.id, seconds, dropped))
        del holder.given[given.slice.id]
        if self._ended is not None:
            self._ended(given.slice.id)

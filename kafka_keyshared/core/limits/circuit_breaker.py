"""The circuit breaker, which tells an outage from poison records.

A dependency that is away makes every record fail, whatever its key. More attempts only wear the
dependency out, and a dead-letter topic would fill with records that are not at fault. So the
subscription waits: nothing starts, except one record from time to time, as a probe.

- *closed*: records run.
- *open*: nothing runs; the next probe is due at :attr:`CircuitBreaker.probe_at`.
- *half-open*: one record runs. If it succeeds, or fails in another way, the breaker closes.

The names are those of the pattern in M. Nygard's "Release It!".
:mod:`kafka_keyshared.core.failures.outage` acts on the breaker.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from typing import NamedTuple

from kafka_keyshared.core.contract.outcomes import Disposition, Failure
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.records.lane_identity import Lane
from kafka_keyshared.core.telemetry.failure_kinds import one_line
from kafka_keyshared.errors import InvariantError

PROBE_FIRST = 0.5
PROBE_MAX = 3.5
PROBES = RetryPolicy(backoff=PROBE_FIRST, backoff_max=PROBE_MAX)
"""Seconds until the first probe, and at most between two. Processing goes on within 5 s of the
dependency, with the jitter and a fast handler. The jitter keeps instances from probing together."""

PROBE_PATIENCE = 10.0
"""Seconds after which another record probes as well: the first one may hang."""

KEYS_LEAST = 3
"""Different keys that have to fail. One or two are poison records."""

KEYS_IN_ROW = 20
IN_ROW_FOR = 0.5
"""Different keys whose records fail for the first time with one error, and the seconds since the
first of them, with no success in between, that are an outage. Records whose attempts are used up
quickly would not wait for a share of failures. Retries do not count: they are of records that have
failed before. Successes are reported a moment later than failures."""

KEYS_KEPT = 8
RECENT = 30.0
"""Keys that failed last, of which the breaker knows the error, and for how many seconds."""

_NO_OUTAGE = frozenset({Disposition.GIVEN_BACK, Disposition.DEAD_LETTER})
"""A handler that asks for a dead letter blames the record."""


class CircuitState(enum.Enum):
    """The states of a breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Outage(NamedTuple):
    """An outage of a dependency: the error that shows it, and when it was noticed (monotonic)."""

    error: str
    where: str
    message: str
    since: float


class CircuitBreaker:
    """The breaker of one subscription. Times are monotonic, in seconds.

    Errors of a dependency open it (:attr:`.Failure.waits`); with ``any_error`` others do, too.
    ``outage`` is None while the breaker is closed, and ``suspected`` is one for which it is to
    open. ``over`` is one that has just ended, and ``closed_at`` is when the last one did.
    ``probes`` counts those that have failed.
    """

    def __init__(self, *, any_error: bool) -> None:
        self._any_error = any_error
        self.outage: Outage | None = None
        self.suspected: Outage | None = None
        self.over: Outage | None = None
        self.probe_at = 0.0
        self.probes = 0
        self._probe: int | None = None
        # Slices of probes without a result, also of those that take too long.
        self._running: dict[int, float] = {}
        # Lanes that failed last: the error, and when.
        self._failed: OrderedDict[Lane, tuple[str, float]] = OrderedDict()
        # Lanes that have failed since the last success of any lane: with one error, and with errors
        # of a dependency.
        self._in_row: set[Lane] = set()
        self._in_row_as: Outage | None = None
        self._waiting: set[Lane] = set()
        self.closed_at = float("-inf")
        # Attempts since then.
        self._failures = self._ok = 0

    @property
    def state(self) -> CircuitState:
        """The state of the breaker."""
        if self.outage is None:
            return CircuitState.CLOSED
        return CircuitState.OPEN if self._probe is None else CircuitState.HALF_OPEN

    @property
    def open(self) -> bool:
        """Return whether the subscription waits for a dependency."""
        return self.outage is not None

    def covers(self, failure: Failure) -> bool:
        """Return whether the dependency is the cause of a failure, and not the record."""
        if failure.waits:
            return True
        outage = self.outage
        if outage is None:
            return False
        postponed = failure.disposition is Disposition.PUT_OFF
        return postponed or failure.error_type == outage.error

    # --- attempts ---

    def note(self, lane: Lane, failure: Failure, now: float, *, first: bool) -> None:
        """Count a failed attempt; suspect an outage once many keys fail, or wait for a dependency.

        ``first`` says that it is the first one of its record.
        """
        if self.open or failure.disposition in _NO_OUTAGE:
            return
        self._failures += 1
        self._failed[lane] = failure.error_type, now
        self._failed.move_to_end(lane)
        if len(self._failed) > KEYS_KEPT:
            self._failed.popitem(last=False)
        outage = Outage(failure.error_type, failure.where, one_line(failure.message), now)
        if failure.waits:
            self._waiting.add(lane)
            if len(self._waiting) >= KEYS_LEAST:
                self.suspected = outage
        if first and self._any_error:
            if self._in_row_as is None or self._in_row_as.error != outage.error:
                self._in_row.clear()
            if not self._in_row:
                self._in_row_as = outage
            self._in_row.add(lane)

    def ended(self, slice_id: int, done: int) -> None:
        """Count the records of a slice that were done; the end of a probe decides.

        A probe that ends without a result was taken back. The next one is then due at once.
        """
        if slice_id in self._running:
            if done:
                self.close(self._running[slice_id])
            else:
                self._probe_ended(slice_id, 0.0)
            return
        self._ok += done
        if done:
            self.succeeded()

    def succeeded(self) -> None:
        """Note that a record has been done since the last failure."""
        self._in_row.clear()
        self._waiting.clear()
        self.suspected = None

    def look(self, now: float) -> None:
        """Suspect an outage where many keys have failed in a row for a while."""
        outage = self._in_row_as
        if self.open or outage is None or len(self._in_row) < KEYS_IN_ROW:
            return
        if now - outage.since >= IN_ROW_FOR:
            self.suspected = outage

    def suspect(self, outage: Outage, now: float) -> None:
        """Have the breaker open, if several keys have failed so recently.

        An outage that began before the breaker last closed has to be seen again since: failures
        have to outnumber successes.
        """
        fails = [
            error == outage.error and now - at <= RECENT for error, at in self._failed.values()
        ]
        again = outage.since >= self.closed_at or self._failures > self._ok
        if self._any_error and not self.open and sum(fails) >= KEYS_LEAST and again:
            self.suspected = outage

    # --- transitions ---

    def trip(self, now: float) -> Outage:
        """Open for the suspected outage, and return it."""
        outage = self.suspected
        if outage is None:
            raise InvariantError("the circuit breaker opens without an outage")
        self.outage, self.suspected = outage, None
        self.probes = 0
        self.probe_at = now + PROBE_FIRST
        return outage

    def begin_probe(self, slice_id: int, now: float) -> None:
        """Note that this slice is the probe."""
        self._probe = slice_id
        self._running[slice_id] = now

    def probe_failed(self, slice_id: int, failure: Failure, now: float) -> None:
        """Judge the failure of a slice's record, if it is a probe.

        A record that fails in another way shows that the dependency answers.
        """
        if slice_id not in self._running:
            return
        if not self.covers(failure):
            self.close(now)
            return
        self.probes += 1
        self._probe_ended(slice_id, now + PROBES.delay(self.probes + 1, failure.jitter))

    def hurry(self, now: float) -> None:
        """Have another record probe if the probe takes too long; its own result still counts."""
        probe = self._probe
        if probe is not None and now - self._running[probe] >= PROBE_PATIENCE:
            self._probe, self.probe_at = None, now

    def close(self, now: float) -> None:
        """Close: records run again. Attempts are counted anew."""
        self.over, self.outage, self.suspected = self.outage, None, None
        self.closed_at, self._failures, self._ok = now, 0, 0
        self._probe = None
        self._running.clear()
        self._failed.clear()
        self._in_row.clear()
        self._waiting.clear()

    def next_due(self) -> float | None:
        """Return when the next probe is due; None unless the breaker is open."""
        return self.probe_at if self.state is CircuitState.OPEN else None

    def _probe_ended(self, slice_id: int, probe_at: float) -> None:
        del self._running[slice_id]
        if slice_id == self._probe:
            self._probe, self.probe_at = None, probe_at

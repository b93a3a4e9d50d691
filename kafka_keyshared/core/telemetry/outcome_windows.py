"""Sums of attempt outcomes over sliding windows.

One :class:`Outcomes` counts half a second. A :class:`Windows` keeps the last five minutes and three
running sums. So a heartbeat costs the same for any number of failures.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TypeVar

from kafka_keyshared.core.records.lane_identity import Lane
from kafka_keyshared.core.telemetry.failure_lines import Kind

COUNTS = 0.5
"""Seconds that one :class:`Outcomes` counts: from one heartbeat to the next."""

WINDOWS = (8.0, 30.0, 300.0)
"""Seconds of each window, the shortest first."""

LANES_MOST = 8
"""Different lanes that one count remembers: a rule needs a few, never all."""


@dataclass(slots=True)
class Outcomes:
    """How attempts ended in a span of time.

    ``ok`` records were done. ``records`` failed for the first time; ``failed`` counts all failed
    attempts. ``put_off`` records were postponed for the first time; ``put_off_again`` counts the
    later postponements. ``given_up`` records went to the dead-letter topic or were dropped by the
    policy. ``lanes`` failed or were postponed, ``given_up_lanes`` were given up. ``kinds`` and
    ``given_up_kinds`` count both by error and place.
    """

    ok: int = 0
    records: int = 0
    failed: int = 0
    put_off: int = 0
    put_off_again: int = 0
    given_up: int = 0
    lanes: Counter[Lane] = field(default_factory=Counter)
    given_up_lanes: Counter[Lane] = field(default_factory=Counter)
    kinds: Counter[Kind] = field(default_factory=Counter)
    given_up_kinds: Counter[Kind] = field(default_factory=Counter)

    @property
    def not_done(self) -> int:
        """Return how many attempts did not end well."""
        return self.failed + self.put_off + self.put_off_again

    def add(self, other: Outcomes, sign: int = 1) -> None:
        """Add another count to this one; subtract it if ``sign`` is -1."""
        self.ok += sign * other.ok
        if not (other.not_done or other.given_up):
            return
        self.records += sign * other.records
        self.failed += sign * other.failed
        self.put_off += sign * other.put_off
        self.put_off_again += sign * other.put_off_again
        self.given_up += sign * other.given_up
        _add(self.lanes, other.lanes, sign)
        _add(self.given_up_lanes, other.given_up_lanes, sign)
        _add(self.kinds, other.kinds, sign)
        _add(self.given_up_kinds, other.given_up_kinds, sign)


def note_lane(lanes: Counter[Lane], lane: Lane) -> None:
    """Count a lane, unless :data:`LANES_MOST` other lanes are counted already."""
    if lane in lanes or len(lanes) < LANES_MOST:
        lanes[lane] += 1


T = TypeVar("T")


def _add(mine: Counter[T], theirs: Counter[T], sign: int) -> None:
    for each, count in theirs.items():
        left = mine[each] + sign * count
        if left > 0:
            mine[each] = left
        else:
            del mine[each]


class Windows:
    """The last five minutes of outcomes, and the sum of each window. Times are monotonic."""

    def __init__(self) -> None:
        self.sums = tuple(Outcomes() for _ in WINDOWS)
        self._parts: tuple[deque[tuple[float, Outcomes]], ...] = tuple(deque() for _ in WINDOWS)

    def add(self, outcomes: Outcomes, now: float) -> None:
        """Add the outcomes since the last call, and drop those that have become too old."""
        something = outcomes.ok or outcomes.not_done or outcomes.given_up
        for seconds, total, parts in zip(WINDOWS, self.sums, self._parts, strict=True):
            if something:
                parts.append((now, outcomes))
                total.add(outcomes)
            while parts and parts[0][0] <= now - seconds:
                total.add(parts.popleft()[1], -1)

    def first_failure(self, window: int) -> float | None:
        """Return when the first attempt in a window failed, None if none did."""
        return next((at for at, each in self._parts[window] if each.not_done), None)

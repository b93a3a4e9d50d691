"""Rate limits for facts that may come in any number.

The first event of a kind is reported at once; later events share one notice per interval. A
handler that fails for every key would otherwise fill the log, and hide the line that matters. The
shared notice has its first event. The other events are only counted, so an event that occurs
100,000 times a second costs one addition.

The first failed attempt of each kind (:mod:`.failure_kinds`) is reported at once with its
traceback, which shows the line of code. After that, one notice per interval counts the failures of
each kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from kafka_keyshared.core.contract.commands import Notice
from kafka_keyshared.core.contract.facts import (
    AttemptFailed,
    BlockedLane,
    DeadLetterRefused,
    Fact,
    KeyNotYetReadable,
    KeyUnreadable,
    LaneBlocked,
    LaneDiverted,
    LanesStillBlocked,
    RecordDeadLettered,
    RecordDiverted,
    RecordHeld,
    RecordsShed,
    RecordStuck,
    Repeats,
    SettledSetFull,
    UnreadableKeyBlocked,
    WaitingRecordsFull,
)
from kafka_keyshared.core.contract.outcomes import Failure
from kafka_keyshared.core.lanes.closed import ClosedLane, oldest_blocked
from kafka_keyshared.core.telemetry.failure_kinds import KINDS_MAX, OTHERS, Kind, kind_of
from kafka_keyshared.model import About

INTERVAL = 10.0
"""Seconds between two notices of one kind of event."""

UNREAD_INTERVAL = 60.0
"""Seconds between two notices about unreadable keys; a key is tried every few seconds."""

TRACEBACKS_A_SECOND = 10
"""Tracebacks in one second, so that many different failures do not flood the log."""

KINDS_NAMED = 5
"""Kinds that one notice counts separately."""

REMIND_EVERY = 60.0
"""Seconds between two reminders of blocked lanes."""

FactT = TypeVar("FactT", bound=Fact)


class Burst(Generic[FactT]):
    """Events of one kind. ``interval`` is the time between notices in seconds."""

    def __init__(self, interval: float = INTERVAL) -> None:
        self._reported_at = float("-inf")
        self._count = 0
        # The first of the counted events, and the time of the last one.
        self._first: FactT | None = None
        self._last_at = float("-inf")
        self.interval = interval

    def only_counted(self, now: float) -> bool:
        """Count an event that gets no notice of its own, and return True; else return False.

        If False, :meth:`add` has to take the event. This avoids collecting the details of an event
        for nothing.
        """
        if not self._count:
            return False
        self._count += 1
        self._last_at = now
        return True

    def add(self, fact: FactT, now: float) -> list[Notice]:
        """Take an event; return its notice unless there was one within the interval."""
        if self.only_counted(now):
            return []
        if now - self._reported_at >= self.interval:
            return self.at_once(fact, now)
        self._count = 1
        self._first = fact
        self._last_at = now
        return []

    def at_once(self, fact: FactT, now: float) -> list[Notice]:
        """Return the notice of an event that cannot wait; counted earlier events go on waiting."""
        if not self._count:
            self._reported_at = now
        return [Notice(fact)]

    def due(self, now: float) -> list[Notice]:
        """Return the notice for the events since the last one, when the interval is over."""
        seconds = now - self._reported_at
        if self._first is None or seconds < self.interval:
            return []
        repeats = self._repeats(seconds, now - self._last_at)
        first, self._first = self._first, None
        self._count = 0
        self._reported_at = now
        return [Notice(first, repeats)]

    def _repeats(self, seconds: float, last_ago: float) -> Repeats:
        return Repeats(self._count, seconds, last_ago)


class Attempts(Burst[AttemptFailed]):
    """Failed attempts of a subscription.

    With ``tracebacks`` the first failure of each kind is reported with its traceback.
    """

    def __init__(self, *, tracebacks: bool = True) -> None:
        super().__init__()
        self._tracebacks = tracebacks
        self._known: set[Kind] = set()
        self._in_full = 0
        self._in_full_since = float("-inf")
        self._counts: Counter[Kind] = Counter()
        self._blocked: set[Kind] = set()

    def only_counted_as(self, failure: Failure, now: float) -> bool:
        """Count an attempt that needs no other action, and return True; else return False.

        If False, :meth:`note` has to take it. If many attempts fail, nearly all are only counted.
        """
        kind = failure.error_type, failure.where
        # A kind has a count only while attempts are counted.
        counted = self._counts.get(kind)
        if counted is None:
            return False
        self._counts[kind] = counted + 1
        self._count += 1
        self._last_at = now
        return True

    def note(self, fact: AttemptFailed, now: float) -> list[Notice]:
        """Take a failed attempt; return the notice to log at once."""
        kind = kind_of(fact.failure)
        if kind not in self._known:
            if len(self._known) == KINDS_MAX:
                kind = OTHERS
            elif self._one_more_in_full(now):
                return self._report_in_full(kind, fact, now)
        notices = self.add(fact, now)
        if not notices:
            self._counts[kind] += 1
        return notices

    def _one_more_in_full(self, now: float) -> bool:
        """Return whether a kind may be logged in full now; else it is counted and logged later."""
        if now - self._in_full_since >= 1.0:
            self._in_full_since, self._in_full = now, 0
        self._in_full += 1
        return self._in_full <= TRACEBACKS_A_SECOND

    def _report_in_full(self, kind: Kind, fact: AttemptFailed, now: float) -> list[Notice]:
        self._known.add(kind)
        last = len(self._known) == KINDS_MAX
        if self._tracebacks or last:
            fact = replace(fact, traceback=self._tracebacks, last_kind=last)
        return self.at_once(fact, now)

    def first_block(self, failure: Failure, now: float) -> bool:
        """Return whether to log the traceback: a kind of failure blocks a lane for the first time.

        A failure without a place has no traceback.
        """
        kind = kind_of(failure)
        if kind in self._blocked or len(self._blocked) == KINDS_MAX:
            return False
        if not failure.where or not self._one_more_in_full(now):
            return False
        self._blocked.add(kind)
        return True

    def due(self, now: float) -> list[Notice]:
        """Return the notice for the attempts since the last one, when the interval is over."""
        notices = super().due(now)
        if notices:
            self._counts.clear()
        return notices

    def _repeats(self, seconds: float, last_ago: float) -> Repeats:
        kinds = self._counts.most_common(KINDS_NAMED)
        others = self._counts.total() - sum(count for _, count in kinds)
        return Repeats(self._count, seconds, last_ago, kinds, others)


@dataclass(slots=True)
class Bursts:
    """The events of a subscription that may come in any number."""

    attempts: Attempts = field(default_factory=Attempts)
    requested: Attempts = field(default_factory=lambda: Attempts(tracebacks=False))
    dead_letters: Burst[RecordDeadLettered] = field(default_factory=Burst)
    diversions: Burst[LaneDiverted] = field(default_factory=Burst)
    diverted: Burst[RecordDiverted] = field(default_factory=Burst)
    refusals: Burst[DeadLetterRefused] = field(default_factory=Burst)
    unreadable: Burst[KeyUnreadable] = field(default_factory=Burst)
    unread: Burst[KeyNotYetReadable] = field(default_factory=lambda: Burst(UNREAD_INTERVAL))
    blocks: Burst[LaneBlocked | UnreadableKeyBlocked] = field(default_factory=Burst)
    shed: Burst[RecordsShed] = field(default_factory=Burst)
    stuck: Burst[RecordStuck] = field(default_factory=Burst)
    held: Burst[RecordHeld] = field(default_factory=Burst)
    held_back: Burst[SettledSetFull | WaitingRecordsFull] = field(default_factory=Burst)

    def due(self, now: float) -> list[Notice]:
        """Return the notices that are due."""
        return [notice for burst in self._all() for notice in burst.due(now)]

    def hurry(self, now: float) -> list[Notice]:
        """Return all remaining notices and delay none from now on, because the stop is near."""
        for burst in self._all():
            burst.interval = 0.0
        return self.due(now)

    def _all(self) -> tuple[Burst[Any], ...]:
        return (
            self.attempts,
            self.requested,
            self.dead_letters,
            self.diversions,
            self.diverted,
            self.refusals,
            self.unreadable,
            self.unread,
            self.blocks,
            self.shed,
            self.stuck,
            self.held,
            self.held_back,
        )


class Reminder:
    """Decides when the log names the blocked lanes again.

    Code that blocks a lane sets ``blocked``. Very many closed lanes may only wait for a retry, and
    are not scanned without it.
    """

    def __init__(self, *, dlq: bool = False) -> None:
        self.blocked = False
        self._dlq = dlq
        self._remind_at = float("-inf")

    def remind(self, closed: Iterable[ClosedLane], now: float) -> list[Notice]:
        """Name the blocked lanes, the oldest first, once a minute while any is blocked.

        Nothing is named while the oldest block is younger than a minute: its own line has named it.
        """
        if now < self._remind_at or not self.blocked:
            return []
        oldest, count = oldest_blocked(closed)
        if not count:
            self.blocked = False
            return []
        since = min((each.blocked_at for each in oldest), default=now)
        if now - since < REMIND_EVERY:
            self._remind_at = since + REMIND_EVERY
            return []
        self._remind_at = now + REMIND_EVERY
        lanes = tuple(BlockedLane(about_head(each), each.last) for each in oldest)
        return [Notice(LanesStillBlocked(count, now - since, lanes, self._dlq))]


def about_head(closed: ClosedLane) -> About:
    """Return the head of a closed lane as a log line names it; its offset is -1 without one."""
    head = closed.head
    return About(closed.partition, -1 if head is None else head.offset(), closed.key)

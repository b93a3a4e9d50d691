"""The closed lanes of a subscription.

A lane without failures has no object. Its records stand in its worker's backlog and mailbox in
arrival order, and a serial worker keeps them so. A lane in which a record failed is *closed*. It is
kept here until its first record is settled.
"""

from __future__ import annotations

import enum
import heapq
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sortedcontainers import SortedList

from kafka_keyshared.core.contract.commands import Publish
from kafka_keyshared.core.contract.outcomes import Failure
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.contract.transitions import follow
from kafka_keyshared.core.records.backlog import without
from kafka_keyshared.core.records.lane_identity import Lane, is_keyless
from kafka_keyshared.model import Attempt, Record, TopicPartition


class LaneState(enum.Enum):
    """Why a closed lane is closed."""

    WAITING = "waiting"
    """Its head waits for its next attempt."""
    RUNNING = "running"
    """Its head is leased for another attempt."""
    STUCK = "stuck"
    """Its head runs past the ack timeout, and nothing can end it."""
    DEAD_LETTERING = "dead_lettering"
    """Its head waits for the broker to acknowledge the dead letter."""
    ARCHIVING = "archiving"
    """Its head waits for the broker to acknowledge its copy, and then blocks the lane."""
    BLOCKED = "blocked"
    """Its head is poison and the policy is Block."""
    DIVERTING = "diverting"
    """Its head waits for the broker to acknowledge the dead letter; later records will, too."""
    DIVERTED = "diverted"
    """All new records go to the dead-letter topic; the lane has no head at the moment."""
    OPENING = "opening"
    """Its head is gone; the lane waits only for its fence."""


class LaneEvent(enum.Enum):
    """What can happen to the head of a closed lane."""

    RETRY = "its attempt failed and another follows"
    LEASED = "it is leased for that attempt"
    RECALLED = "it is taken back before the attempt has started"
    STUCK = "it runs past the ack timeout, and nothing can end it"
    DEAD_LETTER = "it is to go to the dead-letter topic"
    ARCHIVE = "a copy of it is to go there, and it is to block the lane"
    ARCHIVED = "its copy is acknowledged"
    BLOCK = "it is to block the lane"
    DIVERT = "it and all that follow are to go to the dead-letter topic"
    SETTLED = "it is settled: done, dropped, or its dead letter is acknowledged"
    UNBLOCKED = "an operator orders that the lane goes on with it"
    DROPPED = "an operator orders that it is dropped"
    SENT = "an operator orders that it goes to the dead-letter topic"
    FORGOTTEN = "it goes with its partition"


BLOCKED_NAMED = 10
"""Blocked lanes that the log and the status name."""

_S, _E = LaneState, LaneEvent

LANE_TABLE: Mapping[LaneState, Mapping[LaneEvent, LaneState]] = {
    _S.WAITING: {
        _E.RETRY: _S.WAITING,
        _E.LEASED: _S.RUNNING,
        _E.DEAD_LETTER: _S.DEAD_LETTERING,
        _E.ARCHIVE: _S.ARCHIVING,
        _E.BLOCK: _S.BLOCKED,
        _E.DIVERT: _S.DIVERTING,
        _E.SETTLED: _S.OPENING,
        _E.UNBLOCKED: _S.WAITING,
        _E.DROPPED: _S.OPENING,
        _E.SENT: _S.DEAD_LETTERING,
        _E.FORGOTTEN: _S.OPENING,
    },
    _S.RUNNING: {
        _E.RETRY: _S.WAITING,
        _E.RECALLED: _S.WAITING,
        _E.STUCK: _S.STUCK,
        _E.DEAD_LETTER: _S.DEAD_LETTERING,
        _E.ARCHIVE: _S.ARCHIVING,
        _E.BLOCK: _S.BLOCKED,
        _E.DIVERT: _S.DIVERTING,
        _E.SETTLED: _S.OPENING,
        _E.FORGOTTEN: _S.OPENING,
    },
    _S.STUCK: {
        _E.RETRY: _S.WAITING,
        _E.DEAD_LETTER: _S.DEAD_LETTERING,
        _E.ARCHIVE: _S.ARCHIVING,
        _E.BLOCK: _S.BLOCKED,
        _E.DIVERT: _S.DIVERTING,
        _E.SETTLED: _S.OPENING,
        _E.FORGOTTEN: _S.OPENING,
    },
    _S.DEAD_LETTERING: {
        _E.SETTLED: _S.OPENING,
        _E.DROPPED: _S.OPENING,
        _E.FORGOTTEN: _S.OPENING,
    },
    _S.ARCHIVING: {
        _E.ARCHIVED: _S.BLOCKED,
        _E.DROPPED: _S.OPENING,
        _E.FORGOTTEN: _S.OPENING,
    },
    _S.BLOCKED: {
        _E.UNBLOCKED: _S.WAITING,
        _E.DROPPED: _S.OPENING,
        _E.SENT: _S.DEAD_LETTERING,
        _E.FORGOTTEN: _S.OPENING,
    },
    _S.DIVERTING: {
        _E.SETTLED: _S.DIVERTED,
        _E.UNBLOCKED: _S.DEAD_LETTERING,
        _E.FORGOTTEN: _S.DIVERTED,
    },
    _S.DIVERTED: {
        _E.DIVERT: _S.DIVERTING,
        _E.UNBLOCKED: _S.OPENING,
        _E.FORGOTTEN: _S.OPENING,
    },
    _S.OPENING: {},
}
"""The next state for each state and event; other combinations cannot happen.

A lane that closes is waiting or stuck. A lane that was diverted when its partition came is diverted
from its first record.
"""

HEAD_LEASED = (LaneState.RUNNING, LaneState.STUCK)
"""The head has a lease, and is held by its slice."""

TRIED_AGAIN = frozenset({_S.WAITING, _S.RUNNING})
"""The head waits for its next attempt, or is in it."""

LETTERS_ON_THEIR_WAY = frozenset({_S.DEAD_LETTERING, _S.ARCHIVING, _S.DIVERTING})
"""States in which the head waits for the broker's answer to its dead letter."""

DIVERTS = frozenset({_S.DIVERTING, _S.DIVERTED})

HEAD_HELD_UP = DIVERTS | {_S.BLOCKED, _S.STUCK}
"""States without a bound on when the lane opens, so the records that wait in it are bounded.

The lane waits for an operator, a handler, or a dead-letter topic that is unavailable. It publishes
one dead letter at a time.
"""


@dataclass(slots=True, eq=False)
class ClosedLane:
    """A lane from which only its own head may start.

    Order inside: ``head``, then ``aside`` (records that the worker handed back), then ``queue``
    (records that never left this process's backlog).

    ``partition`` is the partition of the head. ``fence_at`` is the worker whose fence has not
    passed yet. ``attempt`` is the id of the slice in which the head runs again or is stuck.
    ``blocked_at`` is when the lane was blocked or diverted.

    ``failures`` are the failed attempts of the head that used one up. ``unlimited`` are those that
    did not, because their errors are retried forever. ``in_row`` counts the last ones that follow
    one policy. ``first`` and ``last`` are the first and the last of all.

    ``letter`` is the last dead letter published for the head. ``publish_failures`` counts its
    failed writes, and ``refusal`` is the reason of the last one, "" if there was none.
    ``refused_for_good`` says that a retry of the write would not help. ``archived`` says that the
    dead-letter topic has a copy of the head.

    ``put_off`` says that a handler has postponed the head before. ``unreadable`` says that its key
    cannot be read, so no handler may get it. ``readied`` says that the head waits in a row for its
    next attempt.
    """

    lane: Lane
    key: bytes | None
    state: LaneState
    head: Record | None
    partition: TopicPartition
    fence_at: int | None = None
    attempt: int | None = None
    due: float | None = None
    failures: int = 0
    unlimited: int = 0
    in_row: int = 0
    first: Failure | None = None
    last: Failure | None = None
    publish_failures: int = 0
    refusal: str = ""
    refused_for_good: bool = False
    archived: bool = False
    put_off: bool = False
    unreadable: bool = False
    readied: bool = False
    letter: Publish | None = None
    blocked_at: float = 0.0
    aside: list[Record] = field(default_factory=list)
    queue: deque[Record] = field(default_factory=deque)

    def on(self, event: LaneEvent) -> None:
        """Go to the next state.

        Raises :class:`InvariantError`, and changes nothing, if :data:`LANE_TABLE` has no next
        state.
        """
        self.state = follow(LANE_TABLE, self.state, event, f"the head of lane {self.lane}")

    @property
    def attempts(self) -> int:
        """The number of failed attempts of the head."""
        return self.failures + self.unlimited

    def failed(self, failure: Failure, policy: RetryPolicy) -> None:
        """Count a failed attempt of the head; ``policy`` says what the attempt uses up."""
        if self.last is None:  # those of an earlier owner followed the same policy
            self.in_row = self.failures
        elif self.last.retry != failure.retry:
            self.in_row = 0
        self.in_row += 1
        if policy.forever:
            self.unlimited += 1
        else:
            self.failures += 1
        self.first = self.first or failure
        self.last = failure

    def give_attempts_back(self) -> None:
        """Let the failed attempts of the head use up none: an outage was their cause."""
        self.failures, self.unlimited = 0, self.attempts

    def next_attempt(self, policy: RetryPolicy) -> Attempt:
        """Return the next attempt of the head by this policy, as its handler can query it."""
        first, last = self.first, self.last
        return Attempt(
            self.attempts + 1,
            None if policy.forever else policy.attempts,
            None if first is None else first.at_ms / 1000,
            "" if last is None else f"{last.error_type}: {last.message}".removesuffix(": "),
        )

    def write(self, letter: Publish) -> Publish:
        """Note that this dead letter of the head is to be published, and return it."""
        self.letter, self.publish_failures, self.refusal = letter, 0, ""
        self.refused_for_good = False
        return letter

    def waiting(self) -> Iterator[Record]:
        """Yield every record that waits behind the head, in order."""
        yield from self.aside
        yield from self.queue

    def records(self) -> Iterator[Record]:
        """Yield every record held here; a leased head is held by its slice and left out."""
        if self.head is not None and self.state not in HEAD_LEASED:
            yield self.head
        yield from self.aside
        yield from self.queue


class ClosedLanes:
    """All closed lanes of a subscription, and the timers that open them.

    ``keys`` holds the raw keys for a cheap first check; the lane's identity decides a hit.
    """

    def __init__(self) -> None:
        self.lanes: dict[Lane, ClosedLane] = {}
        self.keys: dict[bytes, int] = {}
        self._timers: SortedList[tuple[float, int, ClosedLane]] = SortedList(
            key=lambda timer: timer[:2]
        )
        self._timer_of: dict[Lane, tuple[float, int, ClosedLane]] = {}
        self._sequence = 0

    def __len__(self) -> int:
        return len(self.lanes)

    def get(self, lane: Lane) -> ClosedLane | None:
        """Return the closed lane, or None when the lane is open."""
        return self.lanes.get(lane)

    def close(self, closed: ClosedLane) -> None:
        """Add the lane as closed."""
        self.lanes[closed.lane] = closed
        if closed.key is not None:
            self.keys[closed.key] = self.keys.get(closed.key, 0) + 1

    def waiting(self) -> Iterator[Record]:
        """Yield every record that a closed lane holds."""
        for closed in self.lanes.values():
            yield from closed.records()

    def empty(self) -> bool:
        """Return whether no lane is closed."""
        return not self.lanes

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the records of these partitions; a lane whose head goes is about to open.

        No record waits behind a keyless record. If its lane were kept while it runs, that would
        close a lane of the next epoch: the one of the record at the same coordinates.
        """
        for closed in self.lanes.values():
            closed.aside[:] = without(closed.aside, partitions)
            closed.queue = deque(without(closed.queue, partitions))
            if closed.head is not None and closed.partition in partitions:
                closed.head = None
                if closed.state not in HEAD_LEASED or is_keyless(closed.lane):
                    closed.on(LaneEvent.FORGOTTEN)
                    self.cancel(closed)

    def open(self, closed: ClosedLane) -> None:
        """Remove the lane; the caller places its waiting records."""
        del self.lanes[closed.lane]
        self.cancel(closed)
        if closed.key is not None:
            self.keys[closed.key] -= 1
            if not self.keys[closed.key]:
                del self.keys[closed.key]

    def wake_at(self, closed: ClosedLane, due: float) -> None:
        """Wake the lane at ``due`` (monotonic seconds) and cancel any earlier timer."""
        self.cancel(closed)
        self._sequence += 1
        timer = (due, self._sequence, closed)
        closed.due = due
        self._timer_of[closed.lane] = timer
        self._timers.add(timer)

    def cancel(self, closed: ClosedLane) -> None:
        """Cancel the lane's timer, if it has one."""
        closed.due = None
        timer = self._timer_of.pop(closed.lane, None)
        if timer is not None:
            self._timers.remove(timer)

    def next_due(self) -> float | None:
        """Return when the next lane is due, in monotonic seconds."""
        return self._timers[0][0] if self._timers else None

    def first_waiting(self) -> ClosedLane | None:
        """Return the lane whose head is the first to run again, of those that wait for a delay."""
        waits = LaneState.WAITING
        return next((each for _, _, each in self._timers if each.state is waits), None)

    def pop_due(self, now: float, most: int) -> list[ClosedLane]:
        """Take up to ``most`` of the lanes that are due, earliest first."""
        due: list[ClosedLane] = []
        while len(due) < most and self._timers and self._timers[0][0] <= now:
            closed = self._timers.pop(0)[2]
            del self._timer_of[closed.lane]
            closed.due = None
            due.append(closed)
        return due


def oldest_blocked(closed: Iterable[ClosedLane]) -> tuple[list[ClosedLane], int]:
    """Return the lanes that have been blocked for longest, and how many are blocked."""
    blocked = [each for each in closed if each.state is LaneState.BLOCKED]
    return heapq.nsmallest(BLOCKED_NAMED, blocked, key=lambda each: each.blocked_at), len(blocked)

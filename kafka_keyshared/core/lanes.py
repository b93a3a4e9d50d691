"""The closed lanes of a subscription.

A lane that nothing has happened to has no object at all: its records stand in its worker's backlog
and mailbox in arrival order, and a serial worker keeps them so. Only a lane in which something
failed is *closed* and remembered here, until its first record is settled.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from sortedcontainers import SortedList

from kafka_keyshared.core.commands import Publish
from kafka_keyshared.core.dispositions import Failure
from kafka_keyshared.core.lane_identity import Lane, is_keyless
from kafka_keyshared.core.places import without
from kafka_keyshared.core.tables import follow
from kafka_keyshared.model import Record, TopicPartition


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
    """Its head waits for the broker to acknowledge its copy, and will block it."""
    BLOCKED = "blocked"
    """Its head is poison and the policy is Block."""
    DIVERTING = "diverting"
    """Its head waits for the broker to acknowledge the dead letter, and all that follow will."""
    DIVERTED = "diverted"
    """Whatever comes in it goes to the dead-letter topic; it has no head just now."""
    OPENING = "opening"
    """It has no head any more; only the fence is missing."""


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
    RELEASED = "somebody orders that the lane goes on with it"
    DROPPED = "somebody orders that it is dropped"
    SENT = "somebody orders that it goes to the dead-letter topic"
    FORGOTTEN = "it goes with its partition"


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
        _E.RELEASED: _S.WAITING,
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
        _E.RELEASED: _S.WAITING,
        _E.DROPPED: _S.OPENING,
        _E.SENT: _S.DEAD_LETTERING,
        _E.FORGOTTEN: _S.OPENING,
    },
    _S.DIVERTING: {
        _E.SETTLED: _S.DIVERTED,
        _E.RELEASED: _S.DEAD_LETTERING,
        _E.FORGOTTEN: _S.DIVERTED,
    },
    _S.DIVERTED: {
        _E.DIVERT: _S.DIVERTING,
        _E.RELEASED: _S.OPENING,
        _E.FORGOTTEN: _S.OPENING,
    },
    _S.OPENING: {},
}
"""The state that follows; what is not here cannot happen.

A lane that closes waits, or is stuck; one that was diverted when its partition came is so from its
first record.
"""

HEAD_LEASED = (LaneState.RUNNING, LaneState.STUCK)
"""The head has a lease, and is held by its slice."""

LETTERS_ON_THEIR_WAY = frozenset({_S.DEAD_LETTERING, _S.ARCHIVING, _S.DIVERTING})
"""In these the head waits for the dead-letter topic's answer."""

DIVERTS = frozenset({_S.DIVERTING, _S.DIVERTED})

HEAD_HELD_UP = DIVERTS | {_S.BLOCKED, _S.STUCK}
"""There is no saying when the lane opens, so what waits in it is bounded. It waits for a person, a
handler, or for a dead-letter topic for as long as that is down, and sends it a letter at a time."""


@dataclass(slots=True, eq=False)
class ClosedLane:
    """A lane of which nothing may start but its own head.

    Order inside: ``head``, then ``aside`` (what the worker handed back), then ``queue`` (what never
    left this process's backlog). ``partition`` is where the head came from, ``fence_at`` the worker
    whose fence is not passed yet, ``attempt`` the id of the slice in which the head runs again, or
    is stuck, and ``blocked_at`` since when it is blocked or diverted. ``letter`` is what was last
    published of the head, ``refusal`` why that was not written the last of ``publish_failures``
    times, "" if it never was, and ``refused_for_good`` says that another try would not help.
    ``archived`` says that the dead-letter topic has a copy of the head, ``put_off`` that a handler
    has put it off before, and ``unreadable`` that its key cannot be read, so that no handler may
    see it. ``readied`` says that the head waits in a row for its next attempt.
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
        """Go to the state that follows.

        Raises :class:`InvariantError`, and changes nothing, where :data:`LANE_TABLE` has none.
        """
        self.state = follow(LANE_TABLE, self.state, event, f"the head of lane {self.lane}")

    def write(self, letter: Publish) -> Publish:
        """Note that this letter of the head is to be written, and return it."""
        self.letter, self.publish_failures, self.refusal = letter, 0, ""
        self.refused_for_good = False
        return letter

    def waiting(self) -> Iterator[Record]:
        """Every record that waits behind the head, in order."""
        yield from self.aside
        yield from self.queue

    def records(self) -> Iterator[Record]:
        """Every record held here. A head that is leased again is its slice's, not counted here."""
        if self.head is not None and self.state not in HEAD_LEASED:
            yield self.head
        yield from self.aside
        yield from self.queue


class ClosedLanes:
    """All closed lanes of a subscription, and the timers that open them.

    ``keys`` holds the raw keys for a cheap first look; a hit is decided by the lane's identity.
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
        """Remember the lane as closed."""
        self.lanes[closed.lane] = closed
        if closed.key is not None:
            self.keys[closed.key] = self.keys.get(closed.key, 0) + 1

    def waiting(self) -> Iterator[Record]:
        """Yield every record that a closed lane holds."""
        for closed in self.lanes.values():
            yield from closed.records()

    def empty(self) -> bool:
        """Say whether no lane is closed."""
        return not self.lanes

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop what is of these partitions; a lane whose head goes is about to open.

        Nothing waits for a record without a key; were its lane kept while it runs, it would close
        the next epoch's record of the same place.
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
        """Forget the lane; whoever calls this places its waiting records."""
        del self.lanes[closed.lane]
        self.cancel(closed)
        if closed.key is not None:
            self.keys[closed.key] -= 1
            if not self.keys[closed.key]:
                del self.keys[closed.key]

    def wake_at(self, closed: ClosedLane, due: float) -> None:
        """Wake the lane at ``due`` (monotonic seconds), instead of any earlier appointment."""
        self.cancel(closed)
        self._sequence += 1
        timer = (due, self._sequence, closed)
        closed.due = due
        self._timer_of[closed.lane] = timer
        self._timers.add(timer)

    def cancel(self, closed: ClosedLane) -> None:
        """Forget the lane's appointment, if it has one."""
        closed.due = None
        timer = self._timer_of.pop(closed.lane, None)
        if timer is not None:
            self._timers.remove(timer)

    def next_due(self) -> float | None:
        """When the next lane is due, in monotonic seconds."""
        return self._timers[0][0] if self._timers else None

    def pop_due(self, now: float, most: int) -> list[ClosedLane]:
        """Take up to ``most`` of the lanes that are due, earliest first."""
        due: list[ClosedLane] = []
        while len(due) < most and self._timers and self._timers[0][0] <= now:
            closed = self._timers.pop(0)[2]
            del self._timer_of[closed.lane]
            closed.due = None
            due.append(closed)
        return due

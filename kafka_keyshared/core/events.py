"""What goes into the core, as values; what comes out of it stands in :mod:`.commands`.

Events carry batches. ``Dispatcher.handle(event, now)`` is the only way in; ``now`` is
a monotonic time in seconds.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kafka_keyshared.core.commands import Commit, Publish
from kafka_keyshared.core.dispositions import Failure
from kafka_keyshared.core.lane_identity import Lane
from kafka_keyshared.core.slices import Progress
from kafka_keyshared.model import Record, TopicPartition

# --- reports: what a pool says about leases and states, in the order in which it happened ---


@dataclass(frozen=True, slots=True)
class Ended:
    """Every record of the slice that was started has returned. ``seconds`` is the time it took.

    What was reported before as :class:`SomeEnded`, or has come back, is not meant again.
    Slices are named by their id, records by their index there; ``dropped`` are those that their
    handler dropped.
    """

    slice: int
    seconds: float
    dropped: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class SomeEnded:
    """These records of the slice have returned, and others of it have yet to.

    Only of workers whose records end in any order (``SubscriptionSettings.individually``).
    ``seconds`` is what they took, added up; what failed or was set aside among them has been
    reported before.
    """

    slice: int
    indices: Sequence[int]
    seconds: float
    dropped: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """The record's handler failed; from now on the worker sets aside what follows in its lane.

    What the handler has written into the record is gone again.
    """

    slice: int
    index: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class SetAside:
    """A later record of a failed lane, handed back in order and unrun."""

    slice: int
    index: int


@dataclass(frozen=True, slots=True)
class FencePassed:
    """Everything of these lanes that the worker was given before the fence has been reported."""

    subscription: str
    worker: int
    lanes: tuple[Lane, ...]


@dataclass(frozen=True, slots=True)
class Released:
    """The answer to one :class:`Release`: the state, or why there is none."""

    subscription: str
    worker: int
    number: int
    state: object = None
    error: str | None = None


Report: TypeAlias = Ended | SomeEnded | Failed | SetAside | FencePassed | Released


# --- events ---


@dataclass(frozen=True, slots=True)
class Fetched:
    """A chunk from the client, and the position of each assigned partition after it."""

    records: Sequence[Record]
    received_ends: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Reported:
    """Reports of a pool, oldest first."""

    reports: Sequence[Report]


@dataclass(frozen=True, slots=True)
class Stuck:
    """A record that runs on past its time, because nothing can end it.

    It is all that is left of its slice: what was before it there has returned, what was behind it
    is given back. ``goes_on`` says whether its worker does, with another thread or beside it; else
    the worker does nothing until the record ends. ``dropped`` are those of the slice that their
    handler has dropped so far. Its own end is reported as ever.
    """

    slice: int
    index: int
    goes_on: bool
    dropped: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Recalled:
    """The answer to one :class:`Recall`, whenever the pool can give it; or to one :class:`TimeOut`.

    By the ids of the worker's slices, in the order of the leases: the records, by index and in
    order, that had not started and never will. At least all that were asked for are among them;
    more may be, and they are leased again. What the pool reported before comes before this.
    ``stuck`` are those that a time-out was to end and that still run; everything else of their
    slices that has not started is given back then.
    """

    subscription: str
    worker: int
    slices: Sequence[tuple[int, Sequence[int]]] = ()
    stuck: Sequence[Stuck] = ()


@dataclass(frozen=True, slots=True)
class StartPoint:
    """Where a newly assigned partition starts.

    ``position`` is None when the group has none; then the client's reset policy decides. The log's
    bounds are known only when they were asked for (they are when there is a set to check).
    ``stored`` says that the broker has position and metadata; else they are to be committed.
    ``topic_id`` is the id of the topic (KIP-516), None while it is not known: the metadata are
    believed only where they are of that topic.
    """

    position: int | None
    metadata: str | None = None
    log_start: int | None = None
    log_end: int | None = None
    stored: bool = True
    topic_id: str | None = None


@dataclass(frozen=True, slots=True)
class TopicsIdentified:
    """The ids of the topics (KIP-516) of partitions that began without one."""

    ids: Mapping[TopicPartition, str]


@dataclass(frozen=True, slots=True)
class TextLimitTold:
    """The brokers take so many bytes of commit metadata (``offset.metadata.max.bytes``)."""

    limit: int


@dataclass(frozen=True, slots=True)
class Assigned:
    """Partitions that this member now owns."""

    starts: Mapping[TopicPartition, StartPoint]


@dataclass(frozen=True, slots=True)
class Revoking:
    """Partitions about to be given up: revoked, lost, or to be read from another start.

    Until :class:`Forget` one that is revoked may be committed, one that is lost may not.
    """

    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class Forget:
    """The partitions are gone (revoked or lost): drop what is left without settling it.

    ``progress`` is that of their last commit: what had ended by then has settled, although the rest
    of its slice may still run. Without it, nothing has that is not reported yet.
    """

    partitions: Sequence[TopicPartition]
    lost: bool = False
    progress: Progress = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stopping:
    """Start nothing any more, whatever its partition."""


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """The broker's answer for a dead letter; ``error`` is None once it is acknowledged.

    ``at`` then names the letter's own place in the dead-letter topic, where that is known.
    ``for_good`` says that another try is refused as well, until a person changes something: the
    topic is gone, a right is missing, the letter is too large.
    """

    publish: Publish
    error: str | None = None
    at: str = ""
    for_good: bool = False


@dataclass(frozen=True, slots=True)
class CommitDue:
    """Commit if there is something to. ``progress`` was read before the reports were drained.

    ``final`` sends whatever is known for ``partitions`` (None: all), also when another commit is in
    flight.
    """

    progress: Progress
    partitions: Sequence[TopicPartition] | None = None
    final: bool = False


class CommitResult(enum.StrEnum):
    """What the broker (or the client on its behalf) said to a commit."""

    ACCEPTED = "accepted"
    RETRY = "retry"
    TOO_LARGE = "too_large"
    LOST = "lost"
    DENIED = "denied"


class Right(enum.StrEnum):
    """What a missing right is about. Kafka checks rights on each resource for itself."""

    TOPIC = "topic"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class CommitAnswered:
    """The answer to one :class:`Commit`, for all of its partitions.

    ``right`` is what a ``DENIED`` one lacks.
    """

    commit: Commit
    result: CommitResult
    error: str = ""
    right: Right | None = None


@dataclass(frozen=True, slots=True)
class Beat:
    """The heartbeat, every 500 ms. ``dead_workers`` are those whose thread or process has ended.

    ``wall`` is the time in seconds since 1970; only metrics use it. ``departed`` are workers that
    have gone for good: members that closed. ``late`` counts, by subscription, what members have
    settled since the last one that was theirs no more. ``revived`` are workers that have come to
    life since the last one: who is dead all the same has died since.
    """

    progress: Progress
    dead_workers: Sequence[tuple[str, int]] = ()
    wall: float | None = None
    departed: Sequence[tuple[str, int]] = ()
    late: Mapping[str, int] = field(default_factory=dict)
    revived: Collection[tuple[str, int]] = ()


@dataclass(frozen=True, slots=True)
class Join:
    """A worker is to be added to the subscription, under a name that no other has.

    ``filters`` are the keys that it takes; None: as it was declared, or every key.
    """

    subscription: str
    name: str
    filters: Sequence[str | bytes] | None = None


class LaneAction(enum.StrEnum):
    """What may be ordered of a closed lane."""

    RELEASE = "release"
    DROP = "drop"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True, slots=True)
class LaneOrder:
    """Somebody wants this done with a closed lane; the answer is a :class:`~.commands.LaneAnswer`.

    The lane is that of the ``key``, or the one whose head stands at ``partition`` and ``offset``.
    """

    subscription: str
    action: LaneAction
    key: bytes | None = None
    partition: TopicPartition | None = None
    offset: int = -1


@dataclass(frozen=True, slots=True)
class DlqLimitLifted:
    """Somebody wants these partitions to go on that their dead-letter limit has stopped."""

    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class Resize:
    """The subscription is to have exactly these workers: missing ones join, others leave.

    Who leaves finishes what it runs, and nothing else.
    """

    subscription: str
    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class AssignRange:
    """The slots ``first`` to ``last``, both included, are to be this worker's from now on.

    What others have of them is refused, unless the worker is to ``take_over`` that. Without a
    worker they are to be nobody's, whoever has them.
    """

    subscription: str
    first: int
    last: int
    worker: str | None
    take_over: bool = False


@dataclass(frozen=True, slots=True)
class SetFilters:
    """A worker, there or away, is to take other keys from now on: every key without patterns."""

    subscription: str
    worker: str
    patterns: Sequence[str | bytes]


@dataclass(frozen=True, slots=True)
class Flush:
    """Hand out whatever may run now; sent when a timer is due.

    With ``progress``, as for a commit, look also who is held up, and who has their slots.
    """

    progress: Progress | None = None


Event: TypeAlias = (
    Fetched
    | Reported
    | Recalled
    | Assigned
    | Revoking
    | Forget
    | Stopping
    | DeadLettered
    | CommitDue
    | CommitAnswered
    | Beat
    | Join
    | LaneOrder
    | DlqLimitLifted
    | Resize
    | AssignRange
    | SetFilters
    | TopicsIdentified
    | TextLimitTold
    | Flush
)

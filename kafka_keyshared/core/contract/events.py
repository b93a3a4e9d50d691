"""Events that go into the core, as values.

The commands that come out of it are in :mod:`.commands`. Events carry batches.
``Dispatcher.handle(event, now)`` is the only way in; ``now`` is a monotonic time in seconds.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kafka_keyshared.core.contract.commands import Commit, Publish
from kafka_keyshared.core.contract.outcomes import Failure
from kafka_keyshared.core.contract.slices import Progress
from kafka_keyshared.core.records.lane_identity import Lane
from kafka_keyshared.model import Record, TopicPartition

# --- reports of a pool about leases and states, in the order in which they happened ---


@dataclass(frozen=True, slots=True)
class SliceEnded:
    """Every started record of the slice has returned. ``seconds`` is the time it took.

    Records that were reported before as :class:`SomeEnded`, or that have come back, are not
    included. Slices are named by their id, records by their index there. ``dropped`` are the
    records that their handler dropped.
    """

    slice: int
    seconds: float
    dropped: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class SomeEnded:
    """These records of the slice have returned, and others of it have yet to.

    Only workers whose records end in any order report this (``SubscriptionSettings.individually``).
    ``seconds`` is the sum of their times. Failed or set-aside records among them have been reported
    before.
    """

    slice: int
    indices: Sequence[int]
    seconds: float
    dropped: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """The record's handler failed; the worker now sets aside later records of its lane.

    Changes that the handler made to the record are undone.
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
    """All records of these lanes that the worker got before the fence have been reported."""

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


Report: TypeAlias = SliceEnded | SomeEnded | Failed | SetAside | FencePassed | Released


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
    """A record that runs past its timeout, because nothing can end it.

    It is the only record left of its slice: earlier ones have returned, later ones are given back.
    ``goes_on`` says whether its worker does, with another thread or beside it. Otherwise the worker
    does nothing until the record ends. ``dropped`` are the records of the slice that their handler
    has dropped so far. The end of the stuck record is reported as usual.
    """

    slice: int
    index: int
    goes_on: bool
    dropped: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Recalled:
    """The answer to one :class:`Recall`, at once or later, or to one :class:`TimeOut`.

    ``slices`` has ids of the worker's slices, in the order of the leases. Each id has the indices,
    in order, of records that had not started and never will. They include at least all that were
    asked for; any others are leased again. Earlier reports of the pool come before this. ``stuck``
    are the records that a time-out was to end and that still run. All other unstarted records of
    their slices are given back then.
    """

    subscription: str
    worker: int
    slices: Sequence[tuple[int, Sequence[int]]] = ()
    stuck: Sequence[Stuck] = ()


@dataclass(frozen=True, slots=True)
class StartPoint:
    """The start of a newly assigned partition.

    ``position`` is None when the group has none; then the client's reset policy decides. The log's
    bounds are known only when they were asked for (they are when there is a set to check).
    ``stored`` says that the broker has position and metadata; otherwise they are to be committed.
    ``topic_id`` is the id of the topic (KIP-516), None while it is not known. The metadata is used
    only if it is of that topic.
    """

    position: int | None
    metadata: str | None = None
    log_start: int | None = None
    log_end: int | None = None
    stored: bool = True
    topic_id: str | None = None


@dataclass(frozen=True, slots=True)
class TopicsIdentified:
    """The topic ids (KIP-516) of partitions that began without one."""

    ids: Mapping[TopicPartition, str]


@dataclass(frozen=True, slots=True)
class TextLimitTold:
    """The brokers' limit of commit metadata, in bytes (``offset.metadata.max.bytes``)."""

    limit: int


@dataclass(frozen=True, slots=True)
class Assigned:
    """Partitions that this member now owns."""

    starts: Mapping[TopicPartition, StartPoint]


@dataclass(frozen=True, slots=True)
class Revoking:
    """Partitions about to be given up: revoked, lost, or to be read from another start.

    Until :class:`Forget` a revoked partition may be committed; a lost one may not.
    """

    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class Forget:
    """The partitions are gone (revoked or lost): drop the rest of them without settling it.

    ``progress`` is that of their last commit. Records that had ended by then have settled, although
    the rest of their slice may still run. Without it, only reported records have settled.
    """

    partitions: Sequence[TopicPartition]
    lost: bool = False
    progress: Progress = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stopping:
    """Start no further record, in any partition."""


@dataclass(frozen=True, slots=True)
class DeadLetterAnswer:
    """The broker's answer for a dead letter; ``error`` is None once it is acknowledged.

    ``at`` then names the place of the dead letter in its topic, where that is known. ``for_good``
    says that retries are refused, too, until an operator changes something. Causes are a missing
    topic, a missing right, or a letter that is too large.
    """

    publish: Publish
    error: str | None = None
    at: str = ""
    for_good: bool = False


@dataclass(frozen=True, slots=True)
class CommitDue:
    """Commit if there is anything new. ``progress`` was read before the reports were drained.

    ``final`` sends all that is known for ``partitions`` (None: all), also when another commit is in
    flight.
    """

    progress: Progress
    partitions: Sequence[TopicPartition] | None = None
    final: bool = False


class CommitResult(enum.StrEnum):
    """Result of a commit, from the broker or from the client on its behalf."""

    ACCEPTED = "accepted"
    RETRY = "retry"
    TOO_LARGE = "too_large"
    LOST = "lost"
    DENIED = "denied"


class Right(enum.StrEnum):
    """The resource of a missing right. Kafka checks rights on each resource separately."""

    TOPIC = "topic"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class CommitAnswer:
    """The answer to one :class:`Commit`, for all of its partitions.

    ``right`` is the one that a ``DENIED`` commit lacks.
    """

    commit: Commit
    result: CommitResult
    error: str = ""
    right: Right | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """The heartbeat, every 500 ms. ``dead_workers`` are those whose thread or process has ended.

    ``wall`` is the time in seconds since 1970, for metrics and the times of failures. ``departed``
    are members that closed, and so have gone for good. ``late`` counts, by subscription, records
    that members settled after their lease had ended, since the last heartbeat. ``revived`` are
    workers that have been restarted since the last heartbeat. One that is also in ``dead_workers``
    has died since.
    """

    progress: Progress
    dead_workers: Sequence[tuple[str, int]] = ()
    wall: float | None = None
    departed: Sequence[tuple[str, int]] = ()
    late: Mapping[str, int] = field(default_factory=dict)
    revived: Collection[tuple[str, int]] = ()


@dataclass(frozen=True, slots=True)
class Join:
    """Add a worker to the subscription, under a name that no other worker has.

    ``filters`` are the keys that it takes; None: as it was declared, or every key.
    """

    subscription: str
    name: str
    filters: Sequence[str | bytes] | None = None


class LaneAction(enum.StrEnum):
    """Actions that may be ordered for a closed lane."""

    UNBLOCK = "unblock"
    DROP = "drop"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True, slots=True)
class LaneOrder:
    """An order for a closed lane; the answer is a :class:`~.commands.LaneAnswer`.

    The lane is that of the ``key``, or the one whose head is at ``partition`` and ``offset``.
    """

    subscription: str
    action: LaneAction
    key: bytes | None = None
    partition: TopicPartition | None = None
    offset: int = -1


@dataclass(frozen=True, slots=True)
class DlqLimitLifted:
    """An order to resume partitions that their dead-letter limit has stopped."""

    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class Resize:
    """Give the subscription exactly these workers: missing ones join, others leave.

    A leaving worker finishes the records that it runs, and nothing else.
    """

    subscription: str
    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class AssignRange:
    """Assign the slots ``first`` to ``last``, both included, to this worker.

    Slots of other workers among them are refused, unless ``take_over`` is set. Without a worker the
    slots become unowned, regardless of their owner.
    """

    subscription: str
    first: int
    last: int
    worker: str | None
    take_over: bool = False


@dataclass(frozen=True, slots=True)
class SetFilters:
    """Change the keys that a worker, present or away, takes: every key without patterns."""

    subscription: str
    worker: str
    patterns: Sequence[str | bytes]


@dataclass(frozen=True, slots=True)
class LeaseDue:
    """Lease all records that may run now; sent when a timer is due.

    With ``progress``, as for a commit, also detach long-running records that others wait for.
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
    | DeadLetterAnswer
    | CommitDue
    | CommitAnswer
    | Tick
    | Join
    | LaneOrder
    | DlqLimitLifted
    | Resize
    | AssignRange
    | SetFilters
    | TopicsIdentified
    | TextLimitTold
    | LeaseDue
)

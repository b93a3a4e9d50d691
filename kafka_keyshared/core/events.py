"""What goes into the core and what comes out of it, as values.

Events and commands carry batches. ``Dispatcher.handle(event, now)`` is the only way in; ``now`` is
a monotonic time in seconds.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kafka_keyshared.core import slices
from kafka_keyshared.core.lanes import Lane
from kafka_keyshared.model import About, Record, TopicPartition

Slice: TypeAlias = slices.Slice


class Outcome(enum.Enum):
    """How an attempt that did not settle its record ended."""

    ERROR = "error"
    RETRY = "retry"
    DEAD_LETTER = "dead_letter"
    GIVEN_BACK = "given_back"  # no attempt at all: whoever had the record has not tried


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt, as the worker saw it.

    ``at_ms`` is wall-clock time in milliseconds (it ends in a header); ``jitter`` is drawn in
    [-1, 1] where the failure was seen, so that the core needs no random source; ``after`` is the
    delay in seconds that the handler asked for; ``place`` is the file and line of the user's
    program that it came from, empty where there is none.
    """

    outcome: Outcome
    error_type: str
    message: str
    stack: str
    at_ms: int
    jitter: float = 0.0
    after: float | None = None
    place: str = ""


# --- reports: what a pool says about leases, in the order in which it happened ---


@dataclass(frozen=True, slots=True)
class Ended:
    """Every record of the slice that was started has returned. ``seconds`` is the time it took."""

    slice: Slice
    seconds: float


@dataclass(frozen=True, slots=True)
class Failed:
    """The record's handler failed; from now on the worker sets aside what follows in its lane."""

    slice: Slice
    record: Record
    failure: Failure


@dataclass(frozen=True, slots=True)
class SetAside:
    """A later record of a failed lane, handed back in order and unrun."""

    slice: Slice
    record: Record


@dataclass(frozen=True, slots=True)
class FencePassed:
    """Everything that was leased to the worker before the fence has been reported."""

    subscription: str
    worker: int
    lanes: tuple[Lane, ...]


Report: TypeAlias = Ended | Failed | SetAside | FencePassed


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
class Recalled:
    """The answer to :class:`Recall`: per slice the records that had not started, in order."""

    slices: Sequence[tuple[Slice, list[Record]]]


@dataclass(frozen=True, slots=True)
class StartPoint:
    """Where a newly assigned partition starts.

    ``position`` is None when the group has none; then the client's reset policy decides. The log's
    bounds are known only when they were asked for (they are when there is a set to check).
    ``stored`` says that the broker has position and metadata; else they are to be committed.
    """

    position: int | None
    metadata: str | None = None
    log_start: int | None = None
    log_end: int | None = None
    stored: bool = True


@dataclass(frozen=True, slots=True)
class Assigned:
    """Partitions that this member now owns."""

    starts: Mapping[TopicPartition, StartPoint]


@dataclass(frozen=True, slots=True)
class Revoking:
    """Partitions about to be given up; a commit is still allowed until :class:`Forget`."""

    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class Forget:
    """The partitions are gone (revoked or lost): drop what is left without settling it.

    ``progress`` is that of their last commit: what had ended by then has settled, although the rest
    of its slice may still run. Without it, nothing has that is not reported yet.
    """

    partitions: Sequence[TopicPartition]
    lost: bool = False
    progress: Mapping[Slice, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stopping:
    """Start nothing any more, whatever its partition."""


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """The broker's answer for a dead letter; ``error`` is None once it is acknowledged.

    ``at`` then names the letter's own place in the dead-letter topic, where that is known.
    """

    publish: Publish
    error: str | None = None
    at: str = ""


@dataclass(frozen=True, slots=True)
class CommitDue:
    """Commit if there is something to. ``progress`` was read before the reports were drained.

    It says for each outstanding slice how many of its records had not started. ``final`` sends
    whatever is known for ``partitions`` (None: all), also when another commit is in flight.
    """

    progress: Mapping[Slice, int]
    partitions: Sequence[TopicPartition] | None = None
    final: bool = False


class CommitResult(enum.StrEnum):
    """What the broker (or the client on its behalf) said to a commit."""

    ACCEPTED = "accepted"
    RETRY = "retry"
    TOO_LARGE = "too_large"
    LOST = "lost"
    DENIED = "denied"


@dataclass(frozen=True, slots=True)
class CommitAnswered:
    """The answer to one :class:`Commit`, for all of its partitions."""

    commit: Commit
    result: CommitResult
    error: str = ""


@dataclass(frozen=True, slots=True)
class Beat:
    """The heartbeat, every 500 ms. ``dead_workers`` are those whose thread or process has ended.

    ``wall`` is the time in seconds since 1970; only metrics use it. ``left`` are workers that have
    gone for good: members that closed.
    """

    progress: Mapping[Slice, int]
    dead_workers: Sequence[tuple[str, int]] = ()
    wall: float | None = None
    left: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True, slots=True)
class Flush:
    """Hand out whatever may run now; sent when a timer is due."""


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
    | Flush
)


# --- commands ---


@dataclass(frozen=True, slots=True)
class Lease:
    """Give the slice to its worker."""

    slice: Slice


@dataclass(frozen=True, slots=True)
class Fence:
    """Put a fence for these lanes behind everything already leased to the worker."""

    subscription: str
    worker: int
    lanes: tuple[Lane, ...]


@dataclass(frozen=True, slots=True)
class Recall:
    """Take back every unstarted lease of the worker and answer with :class:`Recalled` at once."""

    subscription: str
    worker: int


@dataclass(frozen=True, slots=True)
class Publish:
    """Send the record to the dead-letter topic and answer with :class:`DeadLettered`."""

    subscription: str
    lane: Lane
    record: Record
    attempts: int
    first: Failure
    last: Failure


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """One partition of a commit: the position, and what is settled beyond it as text.

    ``leader_epoch`` (KIP-320) is that of the record at the position, -1 where none is held there;
    it lets the next owner notice that the log was cut off below the position.
    """

    position: int
    metadata: str
    leader_epoch: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class Commit:
    """Send these positions to the broker, asynchronously."""

    entries: Mapping[TopicPartition, CommitEntry]


@dataclass(frozen=True, slots=True)
class ClientEvents:
    """These of the fetched messages are not records but errors or notices of the client."""

    events: Sequence[Record]


@dataclass(frozen=True, slots=True)
class AssignAt:
    """Start reading the partitions at these positions (None: where the reset policy says)."""

    positions: Mapping[TopicPartition, int | None]


@dataclass(frozen=True, slots=True)
class Pause:
    """Stop fetching from the partitions."""

    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class Resume:
    """Fetch from the partitions again."""

    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class ReplaceWorker:
    """The worker's thread or process is gone: start another under the same name.

    What it was running is reported as failed, once. Its successor goes on behind that record, in
    the slice that was interrupted, and goes on setting aside what follows in failed lanes.
    """

    subscription: str
    worker: int


@dataclass(frozen=True, slots=True)
class AbandonWorker:
    """The worker is given up: report what it was running as failed and its slices as ended.

    Every unstarted record has been recalled from it. Fences that it has not passed are forgotten.
    """

    subscription: str
    worker: int


class Level(enum.IntEnum):
    """How loud a notice is; the numbers are those of the standard library's logging."""

    INFO = 20
    WARNING = 30
    ERROR = 40


@dataclass(frozen=True, slots=True)
class Notice:
    """One line for the log: what, which, how long.

    ``running`` is a worker (subscription, index) that is in a handler: where it stands in there
    belongs behind the text, as far as its pool can see that. ``traceback`` are lines that follow.
    """

    level: Level
    text: str
    running: tuple[str, int] | None = None
    about: About | None = None
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class Halt:
    """Stop the instance: going on would break the contract or cannot succeed."""

    reason: str


Command: TypeAlias = (
    Lease
    | Fence
    | Recall
    | Publish
    | Commit
    | ClientEvents
    | AssignAt
    | Pause
    | Resume
    | ReplaceWorker
    | AbandonWorker
    | Notice
    | Halt
)

"""What comes out of the core, as values: the commands that whoever drives it acts on.

Commands carry batches. What is done for each stands in one place
(:mod:`kafka_keyshared.pools.actor`).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kafka_keyshared.core.dispositions import Failure
from kafka_keyshared.core.lane_identity import Lane
from kafka_keyshared.core.slices import Slice
from kafka_keyshared.model import About, Record, TopicPartition


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
    """Take back unstarted leases of the worker: ``only`` these of its slices, or all.

    The answer is a :class:`~.events.Recalled`, at once or later; until then the worker is given
    nothing.
    """

    subscription: str
    worker: int
    only: Mapping[int, Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class TimeOut:
    """These records of the worker, each by its slice and index there, have run for too long.

    The pool ends them, each a failed attempt, if workers of its kind can be made to end a record.
    The answer is a :class:`~.events.Recalled`, always as mail: behind all that was reported before,
    and until then the worker is given nothing. It names those that it cannot end.
    """

    subscription: str
    worker: int
    running: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Lapse:
    """What these slices have of these partitions is leased no more, although it may still run.

    The partitions have gone: whatever becomes of the records settles nothing any more.
    """

    subscription: str
    worker: int
    slices: tuple[int, ...]
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Publish:
    """Send the record to the dead-letter topic and answer with :class:`~.events.DeadLettered`.

    With ``copy`` it is not settled by that: it goes on to block its lane.
    """

    subscription: str
    lane: Lane
    record: Record
    attempts: int
    first: Failure
    last: Failure
    copy: bool = False


@dataclass(frozen=True, slots=True)
class Dropped:
    """These are settled without their handler having said so; whoever keeps a log notes it.

    By a policy, by order, or with a worker that was given up. It comes before whatever may run
    because they are settled. Of a record that its handler has dropped it may tell as well.
    """

    subscription: str
    records: Sequence[Record]


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """One partition of a commit: the position, and what is settled beyond it as text.

    ``leader_epoch`` (KIP-320) is that of the record at the position, -1 where none is held there;
    it lets the next owner notice that the log was cut off below the position.

    ``settled`` is all that it says apart from the records that run, None where that is not known,
    and ``names`` says whether it names any.
    """

    position: int
    metadata: str
    leader_epoch: int = field(default=-1, compare=False)
    settled: object = field(default=None, compare=False, repr=False)
    names: bool = field(default=False, compare=False, repr=False)

    def only_names_others(self, other: CommitEntry) -> bool:
        """Say whether it differs from another one in nothing but which records it names."""
        same = self.settled is not None and self.settled == other.settled
        return same and (self.names or not other.names)


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
class StartWorker:
    """Start the thread or process of a worker that joins."""

    subscription: str
    worker: int
    name: str


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
    With ``settle`` nothing was recalled: what it has not started is reported as dropped.
    """

    subscription: str
    worker: int
    settle: bool = False


@dataclass(frozen=True, slots=True)
class LaneAnswer:
    """What was ``done`` for a :class:`~.events.LaneOrder`, or why it is ``refused``."""

    done: str = ""
    refused: str = ""


@dataclass(frozen=True, slots=True)
class EndWorker:
    """The worker is gone: close its handler, and end its thread or process. It has nothing left."""

    subscription: str
    worker: int


@dataclass(frozen=True, slots=True)
class Release:
    """Have the worker give up the state of these slots, behind all that it was given.

    The answer is a :class:`~.events.Released` with this number.
    """

    subscription: str
    worker: int
    number: int
    slots: Sequence[int]


@dataclass(frozen=True, slots=True)
class Adopt:
    """Have the worker take over the state of these slots, before whatever it is given from now."""

    subscription: str
    worker: int
    slots: Sequence[int]
    state: object


class Level(enum.IntEnum):
    """How loud a notice is; the numbers are those of the standard library's logging."""

    INFO = 20
    WARNING = 30
    ERROR = 40


@dataclass(frozen=True, slots=True)
class Notice:
    """One line for the log: what, which, how long.

    ``running`` is what a worker runs (subscription, worker, slice, index): where it stands in its
    handler belongs behind the text, as far as its pool can see that. ``traceback`` are lines that
    follow.
    """

    level: Level
    text: str
    running: tuple[str, int, int, int] | None = None
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
    | TimeOut
    | Lapse
    | Publish
    | Dropped
    | Commit
    | ClientEvents
    | AssignAt
    | StartWorker
    | ReplaceWorker
    | AbandonWorker
    | LaneAnswer
    | EndWorker
    | Release
    | Adopt
    | Notice
    | Halt
)

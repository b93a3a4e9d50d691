"""Commands that the core returns to its caller, as values.

Commands carry batches. One module, :mod:`kafka_keyshared.executors.command_interpreter`, acts on
each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kafka_keyshared.core.contract.facts import Fact, HaltCause, OrderResult, Repeats
from kafka_keyshared.core.contract.outcomes import Failure
from kafka_keyshared.core.contract.slices import Slice
from kafka_keyshared.core.records.lane_identity import Lane
from kafka_keyshared.model import Record, TopicPartition


@dataclass(frozen=True, slots=True)
class LeaseSlice:
    """Give the slice to its worker."""

    slice: Slice


@dataclass(frozen=True, slots=True)
class Fence:
    """Put a fence for these lanes behind all records already leased to the worker."""

    subscription: str
    worker: int
    lanes: tuple[Lane, ...]


@dataclass(frozen=True, slots=True)
class Recall:
    """Take back unstarted leases of the worker: ``only`` these of its slices, or all.

    The answer is a :class:`~.events.Recalled`, at once or later. The worker gets no leases until
    then.
    """

    subscription: str
    worker: int
    only: Mapping[int, Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class TimeOut:
    """End these running records of the worker, because each has exceeded its ack timeout.

    Each record is named by its slice and its index there. The pool ends them as failed attempts, if
    its kind of worker can be made to end a record. The answer is a :class:`~.events.Recalled`,
    always as mail, behind all earlier reports. It names the records that the pool cannot end. The
    worker gets no leases until then.
    """

    subscription: str
    worker: int
    running: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Lapse:
    """End the leases of these partitions in these slices, although records may still run.

    The partitions have gone, so the results of these records settle nothing any more.
    """

    subscription: str
    worker: int
    slices: tuple[int, ...]
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Publish:
    """Send the record to the dead-letter topic and answer with :class:`~.events.DeadLetterAnswer`.

    With ``copy`` that does not settle the record; it goes on to block its lane.
    """

    subscription: str
    lane: Lane
    record: Record
    attempts: int
    first: Failure
    last: Failure
    copy: bool = False


@dataclass(frozen=True, slots=True)
class RecordsDropped:
    """Report records that are settled without a verdict of their handler, for a log of them.

    The cause is a policy, an order, or a worker that was given up. The command precedes any record
    that may run because these are settled. It may also name records that their handler dropped.
    """

    subscription: str
    records: Sequence[Record]


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """One partition of a commit: the position, and the settled set beyond it as text.

    ``leader_epoch`` (KIP-320) is that of the record at the position, -1 where none is held there.
    It lets the next owner notice that the log was cut off below the position.

    ``settled`` is the whole content apart from the running records, None where that is not known.
    ``names`` says whether the entry names running records.
    """

    position: int
    metadata: str
    leader_epoch: int = field(default=-1, compare=False)
    settled: object = field(default=None, compare=False, repr=False)
    names: bool = field(default=False, compare=False, repr=False)

    def only_names_others(self, other: CommitEntry) -> bool:
        """Return whether this entry differs from ``other`` only in which records it names."""
        same = self.settled is not None and self.settled == other.settled
        return same and (self.names or not other.names)


@dataclass(frozen=True, slots=True, eq=False)
class Commit:
    """Send these positions to the broker, asynchronously."""

    entries: Mapping[TopicPartition, CommitEntry]


@dataclass(frozen=True, slots=True)
class ClientEvents:
    """Handle fetched messages that are not records but errors or notices of the client."""

    events: Sequence[Record]


@dataclass(frozen=True, slots=True)
class AssignAt:
    """Start reading the partitions at these positions (None: as the reset policy says)."""

    positions: Mapping[TopicPartition, int | None]


@dataclass(frozen=True, slots=True)
class StartWorker:
    """Start the thread or process of a worker that joins."""

    subscription: str
    worker: int
    name: str


@dataclass(frozen=True, slots=True)
class ReplaceWorker:
    """Start another thread or process under the same name, because the worker's has ended.

    The record that it was running is reported as failed, once. Its successor continues behind that
    record in the interrupted slice. It also goes on setting aside later records of failed lanes.
    """

    subscription: str
    worker: int


@dataclass(frozen=True, slots=True)
class AbandonWorker:
    """Give up the worker: report its running record as failed and its slices as ended.

    Every unstarted record has been recalled from it. Fences that it has not passed are forgotten.
    With ``settle`` nothing was recalled; unstarted records are reported as dropped.
    """

    subscription: str
    worker: int
    settle: bool = False


@dataclass(frozen=True, slots=True)
class LaneAnswer:
    """The result ``done`` of a :class:`~.events.LaneOrder`, or why it is ``refused``."""

    done: OrderResult | None = None
    refused: str = ""


@dataclass(frozen=True, slots=True)
class EndWorker:
    """Close the handler of a worker that is gone, and end its thread or process.

    The worker has no leases left.
    """

    subscription: str
    worker: int


@dataclass(frozen=True, slots=True)
class Release:
    """Have the worker release the state of these slots, behind all its leases.

    The answer is a :class:`~.events.Released` with this number.
    """

    subscription: str
    worker: int
    number: int
    slots: Sequence[int]


@dataclass(frozen=True, slots=True)
class Adopt:
    """Have the worker adopt the state of these slots, before any later lease."""

    subscription: str
    worker: int
    slots: Sequence[int]
    state: object


@dataclass(frozen=True, slots=True)
class Notice:
    """Report a fact to the log; with ``repeats`` it is the first of several events."""

    fact: Fact
    repeats: Repeats | None = None


@dataclass(frozen=True, slots=True)
class Halt:
    """Stop the instance: going on would break the contract or cannot succeed."""

    cause: HaltCause


Command: TypeAlias = (
    LeaseSlice
    | Fence
    | Recall
    | TimeOut
    | Lapse
    | Publish
    | RecordsDropped
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

"""Events of a run in their order: everything that a checker sees.

The cluster, clients, pools and processes report them, never the instance under test.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from kafka_keyshared.lab.simulator.timeline import Timeline
from kafka_keyshared.model import TopicPartition

Stored: TypeAlias = Mapping[TopicPartition, tuple[int, str]]
"""Positions and the metadata beside them."""

# --- the logs ---


class Appended(NamedTuple):
    """A record was written. A record without a key is its own lane. ``size`` is in bytes."""

    partition: TopicPartition
    offset: int
    key: bytes | None
    size: int = 0


class Removed(NamedTuple):
    """Compaction or retention has removed records from the log, read or unread."""

    partition: TopicPartition
    offsets: Sequence[int]


class Remade(NamedTuple):
    """The topic was deleted and created again: the log is empty, its offsets start over."""

    partition: TopicPartition


class ReadsOn(NamedTuple):
    """A client reads on in a log that replaced another one, and does not know it.

    Its member has come no further than the part that both logs share.
    """

    member: int
    partition: TopicPartition
    assignment: int


class CutOff(NamedTuple):
    """A leader that lagged behind was elected: the log ends there now, under a higher epoch.

    The records behind it were reported as ``Removed`` before. Their offsets will be assigned again.
    """

    partition: TopicPartition
    end: int


# --- the group, as its clients and its coordinator see it ---


class Joined(NamedTuple):
    """A member begins. ``member`` is a number that no other process of the run ever has."""

    member: int


class Owned(NamedTuple):
    """The group has assigned partitions to a member. Its callback is about to be called.

    ``stored`` are the commits that the broker has for them at that moment. ``too_late`` says that
    the group has expelled the member since, unknown to it.
    """

    member: int
    partitions: Sequence[TopicPartition]
    stored: Stored
    too_late: bool = False


class ReadingFrom(NamedTuple):
    """The member's client reads the partition from there (None: from where the reset policy says).

    ``assignment`` is a number of its own for each time that a partition comes to a member. A seek
    keeps it, except a seek into a log that was replaced in between. The records delivered under one
    number are of one log.
    """

    member: int
    partition: TopicPartition
    position: int | None
    assignment: int


class RevokeBegan(NamedTuple):
    """Partitions are revoked from a member. Its callback is about to be called.

    ``lost``: it is the callback for partitions that have already gone.
    """

    member: int
    partitions: Sequence[TopicPartition]
    lost: bool = False


class PartitionsReleased(NamedTuple):
    """The callback has returned and the partitions no longer belong to the member.

    ``lost``: the group had given them away, or would have, without waiting for the member.
    """

    member: int
    partitions: Sequence[TopicPartition]
    lost: bool


class Expelled(NamedTuple):
    """The group has expelled the member and does not wait for it, whether or not it knows."""

    member: int


class CameBack(NamedTuple):
    """A static member has taken over from another process of its instance."""

    member: int


class Delivered(NamedTuple):
    """The client has returned these records, all of one partition and one assignment.

    The assignment may be over: a rebalance may come in the very call that took them off the queue.
    """

    member: int
    partition: TopicPartition
    offsets: Sequence[int]
    assignment: int


class Misplaced(NamedTuple):
    """The member's client has failed or is out of range: it needs a position to read on.

    Returned records of these partitions that the member has not used come again after
    ``ReadingFrom``.
    """

    member: int
    partitions: Sequence[TopicPartition]


class OwnerWaits(NamedTuple):
    """The member's owner waits for an answer of the cluster, and does nothing else."""

    member: int


class OwnerResumed(NamedTuple):
    """The member's owner continues, with an answer or without."""

    member: int


class CommitRequested(NamedTuple):
    """The member has sent a commit through its client. ``number`` counts the commits of the run."""

    member: int
    number: int
    entries: Stored


class CommitStored(NamedTuple):
    """The broker has stored these entries of the commit, over any earlier ones."""

    member: int
    number: int
    entries: Stored


class CommitTold(NamedTuple):
    """The member learns the result of the commit: a value of ``CommitResult``."""

    member: int
    number: int
    result: str


# --- the workers ---


class HandedOver(NamedTuple):
    """A worker was leased these records, in this order: (partition, offset, assignment)."""

    member: int
    subscription: str
    worker: int
    records: Sequence[tuple[TopicPartition, int, int]]


class Recalling(NamedTuple):
    """A worker is to give back the records that it has not started, and cannot answer at once.

    Until it has answered it may start leased records of any partition.
    """

    member: int
    subscription: str
    worker: int


class RecallAnswered(NamedTuple):
    """The worker has answered the recall. The returned records were ``TakenBack`` just before."""

    member: int
    subscription: str
    worker: int


class TakenBack(NamedTuple):
    """Leased records come back unrun: recalled, or set aside in their lane.

    Records of an evicted worker come back too. Or they are ``written_off`` and count as done, if
    that is configured.
    """

    member: int
    subscription: str
    worker: int
    records: Sequence[tuple[TopicPartition, int, int]]
    written_off: bool = False


class Began(NamedTuple):
    """A worker has called the handler with a record."""

    member: int
    subscription: str
    worker: int
    partition: TopicPartition
    offset: int
    assignment: int


class WentOn(NamedTuple):
    """The worker goes on with other records beside this one, which still runs."""

    member: int
    subscription: str
    worker: int
    partition: TopicPartition
    offset: int
    assignment: int


class HandlerEnded(NamedTuple):
    """The handler call with the record has ended, with an outcome of :data:`OUTCOMES`."""

    member: int
    subscription: str
    worker: int
    partition: TopicPartition
    offset: int
    assignment: int
    outcome: str


OUTCOMES = (
    *("done", "dropped", "failed", "retry", "dead_letter"),
    *("given_back", "put_off", "died"),
)
"""Outcomes of a handler call.

In this order: success, drop, error, request for another attempt, request for a dead letter. Then
returned without an attempt (members do that), postponed, ended with the thread or process.
"""


class WorkerDied(NamedTuple):
    """The thread or process of a worker has ended without notice.

    If it was running a record, that has ``HandlerEnded`` before.
    """

    member: int
    subscription: str
    worker: int


# --- dead letters ---


class LetterSent(NamedTuple):
    """A dead letter is in flight."""

    member: int
    subscription: str
    partition: TopicPartition
    offset: int
    assignment: int


class LetterStored(NamedTuple):
    """The dead-letter topic has it, whether or not the member ever learns of that."""

    member: int
    subscription: str
    partition: TopicPartition
    offset: int
    assignment: int


class LetterTold(NamedTuple):
    """The member learns the result of the letter; ``error`` is empty for an acknowledgement."""

    member: int
    subscription: str
    partition: TopicPartition
    offset: int
    assignment: int
    error: str


# --- closed lanes ---


class LaneOrdered(NamedTuple):
    """An order for a lane was carried out: ``unblock``, ``drop``, ``dead_letter``.

    The lane is that of its first record. Without one (offset -1) it is the lane of the key. None is
    the one lane of all records without a key.
    """

    member: int
    subscription: str
    action: str
    partition: TopicPartition
    offset: int
    key: bytes | None


# --- processes, and the run itself ---


class StopRequested(NamedTuple):
    """The member is to stop in order."""

    member: int


class Gone(NamedTuple):
    """The member has ended: ``stopped`` (in order, ``clean`` or not), ``killed`` or ``halted``."""

    member: int
    how: str
    clean: bool
    reason: str = ""


class Healed(NamedTuple):
    """Faults have stopped. From here on everything has to finish."""


class Finished(NamedTuple):
    """The run is over."""


Listener: TypeAlias = Callable[[Any], None]


class History:
    """Passes events on. If ``summed``, it also computes a digest by which runs can be compared.

    The digest takes a third of the time, and runs of many seeds do not need it.
    """

    def __init__(self, timeline: Timeline, *, summed: bool = True) -> None:
        self.timeline = timeline
        self.count = 0
        self._summed = summed
        self._listeners: dict[type[Any], list[Listener]] = defaultdict(list)
        self._digest = hashlib.blake2b(digest_size=16)

    def listen(self, kind: type[Any], listener: Listener) -> None:
        """Call the listener with every event of that kind."""
        self._listeners[kind].append(listener)

    def tell(self, happening: Any) -> None:
        """Record one of the events above, and pass it on."""
        self.count += 1
        if self._summed:
            self._digest.update(f"{self.timeline.now:.9f} {happening!r}\n".encode())
        for listener in self._listeners.get(type(happening), ()):
            listener(happening)

    def digest(self) -> str:
        """Return the digest of all events and their times; '' if it is not summed."""
        return self._digest.hexdigest() if self._summed else ""

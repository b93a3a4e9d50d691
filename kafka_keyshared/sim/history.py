"""What happened, as values in the order in which it happened: all that a checker gets to see.

The cluster, the clients, the pools and the processes tell of it, never the instance under test.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from kafka_keyshared.model import TopicPartition
from kafka_keyshared.sim.timeline import Timeline

Stored: TypeAlias = Mapping[TopicPartition, tuple[int, str]]
"""Positions and the metadata beside them."""

# --- the logs ---


class Appended(NamedTuple):
    """A record was written. What has no key is its own lane. ``size`` is in bytes."""

    partition: TopicPartition
    offset: int
    key: bytes | None
    size: int = 0


class Removed(NamedTuple):
    """Records are gone from the log, by compaction or retention, read or unread."""

    partition: TopicPartition
    offsets: Sequence[int]


class Remade(NamedTuple):
    """The topic was deleted and made again: the log is empty, its offsets begin anew."""

    partition: TopicPartition


class ReadsOn(NamedTuple):
    """A client goes on, unknowing, in the log that was made of another one.

    Its member has come no further than that which both have.
    """

    member: int
    partition: TopicPartition
    assignment: int


class CutOff(NamedTuple):
    """A leader that lagged behind was elected: the log ends there now, under a higher epoch.

    What was behind is told as ``Removed`` before; its offsets will be given out again.
    """

    partition: TopicPartition
    end: int


# --- the group, as its clients and its coordinator see it ---


class Joined(NamedTuple):
    """A member that begins. ``member`` is a number that no other process of the run ever has."""

    member: int


class Owned(NamedTuple):
    """The group has given a member partitions; its callback is about to be called.

    ``stored`` is what the broker has for each at that moment, as far as it has anything.
    ``too_late`` says that the group has given the member up since it said so, unheard by it.
    """

    member: int
    partitions: Sequence[TopicPartition]
    stored: Stored
    too_late: bool = False


class Reading(NamedTuple):
    """The member's client reads the partition from there (None: where the reset policy says).

    ``assignment`` is a number of its own for each time that a partition comes to a member. A seek
    keeps it, but not one into a log that was made anew meanwhile: what is delivered under a number
    is of one log.
    """

    member: int
    partition: TopicPartition
    position: int | None
    assignment: int


class Revoking(NamedTuple):
    """Partitions are taken from a member; its callback is about to be called.

    ``lost``: it is the callback for partitions that have gone already.
    """

    member: int
    partitions: Sequence[TopicPartition]
    lost: bool = False


class Released(NamedTuple):
    """The callback has returned and the partitions are the member's no more.

    ``lost``: the group had given them away, or would have, without waiting for the member.
    """

    member: int
    partitions: Sequence[TopicPartition]
    lost: bool


class Expelled(NamedTuple):
    """The group has given the member up and waits for it no more, whether or not it knows."""

    member: int


class CameBack(NamedTuple):
    """The member is a static one, and has taken over what another process had by its instance."""

    member: int


class Delivered(NamedTuple):
    """The client has returned these records, all of one partition and one assignment.

    It may be over by then: a rebalance may come in the very call that took them off the queue.
    """

    member: int
    partition: TopicPartition
    offsets: Sequence[int]
    assignment: int


class Misplaced(NamedTuple):
    """The member's client has failed, or is out of range: it is to be told where to read on.

    What it has returned of these, and the member has not used, comes again after ``Reading``.
    """

    member: int
    partitions: Sequence[TopicPartition]


class Waiting(NamedTuple):
    """The member's owner waits for an answer of the cluster, and does nothing else meanwhile."""

    member: int


class Answered(NamedTuple):
    """The member's owner goes on, with that answer or without."""

    member: int


class CommitSent(NamedTuple):
    """The member has told its client to commit. ``number`` counts the commits of the run."""

    member: int
    number: int
    entries: Stored


class CommitStored(NamedTuple):
    """The broker has these entries of the commit now, whatever it had before."""

    member: int
    number: int
    entries: Stored


class CommitTold(NamedTuple):
    """The member is told what became of the commit: a word of ``CommitResult``."""

    member: int
    number: int
    result: str


# --- the workers ---


class HandedOver(NamedTuple):
    """A worker was given these records, in this order: (partition, offset, assignment)."""

    member: int
    subscription: str
    worker: int
    records: Sequence[tuple[TopicPartition, int, int]]


class Recalling(NamedTuple):
    """A worker is asked for what it has not started, and cannot answer at once.

    Until it has answered it may start what it has, of whatever partition.
    """

    member: int
    subscription: str
    worker: int


class Recalled(NamedTuple):
    """The worker has answered that; what it gives back was ``TakenBack`` just before."""

    member: int
    subscription: str
    worker: int


class TakenBack(NamedTuple):
    """This of what a worker was given comes back unrun: recalled, or set aside in its lane.

    So does what a worker has left that is given up on; or it is ``written_off``, and counts as
    done, where that is wanted.
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
    """The worker goes on with others beside this record, which still runs."""

    member: int
    subscription: str
    worker: int
    partition: TopicPartition
    offset: int
    assignment: int


class Ended(NamedTuple):
    """The handler is out of the record, with an outcome of :data:`OUTCOMES`."""

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
"""How a handler ends: well, by dropping the record, by an error, by asking for another attempt or
for a dead letter, without having tried (members do), by putting the record off, or with its thread
or process."""


class WorkerDied(NamedTuple):
    """The thread or process of a worker has ended without a word.

    If it was in a record, that has ``Ended`` before.
    """

    member: int
    subscription: str
    worker: int


# --- dead letters ---


class LetterSent(NamedTuple):
    """A dead letter is on its way."""

    member: int
    subscription: str
    partition: TopicPartition
    offset: int
    assignment: int


class LetterStored(NamedTuple):
    """The dead-letter topic has it, whether or not the member ever hears of that."""

    member: int
    subscription: str
    partition: TopicPartition
    offset: int
    assignment: int


class LetterTold(NamedTuple):
    """The member is told what became of the letter; ``error`` is empty for an acknowledgement."""

    member: int
    subscription: str
    partition: TopicPartition
    offset: int
    assignment: int
    error: str


# --- closed lanes ---


class LaneOrdered(NamedTuple):
    """Somebody has ordered that of a lane, and it was done: ``release``, ``drop``, ``dead_letter``.

    The lane is that of its first record; without one (offset -1) that of the key, of which None is
    the one lane of all that have no key.
    """

    member: int
    subscription: str
    action: str
    partition: TopicPartition
    offset: int
    key: bytes | None


# --- processes, and the run itself ---


class Stopping(NamedTuple):
    """The member is told to stop in order."""

    member: int


class Gone(NamedTuple):
    """The member is no more: ``stopped`` (in order, ``clean`` or not), ``killed`` or ``halted``."""

    member: int
    how: str
    clean: bool
    reason: str = ""


class Healed(NamedTuple):
    """Faults have stopped: from here everything has to finish."""


class Finished(NamedTuple):
    """The run is over."""


Listener: TypeAlias = Callable[[Any], None]


class History:
    """Passes on what happens; where it is ``summed``, sums it up so that runs can be compared.

    The sum takes a third of the time, and of many seeds nobody asks for it.
    """

    def __init__(self, timeline: Timeline, *, summed: bool = True) -> None:
        self.timeline = timeline
        self.count = 0
        self._summed = summed
        self._listeners: dict[type[Any], list[Listener]] = defaultdict(list)
        self._digest = hashlib.blake2b(digest_size=16)

    def listen(self, kind: type[Any], listener: Listener) -> None:
        """Call the listener with whatever of that kind happens."""
        self._listeners[kind].append(listener)

    def tell(self, happening: Any) -> None:
        """Take note of one of the values above, and pass it on."""
        self.count += 1
        if self._summed:
            self._digest.update(f"{self.timeline.now:.9f} {happening!r}\n".encode())
        for listener in self._listeners.get(type(happening), ()):
            listener(happening)

    def digest(self) -> str:
        """Return the sum of all that has happened, and of when; nothing where it is not summed."""
        return self._digest.hexdigest() if self._summed else ""

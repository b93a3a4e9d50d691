"""Further events of a history: workers, orders and faults."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from kafka_keyshared.model import TopicPartition


class WorkerJoined(NamedTuple):
    """One more worker was started for a subscription, under a name."""

    member: int
    subscription: str
    worker: int
    name: str


class StoppedJoining(NamedTuple):
    """A member stops while its first JoinGroup is in flight. It does not know its id yet."""

    member: int


class LeftGroup(NamedTuple):
    """A member has closed its client and reports that it has left its group."""

    member: int


class PendingGivenUp(NamedTuple):
    """The coordinator has given up a member that never joined again with its id (KIP-394).

    Until then no rebalance of the group could complete.
    """

    member: int


class LetterReconnected(NamedTuple):
    """A dead letter found its producer's connection closed, after it had been idle."""

    member: int


class FiltersDeclared(NamedTuple):
    """By order, a worker of that name takes the keys that these patterns match. It may be away."""

    member: int
    subscription: str
    name: str
    patterns: Sequence[str | bytes]


class WorkerLeft(NamedTuple):
    """A worker has begun to leave by itself: a member that closes."""

    member: int
    subscription: str
    worker: int


class WorkersResized(NamedTuple):
    """By order, a subscription has these workers and no others from now on."""

    member: int
    subscription: str
    names: Sequence[str]


class LimitLifted(NamedTuple):
    """By order, partitions go on that their dead-letter limit had stopped."""

    member: int
    partitions: Sequence[TopicPartition]


class LogsAsked(NamedTuple):
    """The member has queried the bounds of these logs.

    ``answered`` are the partitions with an answer in time.
    """

    member: int
    partitions: Sequence[TopicPartition]
    answered: Collection[TopicPartition]


class MetadataTaken(NamedTuple):
    """From now on brokers accept this much metadata beside a position, including the final NUL."""

    most: int


class LimitHeard(NamedTuple):
    """A member has learned how much metadata brokers accept."""

    member: int
    most: int


class LimitUnheard(NamedTuple):
    """A member has waited in vain for the metadata limit, and begins without it."""

    member: int


class TextCopied(NamedTuple):
    """A tool has overwritten a stored text of the group. The position is unchanged.

    ``kind`` says which part of the text is of another log.
    """

    partition: TopicPartition
    position: int
    text: str
    kind: str


class EndedByARecord(NamedTuple):
    """A record is about to end the process of the member that runs it."""

    member: int
    partition: TopicPartition
    offset: int


class KeysAway(NamedTuple):
    """From now on key functions cannot read some keys, or they can again.

    ``unknown`` says that they do not know the schema of some records.
    """

    away: bool
    unknown: bool = False


class RightsChanged(NamedTuple):
    """From now on the brokers refuse these: fetches and commits by topic, or the whole group."""

    fetches: tuple[str, ...]
    commits: tuple[str, ...]
    group: bool


class DependencyAway(NamedTuple):
    """From now on every handler call fails or postpones its record, or the outage is over."""

    away: bool


class HealthLooked(NamedTuple):
    """The health that the members report is checked."""


class ReleaseFailed(NamedTuple):
    """The handler of a worker raised when it was to release the state of slots."""

    member: int
    subscription: str
    worker: int


class CallbackRaised(NamedTuple):
    """A rebalance callback has raised. The member commits nothing more, and ends."""

    member: int


BY_A_CALLBACK = "a callback raised"
"""Beginning of the reason of a process that ended because it could not trust its own state."""

"""More of what a history tells: workers that come and go, and what somebody orders."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from kafka_keyshared.model import TopicPartition


class WorkerJoined(NamedTuple):
    """One more worker has been started for a subscription, under a name."""

    member: int
    subscription: str
    worker: int
    name: str


class StoppedJoining(NamedTuple):
    """A member stops whose first JoinGroup is on its way: it does not know its id yet."""

    member: int


class LeftGroup(NamedTuple):
    """A member has closed its client and says that it is out of its group."""

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
    """A worker by that name takes the keys that these patterns match, there or not: by order."""

    member: int
    subscription: str
    name: str
    patterns: Sequence[str | bytes]


class WorkerLeft(NamedTuple):
    """A worker has begun to go, by its own will: a member that closes."""

    member: int
    subscription: str
    worker: int


class Resized(NamedTuple):
    """A subscription is to have these workers and no others: by order, and from now on."""

    member: int
    subscription: str
    names: Sequence[str]


class LimitLifted(NamedTuple):
    """Partitions go on, by order, that their dead-letter limit had stopped."""

    member: int
    partitions: Sequence[TopicPartition]


class LogsAsked(NamedTuple):
    """The member has asked where the logs of these partitions begin and end.

    ``answered`` are those of which it has heard that in time.
    """

    member: int
    partitions: Sequence[TopicPartition]
    answered: Collection[TopicPartition]


class MetadataTaken(NamedTuple):
    """From now on brokers take so much metadata beside a position, the final NUL included."""

    most: int


class LimitHeard(NamedTuple):
    """A member has been told how much metadata brokers take."""

    member: int
    most: int


class LimitUnheard(NamedTuple):
    """A member has waited for the limit of metadata in vain, and begins without knowing it."""

    member: int


class TextCopied(NamedTuple):
    """A tool has written a text over what is stored of the group; the position is as it was.

    ``kind`` says what of the text is of another log.
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
    """From now on key functions cannot read some keys just now, or they can again.

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
    """From now on every call of a handler fails or puts its record off, or that is over."""

    away: bool


class HealthLooked(NamedTuple):
    """Somebody looks at what the members say of themselves."""


class ReleaseFailed(NamedTuple):
    """A worker was to release the state of slots, and its handler has raised."""

    member: int
    subscription: str
    worker: int


class CallbackRaised(NamedTuple):
    """A callback of a rebalance has raised: the member commits nothing any more, and goes."""

    member: int


BY_A_CALLBACK = "a callback raised"
"""So begins the reason of a process that has gone because it could not trust its own state."""

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


class EndedByARecord(NamedTuple):
    """A record is about to end the process of the member that runs it."""

    member: int
    partition: TopicPartition
    offset: int


class KeysAway(NamedTuple):
    """From now on key functions cannot read some keys just now, or they can again."""

    away: bool


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

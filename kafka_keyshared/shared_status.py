"""The part of a status about workers that share what waits: shards, hot keys, detached records."""

from __future__ import annotations

import msgspec

from kafka_keyshared.model import TopicPartition


class HotKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key whose slot is a shard of its own, because it had most of a long queue.

    ``key`` is its text as in a :class:`~kafka_keyshared.status.RunningRecord`. ``waiting`` records
    of it wait, from these ``partitions``, the one with most of them first. Its ``share`` is that of
    the records that arrived in the last half minute (0 to 1). ``rate`` is how many arrive per
    second, or were written per second by the timestamps of those that wait, if that is more.
    ``capacity`` is how many run per second while others wait; None until that is known. It has been
    hot for ``seconds``.
    """

    slot: int
    key: str | None
    partitions: tuple[TopicPartition, ...]
    waiting: int
    share: float
    rate: float
    capacity: float | None
    seconds: float


class DetachedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record that runs for so long that all but its key went on without its worker.

    It has been running on ``worker`` for ``seconds``, and ``waiting`` records of its key wait for
    its end. ``key`` and ``slot`` are as those of a :class:`~kafka_keyshared.status.RunningRecord`.
    """

    topic: str
    partition: int
    offset: int
    worker: str
    seconds: float
    waiting: int
    key: str | None = None
    slot: int | None = None


class SharedStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What workers that share what waits have in common.

    There are so many ``shards``: ``ready`` ones have records that any worker may take, and ``held``
    ones are leased to a worker. ``hot`` is how many keys are hot; ``hot_keys`` are the first five,
    the one with most waiting records first. ``detached`` are the records that run detached, the one
    that has been running for longest first.
    """

    shards: int
    ready: int
    held: int
    hot: int = 0
    hot_keys: tuple[HotKey, ...] = ()
    detached: tuple[DetachedRecord, ...] = ()

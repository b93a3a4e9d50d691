"""The status of shared queues: shards, hot keys, detached records."""

from __future__ import annotations

import msgspec

from kafka_keyshared.model import TopicPartition


class HotKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key whose slot is a shard of its own, because it had most of a long queue.

    - ``key`` is its text as in a :class:`~kafka_keyshared.status.RunningRecord`.
    - ``waiting`` is its number of waiting records, from these ``partitions``, the one with most of
      them first.
    - ``share`` is its share (0 to 1) of the records that arrived in the last half minute.
    - ``rate`` is its arrivals per second. If it is higher, it is the number written per second
      according to the timestamps of the waiting records.
    - ``capacity`` is how many run per second while others wait; None until that is known.
    - ``seconds`` is for how long it has been hot.
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
    """A record that has run so long that other workers took over everything but its key.

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
    """The shards of a subscription whose workers share queues.

    ``shards`` is their number: ``ready`` ones have records that any worker may take, and ``held``
    ones are leased to a worker. ``hot`` is the number of hot keys. ``hot_keys`` are the first five,
    the one with most waiting records first. ``detached`` are the detached records, the longest
    running first.
    """

    shards: int
    ready: int
    held: int
    hot: int = 0
    hot_keys: tuple[HotKey, ...] = ()
    detached: tuple[DetachedRecord, ...] = ()

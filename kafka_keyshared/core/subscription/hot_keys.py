"""Arrival and processing rates of hot keys.

A hot key is a key whose slot is a shard of its own (:mod:`kafka_keyshared.core.workers.shards`).
Both rates are computed from the lengths of its queues at two heartbeats, so they cost nothing per
record.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from kafka_keyshared.core.keys.extraction import OwnKeys
from kafka_keyshared.core.keys.key_text import key_text
from kafka_keyshared.core.lanes.closed import ClosedLanes
from kafka_keyshared.core.lanes.single_inflight import OneLease
from kafka_keyshared.core.records.lane_identity import Lane
from kafka_keyshared.core.workers.shards import Shard, SharedRow
from kafka_keyshared.core.workers.worker import Worker
from kafka_keyshared.hashing import SLOTS
from kafka_keyshared.model import Record, TopicPartition, partition_of
from kafka_keyshared.shared_status import HotKey

FADES = 30.0
"""Time constant in seconds: older measurements count for little."""

BUSY_LEAST = 1.0
"""Seconds of waiting records after which the capacity of a key is known."""

SPAN_LEAST = 1.0
"""Seconds that the timestamps of waiting records must span to give a rate."""

LASTS = 2.0
"""Seconds: a hot key's queue that lasts longer counts as waiting for its running record."""

NAMED = 5
"""Hot keys in a status: those with the most waiting records."""

SAMPLE = 64
"""Waiting records of one key that a status samples."""


class Queues(Protocol):
    """The places of a subscription in which records of a hot key can be."""

    keys: OwnKeys
    closed: ClosedLanes
    one_lease: OneLease | None
    workers: dict[int, Worker]


class Heat:
    """The rates of one hot key, with the shard of its slot.

    The sums fade with :data:`FADES`. In ``seconds`` seconds ``came`` records arrived, of ``every``
    in all shards. During ``busy`` of those seconds records waited all the time, and ``done`` of
    them were run. ``lanes`` are the lanes in which records of the slot were seen.

    Three counts are as of the last heartbeat. ``waiting`` records were in the shard, ``queued``
    records in the shard and in closed lanes. ``left`` adds the leased records to ``queued``.
    ``lasts`` says that the queued records last longer than :data:`LASTS`.
    """

    __slots__ = (
        *("busy", "came", "done", "every", "lanes", "lasts", "left", "queued", "seconds"),
        *("shard", "since", "waiting"),
    )

    def __init__(self, shard: Shard, since: float) -> None:
        self.shard = shard
        self.since = since
        self.lanes: set[Lane] = set()
        self.waiting = self.queued = len(shard.records)
        self.left = self.waiting
        self.lasts = False
        self.seconds = self.busy = self.came = self.done = self.every = 0.0

    def learn(self, sub: Queues) -> None:
        """Note the lanes of the first and the last record that wait in the shard."""
        records = self.shard.records
        self.lanes.update(map(sub.keys.lane, (*records[:1], *records[-1:])))

    def beat(self, queued: int, every: int, seconds: float) -> None:
        """Add the changes since the last heartbeat.

        ``queued`` is the current number of queued records. ``every`` is the number of records that
        have arrived in all shards since the last heartbeat. ``seconds`` is the time since then.
        """
        shard, fade = self.shard, math.exp(-seconds / FADES)
        waiting = len(shard.records)
        # Taken records are leased or wait in a closed lane, and some of them came back.
        came = max(0, waiting - self.waiting + shard.taken - shard.back)
        self.seconds = self.seconds * fade + seconds
        self.came = self.came * fade + came
        self.every = self.every * fade + every
        self.busy *= fade
        self.done *= fade
        left = queued + shard.leased
        done = self.left + came - left
        if queued and self.queued:
            self.busy += seconds
            self.done += done
        self.lasts = queued * seconds > LASTS * done
        self.waiting, self.queued, self.left = waiting, queued, left

    @property
    def rate(self) -> float:
        """Return how many records arrived per second."""
        return self.came / self.seconds if self.seconds else 0.0

    def share(self, rate: float) -> float:
        """Return the key's share of all arrivals if its records arrive at this rate.

        Before the first heartbeat other arrivals are unknown, and the share is 1.
        """
        others = max(0.0, self.every - self.came) / self.seconds if self.seconds else 0.0
        return rate / (rate + others) if rate + others else 1.0

    @property
    def capacity(self) -> float | None:
        """Return the records run per second while others wait; None until it is known."""
        return max(0.0, self.done / self.busy) if self.busy >= BUSY_LEAST else None


class HotKeys:
    """The hot keys of a subscription whose workers share records, by slot."""

    def __init__(self) -> None:
        self.heats: dict[int, Heat] = {}
        self._at = 0.0
        self._came = 0

    def beat(self, sub: Queues, shared: SharedRow, now: float) -> Collection[int]:
        """Measure every hot key; return the slots with records waiting in closed lanes.

        The keys whose queues last too long become the slow ones.
        """
        seconds, self._at = now - self._at, now
        every, self._came = shared.came - self._came, shared.came
        elsewhere = set()
        for slot, heat in self.heats.items():
            records = heat.shard.records
            heat.learn(sub)
            queued = len(records) + sum(map(len, _behind(sub, heat)))
            heat.beat(queued, every, seconds)
            if queued > len(records):
                elsewhere.add(slot)
        shared.measured(heat.shard for heat in self.heats.values() if heat.lasts)
        return elsewhere

    def follow(self, sub: Queues, shared: SharedRow, now: float) -> None:
        """Add slots that were split off since the last call, and drop those that are gone."""
        before, self.heats = self.heats, {}
        for slot, shard in shared.single.items():
            heat = before.get(slot)
            if heat is None or heat.shard is not shard:
                heat = Heat(shard, now)
                heat.learn(sub)
                heat.left += _leased(sub, shard)
            self.heats[slot] = heat

    def shown(self, sub: Queues, now: float) -> tuple[HotKey, ...]:
        """Return the hottest keys for the status, the one with most waiting records first."""
        found = []
        for slot, heat in self.heats.items():
            waiting = [*heat.shard.records]
            for records in _behind(sub, heat):
                waiting += records
            found.append((len(waiting), slot, heat, waiting))
        found.sort(key=lambda each: (-each[0], each[1]))
        return tuple(_hot_key(*each, now) for each in found[:NAMED])


def _hot_key(count: int, slot: int, heat: Heat, waiting: Sequence[Record], now: float) -> HotKey:
    rate = max(heat.rate, written(waiting))
    return HotKey(
        slot=slot % SLOTS,
        key=key_text(heat.shard.key),
        partitions=tuple(_partitions(waiting)),
        waiting=count,
        share=heat.share(rate),
        rate=rate,
        capacity=heat.capacity,
        seconds=now - heat.since,
    )


def _leased(sub: Queues, shard: Shard) -> int:
    """Return how many records of a hot key are leased when its slot is split off.

    At that moment the shard counts one for each slice.
    """
    if shard.at is None:
        return 0
    key_of, slices = sub.keys.key, sub.workers[shard.at].slices.values()
    records = [each for leased in slices for each in leased.records()]
    return sum(1 for each in records if key_of(each) == shard.key)


def _behind(sub: Queues, heat: Heat) -> Iterator[Collection[Record]]:
    """Yield the records of a hot key in closed lanes and behind the one lease of its lane."""
    for lane in heat.lanes:
        closed = sub.closed.get(lane)
        if closed is not None:
            yield closed.aside
            yield closed.queue
        if sub.one_lease is not None:
            yield sub.one_lease.behind(lane)


def _sample(records: Sequence[Record]) -> Sequence[Record]:
    return records[:: max(1, len(records) // SAMPLE)]


def _partitions(records: Sequence[Record]) -> Iterator[TopicPartition]:
    """Yield the partitions of the records, the one with the most first."""
    counts = Counter(map(partition_of, _sample(records)))
    yield from (partition for partition, _ in counts.most_common())


def written(records: Sequence[Record]) -> float:
    """Return how many of these were written per second, by timestamp; 0.0 if unknown.

    While a partition is held back, records arrive only as fast as they run. The timestamps of
    waiting records show how fast the key really grows.
    """
    times = [at for kind, at in (each.timestamp() for each in _sample(records)) if kind]
    span = (max(times) - min(times)) / 1000 if times else 0.0
    return (len(records) - 1) / span if span >= SPAN_LEAST else 0.0

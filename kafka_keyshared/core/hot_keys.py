"""Hot keys: how fast their records arrive, and how fast one worker runs them.

A hot key is one whose slot is a shard of its own (:mod:`.shards`). Both rates follow from the
lengths of its queues at two heartbeats, so they cost nothing per record.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from kafka_keyshared.core.key_text import key_text
from kafka_keyshared.core.shards import Shard, SharedRow
from kafka_keyshared.hashing import SLOTS
from kafka_keyshared.model import Record, TopicPartition, partition_of
from kafka_keyshared.shared_status import HotKey

if TYPE_CHECKING:
    from kafka_keyshared.core.lanes import Lane
    from kafka_keyshared.core.subscription import Subscription

FADES = 30.0
"""Seconds: what was measured longer ago than this counts for little."""

BUSY_LEAST = 1.0
"""Seconds for which records of a key have to wait until its capacity is known."""

SPAN_LEAST = 1.0
"""Seconds between the timestamps of waiting records, for them to tell a rate."""

NAMED = 5
"""Hot keys that a status names: those of which most records wait."""

SAMPLE = 64
"""Waiting records of one key that a status looks at."""


class Heat:
    """The rates of one hot key, with the shard of its slot.

    The sums fade with :data:`FADES`. In ``seconds`` seconds ``came`` records arrived, of ``every``
    in all shards. In ``busy`` of those seconds records waited all the time, and ``done`` of them
    were run. ``lanes`` are the lanes that records of the slot were seen in. At the last heartbeat
    ``waiting`` records were in the shard, and ``left`` there and in closed lanes.
    """

    __slots__ = (
        *("busy", "came", "done", "every", "lanes", "left", "seconds"),
        *("shard", "since", "waiting"),
    )

    def __init__(self, shard: Shard, since: float) -> None:
        self.shard = shard
        self.since = since
        self.lanes: set[Lane] = set()
        self.waiting = self.left = len(shard.records)
        self.seconds = self.busy = self.came = self.done = self.every = 0.0

    def learn(self, sub: Subscription) -> None:
        """Note the lanes of the first and the last record that wait in the shard."""
        records = self.shard.records
        self.lanes.update(map(sub.keys.lane, (*records[:1], *records[-1:])))

    def beat(self, left: int, every: int, seconds: float) -> None:
        """Add what happened in the seconds since the last heartbeat.

        ``left`` and ``every`` are as above: those that wait now, and those that arrived since.
        """
        shard, fade = self.shard, math.exp(-seconds / FADES)
        waiting = len(shard.records)
        # What was taken is leased or waits in a closed lane, and some of it came back.
        came = max(0, waiting - self.waiting + shard.taken - shard.back)
        self.seconds = self.seconds * fade + seconds
        self.came = self.came * fade + came
        self.every = self.every * fade + every
        self.busy *= fade
        self.done *= fade
        if left and self.left:
            self.busy += seconds
            self.done += max(0, self.left + came - left)
        self.waiting, self.left = waiting, left

    @property
    def rate(self) -> float:
        """Return how many records arrived per second."""
        return self.came / self.seconds if self.seconds else 0.0

    @property
    def capacity(self) -> float | None:
        """Return how many records run per second while others wait; None until that is known."""
        return self.done / self.busy if self.busy >= BUSY_LEAST else None


class HotKeys:
    """The hot keys of a subscription whose workers share what waits, by their slots."""

    def __init__(self) -> None:
        self.heats: dict[int, Heat] = {}
        self._at = 0.0
        self._came = 0

    def beat(self, sub: Subscription, shared: SharedRow, now: float) -> Collection[int]:
        """Measure every hot key; return the slots of which records wait in closed lanes.

        This has to come before :meth:`.SharedRow.measure`, which begins to count anew.
        """
        seconds, self._at = now - self._at, now
        every, self._came = shared.came - self._came, shared.came
        elsewhere = set()
        for slot, heat in self.heats.items():
            records = heat.shard.records
            heat.learn(sub)
            left = len(records) + sum(map(len, _behind(sub, heat)))
            heat.beat(left, every, seconds)
            if left > len(records):
                elsewhere.add(slot)
        return elsewhere

    def follow(self, sub: Subscription, shared: SharedRow, now: float) -> None:
        """Begin with the slots that were split off since, and drop those that are no more."""
        before, self.heats = self.heats, {}
        for slot, shard in shared.single.items():
            heat = before.get(slot)
            if heat is None or heat.shard is not shard:
                heat = Heat(shard, now)
                heat.learn(sub)
            self.heats[slot] = heat

    def shown(self, sub: Subscription, now: float) -> tuple[HotKey, ...]:
        """Return the hottest keys for the status, the one with most waiting records first."""
        found = []
        for slot, heat in self.heats.items():
            waiting = [*heat.shard.records]
            for records in _behind(sub, heat):
                waiting += records
            found.append((len(waiting), slot, heat, waiting))
        found.sort(key=lambda each: (-each[0], each[1]))
        return tuple(
            HotKey(
                slot=slot % SLOTS,
                key=key_text(heat.shard.key),
                partitions=tuple(_partitions(waiting)),
                waiting=count,
                share=_share(sub, heat, count),
                rate=max(heat.rate, written(waiting)),
                capacity=heat.capacity,
                seconds=now - heat.since,
            )
            for count, slot, heat, waiting in found[:NAMED]
        )


def _behind(sub: Subscription, heat: Heat) -> Iterator[Collection[Record]]:
    """Yield what waits for a hot key in closed lanes, or for the one lease of its lane."""
    for lane in heat.lanes:
        closed = sub.closed.get(lane)
        if closed is not None:
            yield closed.aside
            yield closed.queue
        if sub.one_lease is not None:
            yield sub.one_lease.behind(lane)


def _share(sub: Subscription, heat: Heat, waiting: int) -> float:
    """Return its part of what arrived; of what is held, while nothing has arrived."""
    if heat.every:
        return min(1.0, heat.came / heat.every)
    return min(1.0, waiting / sub.window.records) if sub.window.records else 0.0


def _sample(records: Sequence[Record]) -> Sequence[Record]:
    return records[:: max(1, len(records) // SAMPLE)]


def _partitions(records: Sequence[Record]) -> Iterator[TopicPartition]:
    """Yield the partitions of the records, the one with the most first."""
    counts = Counter(map(partition_of, _sample(records)))
    yield from (partition for partition, _ in counts.most_common())


def written(records: Sequence[Record]) -> float:
    """Return how many of these were written per second, by their timestamps; 0.0 if unknown.

    While a partition is held back, no more of it arrives than is run. The timestamps of waiting
    records tell how fast its key really grows.
    """
    times = [at for kind, at in (each.timestamp() for each in _sample(records)) if kind]
    span = (max(times) - min(times)) / 1000 if times else 0.0
    return (len(records) - 1) / span if span >= SPAN_LEAST else 0.0

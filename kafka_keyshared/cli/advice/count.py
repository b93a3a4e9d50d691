"""Key counts in bounded memory, by key, slot and window.

Up to a million distinct keys are counted one by one. Beyond that, only the keys whose hash falls
into a part of all hashes are kept. Each time there are too many keys, that part is halved (adaptive
sampling, Wegman). The number of keys is then an estimate. Keys with many records are always kept.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import mmh3

from kafka_keyshared.core.routing.loads import busiest, loads
from kafka_keyshared.core.routing.ring import ROUTING_VNODES, VnodeRing
from kafka_keyshared.core.subscription.settings import worker_names
from kafka_keyshared.hashing import LANE_KEY_BYTES, slot_of
from kafka_keyshared.model import TopicPartition

WINDOW = 10_000
"""The default window: records that an instance holds at the same time."""

WORKERS = (4, 8, 16, 32, 64)
"""The numbers of workers that are tried."""

KEYS_MAX = 1 << 20
"""Maximum number of keys of all partitions counted one by one, at about 90 bytes each."""

HOT_SHARE = 10_000
"""A key with at least one in this many records is always kept."""

HOT_IN_WINDOW = 100
"""A key that was not kept is counted again from a window with one in this many records."""

_NAMED = 10
_SHARDS = 8
_SHARD_SHIFT = 57


class Hot(NamedTuple):
    """A key with its number of records; the key's first bytes, or None when they were not kept."""

    key: bytes | None
    records: int


class Lanes(NamedTuple):
    """The number of lanes under a scope of order, and the hottest lanes."""

    lanes: int
    hottest: list[Hot]


def tables(workers: Iterable[int] = WORKERS) -> dict[int, list[int]]:
    """Return the slot table of the ring for each number of workers."""
    return {count: VnodeRing(worker_names(count), ROUTING_VNODES).table() for count in workers}


class SampleCounts:
    """The counts of one sample. Feed it with :meth:`add`, then call :meth:`close`."""

    def __init__(self, keys_max: int = KEYS_MAX) -> None:
        self.records = 0
        self.null_keys = 0
        self.partitions: Counter[TopicPartition] = Counter()
        self.slots: Counter[int] = Counter()
        self.window_steps: Counter[int] = Counter()
        """The load of the busiest worker, summed over all windows, by number of workers."""
        self._keys_max = keys_max
        self._mask = 0
        self._tables = tables()
        self._window: dict[TopicPartition, list[bytes | None]] = {}
        self._waiting = 0
        self._kept: dict[TopicPartition, dict[int, int]] = {}
        self._names: dict[TopicPartition, dict[int, bytes]] = {}

    @property
    def exact(self) -> bool:
        """Whether every key was counted."""
        return self._mask == 0

    def add(self, partition: TopicPartition, keys: Sequence[bytes | None]) -> None:
        """Count records of one partition, in order; None stands for a record without a key."""
        self.records += len(keys)
        self.partitions[partition] += len(keys)
        start = 0
        while start < len(keys):
            part = keys[start : start + WINDOW - self._waiting]
            self._window.setdefault(partition, []).extend(part)
            self._waiting += len(part)
            start += len(part)
            if self._waiting == WINDOW:
                self.close()

    def close(self) -> None:
        """Count the records of the incomplete window."""
        slots: list[int] = []
        for partition, keys in self._window.items():
            keyed = [key for key in keys if key is not None]
            self.null_keys += len(keys) - len(keyed)
            slots += map(slot_of, keyed)
            self._count(partition, Counter(keyed))
        self.slots.update(slots)
        if self._waiting:
            for workers, table in self._tables.items():
                spread = Counter(map(table.__getitem__, slots))
                self.window_steps[workers] += busiest(spread, self._waiting, workers)
        self._window.clear()
        self._waiting = 0
        while sum(map(len, self._kept.values())) > self._keys_max:
            self._halve()

    def _count(self, partition: TopicPartition, found: Mapping[bytes, int]) -> None:
        kept = self._kept.setdefault(partition, {})
        mask = self._mask
        seen = []
        for key, count in found.items():
            # 60 bits, because a larger Python int needs more memory. Collisions do not matter here.
            identity = mmh3.hash64(key, 0, signed=False)[0] >> 4
            had = kept.get(identity)
            # A key that gets hot after others were dropped counts from that window on.
            if had is None and identity & mask and count * HOT_IN_WINDOW < WINDOW:
                continue
            kept[identity] = (had or 0) + count
            seen.append((kept[identity], identity, key))
        self._name(partition, kept, heapq.nlargest(_NAMED, seen))

    def _name(
        self,
        partition: TopicPartition,
        kept: Mapping[int, int],
        hottest: Iterable[tuple[int, int, bytes]],
    ) -> None:
        """Store the names of the hottest keys.

        A key that is among the hottest at the end is also among them when its last record arrives.
        After that, no key with fewer records can displace it.
        """
        names = self._names.get(partition, {})
        names.update((identity, key[:LANE_KEY_BYTES]) for _, identity, key in hottest)
        ranked = heapq.nlargest(_NAMED, names, key=lambda identity: kept.get(identity, 0))
        self._names[partition] = {identity: names[identity] for identity in ranked}

    def _halve(self) -> None:
        """Keep the keys of half of the hashes kept so far, and the hot ones."""
        self._mask = self._mask << 1 | 1
        for partition, kept in self._kept.items():
            # Build a new dict, because a dict does not shrink when entries are deleted.
            self._kept[partition] = {
                identity: count
                for identity, count in kept.items()
                if not identity & self._mask or count * HOT_SHARE >= self.records
            }

    # --- results ---

    def lanes(self, scope: str) -> Lanes:
        """Return the lanes under a scope of order: ``partition``, ``topic`` or ``subscription``.

        With ``subscription`` a key is one lane in all topics, so the result is the number of keys.
        Only records with a key count.
        """
        groups: dict[object, list[dict[int, int]]] = {}
        for partition, kept in self._kept.items():
            where = {"partition": partition, "topic": partition.topic}.get(scope)
            groups.setdefault(where, []).append(kept)
        lanes = 0
        best: list[tuple[int, int]] = []
        for group in groups.values():
            for merged in _merged(group):
                lanes += sum(not identity & self._mask for identity in merged)
                found = ((count, identity) for identity, count in merged.items())
                best = heapq.nlargest(_NAMED, [*best, *heapq.nlargest(_NAMED, found)])
        names = {key: name for each in self._names.values() for key, name in each.items()}
        hottest = [Hot(names.get(identity), count) for count, identity in best]
        return Lanes(lanes * (self._mask + 1), hottest)

    def owner(self, slot: int, workers: int) -> int:
        """Return the worker that owns a slot, for this number of workers."""
        return self._tables[workers][slot]

    def loads(self, workers: int) -> dict[int, int]:
        """Return the number of keyed records of each worker on the ring."""
        return loads(self.slots, self._tables[workers], workers)


def _merged(group: list[dict[int, int]]) -> Iterator[Mapping[int, int]]:
    """Yield the counts of keys over several partitions, an eighth of all hashes at a time."""
    if len(group) == 1:
        yield group[0]
        return
    for shard in range(_SHARDS):
        merged: dict[int, int] = {}
        for kept in group:
            for identity, count in kept.items():
                if identity >> _SHARD_SHIFT == shard:
                    merged[identity] = merged.get(identity, 0) + count
        yield merged

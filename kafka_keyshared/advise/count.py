"""Counts keys in bounded memory: per key, per slot, and how unevenly each window loads workers.

A million distinct keys are counted one by one. Beyond that, only those whose hash falls into a part
of all hashes are kept, half as many each time there are too many (adaptive sampling, Wegman), and
the number of keys is an estimate; keys with many records are kept whatever their hash.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import mmh3

from kafka_keyshared.core.routing.loads import busiest, loads
from kafka_keyshared.core.routing.ring import ROUTING_VNODES, VnodeRing
from kafka_keyshared.core.settings import worker_names
from kafka_keyshared.hashing import LANE_KEY_BYTES, slot_of
from kafka_keyshared.model import TopicPartition

WINDOW = 10_000
"""Records that an instance looks at together: the default window."""

WORKERS = (4, 8, 16, 32, 64)
"""The numbers of workers that are tried."""

KEYS_MAX = 1 << 20
"""How many keys of all partitions are counted one by one, at about 90 bytes each."""

HOT_SHARE = 10_000
"""A key with at least one in so many of the records is not forgotten."""

HOT_IN_WINDOW = 100
"""A key that was not kept is counted from the window on in which it has one in so many records."""

_NAMED = 10
_SHARDS = 8
_SHARD_SHIFT = 57


class Hot(NamedTuple):
    """A key (its first bytes; None when they were not kept) and how many records it has."""

    key: bytes | None
    records: int


class Lanes(NamedTuple):
    """How many lanes there are under a scope of order, and what the hottest of them have."""

    lanes: int
    hottest: list[Hot]


def tables(workers: Iterable[int] = WORKERS) -> dict[int, list[int]]:
    """Return the slot table of the ring for each number of workers."""
    return {count: VnodeRing(worker_names(count), ROUTING_VNODES).table() for count in workers}


class Tally:
    """The counts of one sample. Feed it with :meth:`add`, then call :meth:`close`."""

    def __init__(self, keys_max: int = KEYS_MAX) -> None:
        self.records = 0
        self.null_keys = 0
        self.partitions: Counter[TopicPartition] = Counter()
        self.slots: Counter[int] = Counter()
        self.window_steps: Counter[int] = Counter()
        """For each number of workers, what the busiest one had in each window, added up."""
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
        """Count what waits for its window to fill."""
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
            # 60 bits, because an int of Python grows beyond them; collisions do not matter here.
            identity = mmh3.hash64(key, 0, signed=False)[0] >> 4
            had = kept.get(identity)
            # A key that gets hot after others were forgotten counts from when it did.
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
        """Remember what the hottest keys are called.

        A key that is among the hottest in the end is so when its last record comes, and nothing
        that has fewer records can drive it out afterwards.
        """
        names = self._names.get(partition, {})
        names.update((identity, key[:LANE_KEY_BYTES]) for _, identity, key in hottest)
        ranked = heapq.nlargest(_NAMED, names, key=lambda identity: kept.get(identity, 0))
        self._names[partition] = {identity: names[identity] for identity in ranked}

    def _halve(self) -> None:
        """Keep the keys of half of the hashes kept so far, and the hot ones."""
        self._mask = self._mask << 1 | 1
        for partition, kept in self._kept.items():
            # A new one each: a dict from which much is deleted stays as large as it was, and grows.
            self._kept[partition] = {
                identity: count
                for identity, count in kept.items()
                if not identity & self._mask or count * HOT_SHARE >= self.records
            }

    # --- out ---

    def lanes(self, scope: str) -> Lanes:
        """Return the lanes under a scope of order: ``partition``, ``topic`` or ``subscription``.

        With ``subscription`` a key is one lane wherever it comes from, so that is the number of
        keys. Only records with a key count.
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
        """Return which of so many workers owns a slot."""
        return self._tables[workers][slot]

    def loads(self, workers: int) -> dict[int, int]:
        """Return how many records with a key the ring gives each of so many workers."""
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

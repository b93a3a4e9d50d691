"""The diverted lanes of a subscription, by partition.

:mod:`kafka_keyshared.core.failures.divert` acts on them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

from kafka_keyshared.core.lanes.closed import ClosedLane, ClosedLanes, LaneEvent, LaneState
from kafka_keyshared.core.offsets.metadata_sections import LANES_MOST, hash_of
from kafka_keyshared.core.records.lane_identity import Lane
from kafka_keyshared.hashing import LANE_KEY_BYTES
from kafka_keyshared.model import Record, TopicPartition

KEYS_MOST = 100_000
"""Most keys that are remembered not to have come diverted; no long key is remembered."""

Place: TypeAlias = tuple[str, int, bytes, bool]
"""Place of a key: topic, partition, the key, and whether it stands for a missing one."""


class Diversions:
    """The diverted lanes; false while there are none.

    ``met`` has the lanes of which a record has come, with their hashes. ``unmet`` has the hashes
    that came with a partition and had no record yet. A lane is diverted in every partition where a
    record of it was diverted. ``due`` are the lanes that may have a record to send. ``to_fence``
    are the lanes that may have leases in front of their first dead letter. At most ``most`` lanes
    may be diverted in a partition.
    """

    def __init__(self) -> None:
        self.most = LANES_MOST
        self.met: dict[Lane, bytes] = {}
        self.unmet: set[bytes] = set()
        self.due: dict[ClosedLane, None] = {}
        self.to_fence: dict[ClosedLane, None] = {}
        # Records routed while there were unmet hashes, which are still to be checked.
        self.arrived: list[Sequence[Record]] = []
        self._in: dict[TopicPartition, set[bytes]] = {}
        # Where keys were seen whose lanes are not among the unmet ones.
        self._clean: set[Place] = set()

    def __bool__(self) -> bool:
        return bool(self._in)

    def begin(self, partition: TopicPartition, hashes: Collection[bytes]) -> None:
        """Take over the lanes that were diverted in a partition when it was assigned."""
        if hashes:
            self._in[partition] = set(hashes)
            self.unmet.update(set(hashes).difference(self.met.values()))
            self._clean.clear()

    def full(self, partition: TopicPartition) -> bool:
        """Return whether the partition's metadata has no room for the hash of a further lane."""
        return len(self._in.get(partition, ())) >= self.most

    def may_add(self, lane: Lane, partition: TopicPartition) -> bool:
        """Return whether the metadata can name the lane, so its records may be diverted there."""
        return not self.full(partition) or self.met.get(lane) in self._in.get(partition, ())

    def hashes(self, partition: TopicPartition) -> frozenset[bytes]:
        """Return the hashes that the commit metadata of a partition has."""
        return frozenset(self._in.get(partition, ()))

    def partitions(self) -> Iterable[TopicPartition]:
        """Return the partitions in which a lane is diverted."""
        return self._in.keys()

    def add(self, lane: Lane, partition: TopicPartition) -> None:
        """Note that a record of the lane goes to the dead-letter topic in that partition."""
        if lane not in self.met:
            self.met[lane] = hash_of(lane)
        self._in.setdefault(partition, set()).add(self.met[lane])

    def seen(self, where: Place) -> bool:
        """Return whether the key was seen there, and its lane is not among the unmet ones."""
        return where in self._clean

    def meet(self, lane: Lane, where: Place) -> bool:
        """Return whether the lane came diverted, and remember it."""
        hash_ = hash_of(lane)
        if hash_ not in self.unmet:
            if len(self._clean) >= KEYS_MOST:
                self._clean.clear()
            if len(where[2]) <= LANE_KEY_BYTES:
                self._clean.add(where)
            return False
        self._no_longer_unmet({hash_})
        self.met[lane] = hash_
        return True

    def _no_longer_unmet(self, hashes: Collection[bytes]) -> None:
        self.unmet.difference_update(hashes)
        if not self.unmet:  # no caller needs the clean keys any more
            self._clean.clear()

    def drop(self, lane: Lane) -> bool:
        """End the diversion of the lane; return whether it was diverted."""
        hash_ = self.met.pop(lane, None) or hash_of(lane)
        self._no_longer_unmet({hash_})
        there = [partition for partition, hashes in self._in.items() if hash_ in hashes]
        for partition in there:
            self._in[partition].discard(hash_)
            if not self._in[partition]:
                del self._in[partition]
        return bool(there)

    def forget(self, partitions: Collection[TopicPartition], closed: ClosedLanes) -> None:
        """Drop these partitions; a lane that is diverted in no other one is about to open.

        Its waiting records of other partitions have not been diverted, and run.
        """
        for partition in partitions:
            self._in.pop(partition, None)
        left = set().union(*self._in.values())
        self._no_longer_unmet(self.unmet - left)
        for lane in [lane for lane, hash_ in self.met.items() if hash_ not in left]:
            del self.met[lane]
            found = closed.get(lane)
            if found is not None and found.state is LaneState.DIVERTED:
                found.on(LaneEvent.FORGOTTEN)
        self.due = {each: None for each in self.due if each.lane in self.met}
        self.to_fence = {each: None for each in self.to_fence if each.lane in self.met}

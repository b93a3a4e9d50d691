"""Which lanes of a subscription are diverted, in which partitions, and which are to go on.

What is done about them stands in :mod:`.diverted`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

from kafka_keyshared.core.lane_identity import Lane
from kafka_keyshared.core.lane_notes import LANES_MOST, hash_of
from kafka_keyshared.core.lanes import ClosedLane, ClosedLanes, LaneEvent, LaneState
from kafka_keyshared.hashing import LANE_KEY_BYTES
from kafka_keyshared.model import Record, TopicPartition

KEYS_MOST = 100_000
"""Keys that are remembered not to be among those that came diverted; none of them a long one."""

Place: TypeAlias = tuple[str, int, bytes, bool]
"""Where a key was seen: topic, partition, the key, and whether it stands for a missing one."""


class Diversions:
    """The book of diverted lanes; false while there are none.

    ``met`` has those of which a record has come, with their hashes; ``unmet`` the hashes of those
    that came with a partition and were not met yet. A lane is diverted in every partition of which
    a record of it was. ``due`` are those that may have a record to send, ``to_fence`` those in
    front of whose first letter there may be leases. ``most`` may be diverted in a partition.
    """

    def __init__(self) -> None:
        self.most = LANES_MOST
        self.met: dict[Lane, bytes] = {}
        self.unmet: set[bytes] = set()
        self.due: dict[ClosedLane, None] = {}
        self.to_fence: dict[ClosedLane, None] = {}
        # What was routed while there were unmet ones, and is still to be looked at.
        self.arrived: list[Sequence[Record]] = []
        self._in: dict[TopicPartition, set[bytes]] = {}
        # Where keys were seen whose lanes are not among the unmet ones.
        self._clean: set[Place] = set()

    def __bool__(self) -> bool:
        return bool(self._in)

    def begin(self, partition: TopicPartition, hashes: Collection[bytes]) -> None:
        """Take over the lanes that were diverted in a partition when it came."""
        if hashes:
            self._in[partition] = set(hashes)
            self.unmet.update(set(hashes).difference(self.met.values()))
            self._clean.clear()

    def full(self, partition: TopicPartition) -> bool:
        """Say whether no further lane can be diverted there: its hash would not travel."""
        return len(self._in.get(partition, ())) >= self.most

    def may_add(self, lane: Lane, partition: TopicPartition) -> bool:
        """Say whether a record of the lane may be diverted there: its hash travels, or will."""
        return not self.full(partition) or self.met.get(lane) in self._in.get(partition, ())

    def hashes(self, partition: TopicPartition) -> frozenset[bytes]:
        """Return what travels with a partition."""
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
        """Say whether the key was seen there, and its lane is not among the unmet ones."""
        return where in self._clean

    def meet(self, lane: Lane, where: Place) -> bool:
        """Say whether the lane came diverted; know it from now on."""
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
        if not self.unmet:  # nobody asks any more which keys are not among them
            self._clean.clear()

    def drop(self, lane: Lane) -> bool:
        """Divert the lane no more; say whether it was diverted."""
        hash_ = self.met.pop(lane, None) or hash_of(lane)
        self._no_longer_unmet({hash_})
        there = [partition for partition, hashes in self._in.items() if hash_ in hashes]
        for partition in there:
            self._in[partition].discard(hash_)
            if not self._in[partition]:
                del self._in[partition]
        return bool(there)

    def forget(self, partitions: Collection[TopicPartition], closed: ClosedLanes) -> None:
        """Drop what is of these partitions; a lane that is diverted in no other is about to open.

        What waits in it of other partitions has not been diverted, and runs.
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

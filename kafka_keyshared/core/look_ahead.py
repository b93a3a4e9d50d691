"""How far is read past lanes that are closed, or whose record takes long: what they may hold.

Of a closed lane nothing runs but its head; whatever else comes for it waits. So does what comes
behind a record that runs for long (:mod:`.slow`). A log is read in its order, so nobody gets past
those records without taking them in, and one key that always fails, or that hangs, would fill the
window with what waits behind it, for all others to wait too. So they may fill a quarter of it
together (half of ``window_share``), in records or in bytes. What is beyond, :mod:`.pressure` holds
back partition by partition; one that has less than an even share of the quarter goes on, or a
single poison record would stop a partition for what another one holds.

Of a hot key one record runs at a time, and the others wait (:mod:`.shards`): where they last for
seconds, they count too.

A lane that is about to go on counts half, so that a hot key whose retry follows at once does not
cost its partition a pause, which takes longer. What waits for a record that runs counts half, too:
where all handlers are slow, that is all there is, and workers must not go without. So what is held
of one partition is never more than half of the window, and never more than a quarter once it waits
for a far-off retry, for a person, or for a worker.

What they hold is counted from the lanes themselves, and that only when it may have outgrown its
bound: a lane notes nothing but that something has come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_keyshared.core.lanes import HEAD_HELD_UP, ClosedLane, ClosedLanes
from kafka_keyshared.core.one_lease import OneLease
from kafka_keyshared.core.places import WaitingPlace
from kafka_keyshared.core.shards import Shard
from kafka_keyshared.core.slices import Epochs
from kafka_keyshared.core.slow import Running, Slow
from kafka_keyshared.core.window import Window
from kafka_keyshared.model import Record, TopicPartition, partition_of

SOON = 1.0
"""Seconds: a lane whose head runs again within them is about to go on."""

SOON_WEIGHT = 0.5

STEP_SHARE = 16
"""When one part in this many of a window has come for closed lanes, it is looked at once more."""

LOOK_SHARE = 20
"""Else such looks may take one part in this many of the owner's time."""

LOOK_SECONDS = 1e-4
LOOK_SECONDS_PER_RECORD = 1e-6
"""What a look takes, roughly; measured on one core of a small server."""


@dataclass(slots=True)
class Behind:
    """What closed lanes hold of a partition; ``lane`` is the one that holds the most of it.

    Where a worker that is held up holds more, it is the record that it runs.
    """

    records: float = 0.0
    bytes: float = 0.0
    lane: ClosedLane | Running | Shard | None = None
    of_lane: int = 0

    def add(
        self, count: int, size: float, weight: float, lane: ClosedLane | Running | Shard | None
    ) -> None:
        """Count what a lane holds, or waits for a record; None: what no worker may take."""
        self.records += weight * count
        self.bytes += weight * size
        if count > self.of_lane:
            self.lane, self.of_lane = lane, count


@dataclass(slots=True)
class Found:
    """What closed lanes hold by partition: those blocked, stuck or diverted, and all of them."""

    blocked: dict[TopicPartition, Behind] = field(default_factory=dict)
    every: dict[TopicPartition, Behind] = field(default_factory=dict)


class LookAhead:
    """What the closed lanes of a subscription hold of its window.

    ``grown`` counts what has come for them since the last look. Besides lanes, what waits in the
    places in ``held`` counts: it is for slots that have no worker now. And what waits for the
    records in ``slow``, as of the last beat; with one lease per key, in ``leases`` too; and what
    waits in the ``hot`` shards. Times are monotonic seconds.
    """

    def __init__(
        self,
        window: Window,
        closed: ClosedLanes,
        epochs: Epochs,
        leases: OneLease | None = None,
        *,
        hot: Sequence[Shard] = (),
        share: float = 0.5,
    ) -> None:
        self._window = window
        self._closed = closed
        self._epochs = epochs
        self._leases = leases
        self._hot = hot
        # What goes on soon counts half (SOON_WEIGHT): of that as much as ``share`` may wait.
        self._most_records = window.records_max * share * SOON_WEIGHT
        self._most_bytes = window.bytes_max * share * SOON_WEIGHT
        self.held: list[WaitingPlace] = []
        self.slow: Sequence[Slow] = ()
        self.grown = 0
        # At the last look.
        self._lanes = self._behind_slow = 0
        self._records = 0
        self._look_at = float("-inf")

    def due(self, now: float) -> bool:
        """Say whether they may have outgrown their bound since the last look.

        More than once in a while only where much has come since: a burst does not wait for that.
        """
        grown = self.grown + max(0, len(self._closed.lanes) - self._lanes)
        if self.slow:
            grown += max(0, self._count_slow() - self._behind_slow)
        if not grown:
            return False
        many = self._records + grown >= self._most_records
        if many and grown * STEP_SHARE >= self._window.records_max:
            return True
        return now >= self._look_at and (many or self._window.bytes >= self._most_bytes)

    def worth_it(self) -> bool:
        """Say whether so much is held that they could have outgrown their bound."""
        if not (self._closed.lanes or self.held or self.slow or self._hot):
            return False
        window = self._window
        return window.records >= self._most_records or window.bytes >= self._most_bytes

    def look(self, now: float) -> Found:
        """Return what they hold."""
        found = Found()
        count = 0
        for lane in self._closed.lanes.values():
            blocked = lane.state in HEAD_HELD_UP
            far = blocked or (lane.due is not None and lane.due - now > SOON)
            kept = _by_partition(lane.records())
            for partition, records in kept.items():
                size = self._window.weigh(records)
                count += len(records)
                for into in (found.every, found.blocked) if blocked else (found.every,):
                    behind = into.setdefault(partition, Behind())
                    behind.add(len(records), size, 1.0 if far else SOON_WEIGHT, lane)
        for place in self.held:
            for partition, records in _by_partition(place.waiting()).items():
                count += len(records)
                behind = found.every.setdefault(partition, Behind())
                behind.add(len(records), self._window.weigh(records), 1.0, None)
        for slow in self.slow:
            weight = 1.0 if slow.worker.waits else SOON_WEIGHT
            waiting = () if slow.over() else slow.waiting(self._leases, self._epochs)
            for partition, records in _by_partition(waiting).items():
                count += len(records)
                behind = found.every.setdefault(partition, Behind())
                behind.add(len(records), self._window.weigh(records), weight, slow.first)
        for shard in self._hot:
            for partition, records in _by_partition(shard.records).items():
                count += len(records)
                behind = found.every.setdefault(partition, Behind())
                size = self._window.weigh(records)
                behind.add(len(records), size, SOON_WEIGHT, shard)
        self.grown = 0
        self._behind_slow = self._count_slow()
        self._lanes = len(self._closed.lanes)
        self._records = count
        self._look_at = now + LOOK_SHARE * (LOOK_SECONDS + LOOK_SECONDS_PER_RECORD * count)
        return found

    def _count_slow(self) -> int:
        """Return about how many wait for slow records."""
        return sum(slow.count(self._leases, self._epochs) for slow in self.slow)

    def part(self, those: Iterable[Behind]) -> float:
        """Return what part that is of all that closed lanes may hold, in records or in bytes."""
        records = size = 0.0
        for each in those:
            records += each.records
            size += each.bytes
        return max(records / self._most_records, size / self._most_bytes)

    def overfull(
        self, found: Mapping[TopicPartition, Behind], assigned: int
    ) -> dict[TopicPartition, Behind]:
        """Return the partitions of which too much is held, with what is held of them."""
        if self.part(found.values()) < 1:
            return {}
        return {each: it for each, it in found.items() if self.part([it]) * assigned >= 1}

    def holds_little(
        self, partition: TopicPartition, found: Mapping[TopicPartition, Behind], assigned: int
    ) -> bool:
        """Say whether a partition that was stopped may go on: not until there is half as much."""
        if self.part(found.values()) * 2 < 1 or partition not in found:
            return True
        return self.part([found[partition]]) * assigned * 2 < 1


def _by_partition(records: Iterable[Record]) -> dict[TopicPartition, list[Record]]:
    found: dict[TopicPartition, list[Record]] = {}
    for record in records:
        partition = partition_of(record)
        if partition in found:
            found[partition].append(record)
        else:
            found[partition] = [record]
    return found

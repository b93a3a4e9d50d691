"""Bound on records held behind closed lanes and long-running records.

In a closed lane only the head runs; all other records of its key wait. Records behind a record that
runs for long (:mod:`.slow_records`) wait, too. A log is read in its order, so later records are
reached only by fetching these. One key that always fails or hangs would fill the window with the
records behind it. All other keys would wait. So these records may fill a quarter of the window
together (half of ``window_share``), in records or in bytes.

:mod:`kafka_keyshared.core.backpressure.pause_rules` holds back the partitions beyond the bound. A
partition with less than an even share of the quarter goes on. Otherwise a single poison record
would stop a partition because of the records of another.

One record of a hot key runs at a time, and the others wait
(:mod:`kafka_keyshared.core.workers.shards`). They count, too, if they last for seconds.

A lane that is about to go on counts half. A hot key with an immediate retry would otherwise cost
its partition a pause, which takes longer than the retry. Records that wait for a running record
count half, too. If all handlers are slow, these are the only records, and workers must not run out
of them. So one partition never holds more than half of the window. It never holds more than a
quarter once it waits for a far-off retry, an operator, or a worker.

The records are counted from the lanes themselves, and only when they may exceed the bound. A lane
notes only that a record has arrived.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_keyshared.core.contract.slices import Epochs
from kafka_keyshared.core.lanes.closed import HEAD_HELD_UP, ClosedLane, ClosedLanes
from kafka_keyshared.core.lanes.single_inflight import OneLease
from kafka_keyshared.core.limits.slow_records import LongRunning, Slow
from kafka_keyshared.core.records.backlog import WaitingPlace
from kafka_keyshared.core.records.window import Window
from kafka_keyshared.core.workers.shards import Shard
from kafka_keyshared.core.workers.worker import Worker
from kafka_keyshared.model import Record, TopicPartition, partition_of

SOON = 1.0
"""Seconds: a lane whose head runs again within this time is about to go on."""

SOON_WEIGHT = 0.5

STEP_SHARE = 16
"""Part of a window (1 in this many) whose arrival for closed lanes triggers a new look."""

LOOK_SHARE = 20
"""Otherwise looks may take 1 part in this many of the owner thread's time."""

LOOK_SECONDS = 1e-4
LOOK_SECONDS_PER_RECORD = 1e-6
"""Approximate cost of a look, measured on one core of a small server."""


@dataclass(slots=True)
class Behind:
    """Records of one partition that wait behind closed lanes and slow records.

    ``lane`` is the closed lane that holds the most of them. If a slow worker holds more, it is the
    running record of that worker; if a hot shard holds more, it is that shard.
    """

    records: float = 0.0
    bytes: float = 0.0
    lane: ClosedLane | LongRunning | Shard | None = None
    of_lane: int = 0

    def add(
        self, count: int, size: float, weight: float, lane: ClosedLane | LongRunning | Shard | None
    ) -> None:
        """Count the records behind a lane or record; None for records that no worker may take."""
        self.records += weight * count
        self.bytes += weight * size
        if count > self.of_lane:
            self.lane, self.of_lane = lane, count


@dataclass(slots=True)
class ClosedLaneCounts:
    """Waiting records by partition: behind lanes that are blocked, stuck or diverted, and all."""

    blocked: dict[TopicPartition, Behind] = field(default_factory=dict)
    every: dict[TopicPartition, Behind] = field(default_factory=dict)


class LookAhead:
    """Share of the window that the closed lanes of a subscription take.

    ``grown`` counts the records that have come for them since the last look. Three more kinds of
    records count:

    - records in the places in ``held``, whose slots have no worker now;
    - records that wait for the records in ``slow``, as of the last heartbeat; with one lease per
      key also those in ``leases``;
    - records in the ``hot`` shards.

    A lane whose head is detached at one of the ``workers`` waits for a running record and is not
    blocked. Times are monotonic seconds.
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
        # Records that go on soon count half (SOON_WEIGHT), so they may fill all of ``share``.
        self._most_records = window.records_max * share * SOON_WEIGHT
        self._most_bytes = window.bytes_max * share * SOON_WEIGHT
        self.held: list[WaitingPlace] = []
        self.slow: Sequence[Slow] = ()
        self.workers: Mapping[int, Worker] = {}
        self.grown = 0
        # As of the last look.
        self._lanes = self._behind_slow = 0
        self._records = 0
        self._look_at = float("-inf")

    def due(self, now: float) -> bool:
        """Return whether the records may have exceeded their bound since the last look.

        Looks are rate-limited, except when many records have come since: a burst triggers a look at
        once.
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
        """Return whether enough is held for the waiting records to exceed their bound."""
        if not (self._closed.lanes or self.held or self.slow or self._hot):
            return False
        window = self._window
        return window.records >= self._most_records or window.bytes >= self._most_bytes

    def look(self, now: float) -> ClosedLaneCounts:
        """Return the waiting records by partition."""
        found = ClosedLaneCounts()
        count = 0
        detached = {each.detached for each in self.workers.values() if each.detached is not None}
        for lane in self._closed.lanes.values():
            blocked = lane.state in HEAD_HELD_UP and lane.attempt not in detached
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
        """Return about how many records wait for slow records."""
        return sum(slow.count(self._leases, self._epochs) for slow in self.slow)

    def part(self, those: Iterable[Behind]) -> float:
        """Return these records as a fraction of the bound, in records or in bytes, the larger."""
        records = size = 0.0
        for each in those:
            records += each.records
            size += each.bytes
        return max(records / self._most_records, size / self._most_bytes)

    def overfull(
        self, found: Mapping[TopicPartition, Behind], assigned: int
    ) -> dict[TopicPartition, Behind]:
        """Return the partitions that hold too much, with their waiting records."""
        if self.part(found.values()) < 1:
            return {}
        return {each: it for each, it in found.items() if self.part([it]) * assigned >= 1}

    def holds_little(
        self, partition: TopicPartition, found: Mapping[TopicPartition, Behind], assigned: int
    ) -> bool:
        """Return whether a stopped partition may go on: only once half as much waits."""
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

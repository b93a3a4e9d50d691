"""Slices of leased records, the core's notes on them, and their progress.

A slice contains everything that a pool needs to run it. It never changes and could cross a pipe.
The core keeps its notes on the records in a :class:`SliceState`. A pool reports results by the
slice's id. A worker does not report progress per record. The core asks the pool for its
:data:`Progress` when it needs it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from kafka_keyshared.core.records.lane_identity import Lane
from kafka_keyshared.core.records.pristine import Originals
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import Attempt, Coordinates, Record, TopicPartition


class HeldBy(Protocol):
    """A shard, bound to one worker for as long as a slice has records of it."""

    def lease(self, worker: int, count: int) -> None:
        """Add a slice of this worker with ``count`` of its records."""

    def free(self, count: int) -> None:
        """Remove such a slice, which has ended."""


NO_RETRIES: Mapping[Coordinates, Attempt] = {}
"""For a slice without a record that failed before."""


class Slice(NamedTuple):
    """A worker's share of records: one lease for each, handed over together.

    ``id`` is used once in the life of a process. ``records`` are in the order in which they will
    start; their index identifies them in all reports. ``epoch`` counts the partition changes
    (assigned or gone) before the lease. If a record's partition has changed since, its lease is
    over and reports on it settle nothing. ``came`` has the records as they were received.
    ``attempts`` has those that failed before.
    """

    id: int
    subscription: str
    worker: int
    epoch: int
    records: Sequence[Record]
    came: Originals
    attempts: Mapping[Coordinates, Attempt] = NO_RETRIES

    def __hash__(self) -> int:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slice) and other.id == self.id

    def __ne__(self, other: object) -> bool:
        return not self == other


class SliceProgress(Protocol):
    """The progress of one slice; ``count`` is its number of records."""

    def outstanding(self, count: int) -> Iterable[int]:
        """Return the records, by index and in order, that had not ended."""

    def running(self) -> Sequence[int]:
        """Return the records, by index, that had started and not ended."""


class SerialProgress(NamedTuple):
    """Progress of records run one after the other; only the last started one may still run."""

    started: int

    def outstanding(self, count: int) -> range:
        """Return all from the last one that has started."""
        return range(max(0, self.started - 1), count)

    def running(self) -> range:
        """Return the last one that has started."""
        return range(max(0, self.started - 1), self.started)


WAITS, RUNS, ENDED, BACK = 0, 1, 2, 3
"""The marks of :class:`Scattered`; ``BACK`` is a record that was returned without running."""


class Scattered(NamedTuple):
    """Progress of records that run in any order and concurrently: one mark for each."""

    marks: bytes

    def outstanding(self, count: int) -> list[int]:
        """Return all that have not ended."""
        del count  # there is a mark for each
        return [index for index, mark in enumerate(self.marks) if mark != ENDED]

    def running(self) -> list[int]:
        """Return those that are running."""
        return [index for index, mark in enumerate(self.marks) if mark == RUNS]


UNSTARTED = SerialProgress(0)

Progress: TypeAlias = Mapping[int, SliceProgress]
"""Progress by slice id; a missing slice has not started."""


NONE: frozenset[int] = frozenset()
"""No record, the usual value of a slice's index sets."""


@dataclass(slots=True, eq=False)
class SliceState:
    """The core's notes on a slice that is not reported as ended. Records are indices.

    ``table`` is the version of the slot table at the lease. ``retries`` are the closed lanes whose
    heads run again in it, in their order. ``claimed`` has the lanes of its records if a lane may
    have one lease only. ``first`` has a few of its records, one of which was the first to arrive.
    ``back`` are no longer leased: recalled before they started, or reported as ended before the
    rest. ``unsettled`` came back failed or set aside, and stay leased until their end is reported;
    ``aside`` counts the latter. ``in_time`` had ended by the last commit of their partition, which
    has gone since. ``let_go`` are known to have ended, so no draining slot waits for them. The
    failure watch has counted the successes before ``seen_to``, at its beat number ``seen_at``.
    ``beside`` counts the records that ran before the one that is left; their time is reported with
    it. ``shards`` has the shards of its records, with the number of records of each.
    """

    slice: Slice
    table: int = 0
    retries: tuple[Lane, ...] = ()
    claimed: Sequence[Lane] = ()
    first: tuple[Record, ...] = ()
    back: set[int] | frozenset[int] = NONE
    unsettled: set[int] | frozenset[int] = NONE
    aside: int = 0
    in_time: frozenset[int] = NONE
    let_go: frozenset[int] = NONE
    seen_to: int = 0
    seen_at: int = -1
    beside: int = 0
    shards: Sequence[tuple[HeldBy, int]] = ()

    def hold(self, shards: Iterable[tuple[HeldBy, int]]) -> None:
        """Bind these shards to its worker until it ends, with the number of records of each."""
        self.shards = [*shards]
        for shard, count in self.shards:
            shard.lease(self.slice.worker, count)

    def hold_also(self, shard: HeldBy) -> None:
        """Make another shard wait for its end."""
        self.shards = [*self.shards, (shard, 1)]
        shard.lease(self.slice.worker, 1)

    def free(self) -> None:
        """Release its shards, because it ends or its remaining records are in closed lanes."""
        for shard, count in self.shards:
            shard.free(count)
        self.shards = ()

    def came_back(self, index: int) -> None:
        """Add a record that has come back failed or set aside."""
        if isinstance(self.unsettled, set):
            self.unsettled.add(index)
        else:
            self.unsettled = {*self.unsettled, index}

    def end(self, indices: Iterable[int]) -> None:
        """End some leases of the slice while others go on."""
        if isinstance(self.back, set):
            self.back.update(indices)
        else:
            self.back = {*self.back, *indices}

    def __len__(self) -> int:
        """Return the number of open leases."""
        return len(self.slice.records) - len(self.back)

    def has(self, index: int) -> bool:
        """Return whether the record is leased and has not come back."""
        return (
            0 <= index < len(self.slice.records)
            and index not in self.back
            and index not in self.unsettled
        )

    def indices(self) -> Sequence[int]:
        """Return the records that are leased."""
        every = range(len(self.slice.records))
        return [index for index in every if index not in self.back] if self.back else every

    def records(self) -> Sequence[Record]:
        """Return the records that are leased."""
        records = self.slice.records
        return [records[index] for index in self.indices()] if self.back else records

    def outstanding(self, progress: Progress) -> Iterable[int]:
        """Return the records that are leased and had not ended when progress was read."""
        every = progress.get(self.slice.id, UNSTARTED).outstanding(len(self.slice.records))
        return [index for index in every if index not in self.back] if self.back else every

    def running(self, progress: Progress) -> Sequence[int]:
        """Return the records that were running when progress was read."""
        return progress.get(self.slice.id, UNSTARTED).running()

    def oldest(self) -> Iterator[Coordinates]:
        """Yield the coordinates of ``first``, one of which was the first record to arrive."""
        came, records = self.slice.came, self.slice.records
        for record in self.first:
            for index, each in enumerate(records):
                if each is record:
                    if index not in self.back:  # a recalled record is held elsewhere
                        yield came.coordinates_of(index)
                    break


class Book:
    """Every slice that is leased and not reported as ended, by its id."""

    def __init__(self) -> None:
        self.next_id: Callable[[], int] = itertools.count().__next__
        """Returns an id that no slice has had."""
        self._leased: dict[int, SliceState] = {}

    def enter(self, leased: SliceState) -> None:
        """Add a leased slice."""
        self._leased[leased.slice.id] = leased

    def strike(self, leased: SliceState) -> None:
        """Remove a slice that has ended."""
        del self._leased[leased.slice.id]

    def find(self, id_: int, index: int | None = None) -> SliceState:
        """Return the notes on a slice that a pool reports on, for one of its records or for all.

        Raises :class:`InvariantError` if there is no such lease, or if it has ended.
        """
        leased = self._leased.get(id_)
        if leased is None:
            raise InvariantError(f"slice {id_} is reported on, and is not leased or has ended")
        if index is not None and not leased.has(index):
            raise InvariantError(
                f"slice {id_}: record {index} is reported on, and has come back already"
            )
        return leased


class Epochs:
    """Decides which leases are over because their partition was assigned or has gone since.

    ``now`` counts these changes. ``since`` has for each current partition the number at which it
    was assigned.
    """

    def __init__(self) -> None:
        self.now = 0
        self.since: dict[TopicPartition, int] = {}

    def come(self, partitions: Iterable[TopicPartition]) -> None:
        """Add assigned partitions."""
        self.now += 1
        self.since.update(dict.fromkeys(partitions, self.now))

    def go(self, partitions: Collection[TopicPartition]) -> None:
        """Remove revoked or lost partitions."""
        self.now += 1
        for partition in partitions:
            self.since.pop(partition, None)

    def over(self, epoch: int, partition: TopicPartition) -> bool:
        """Return whether a lease of that epoch, on a record of that partition, is over."""
        if epoch == self.now:
            return False
        since = self.since.get(partition)
        return since is None or since > epoch

    def ended(self, leased: SliceState, index: int) -> bool:
        """Return whether a record's lease is over: its partition has changed since."""
        slice_ = leased.slice
        return slice_.epoch != self.now and self.over(slice_.epoch, slice_.came.partition_of(index))

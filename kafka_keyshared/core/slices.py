"""A worker's share of records, as a value; what the core notes of it; and how far it has got.

A slice says everything that a pool needs in order to run it, and nothing in it changes: it could
cross a pipe. What becomes of its records the core notes for itself, in a :class:`Leased`, and a
pool reports by the slice's id. How far a worker has got nobody is told per record: whoever wants
to know asks the pool for its :data:`Progress`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from kafka_keyshared.core.lanes import Lane
from kafka_keyshared.core.originals import Originals
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import Coordinates, Record, TopicPartition


class HeldBy(Protocol):
    """What is with one worker for as long as a slice has records of it: a shard."""

    def lease(self, worker: int, count: int) -> None:
        """Note that a slice of this worker has so many of its records."""

    def free(self, count: int) -> None:
        """Note that such a slice is over."""


class Slice(NamedTuple):
    """A worker's share of records: one lease for each, handed over together.

    ``id`` is used once in the life of a process. ``records`` are in the order in which they will
    start, and everybody names one of them by its index there. ``epoch`` is the number of partitions
    coming and going before they were leased: of a partition that has come or gone since, the lease
    is over, and whatever is said of it settles nothing. ``came`` is what the records were.
    """

    id: int
    subscription: str
    worker: int
    epoch: int
    records: Sequence[Record]
    came: Originals

    def __hash__(self) -> int:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slice) and other.id == self.id

    def __ne__(self, other: object) -> bool:
        return not self == other


class Running(Protocol):
    """How far one slice has got, of so many records as it has."""

    def outstanding(self, count: int) -> Iterable[int]:
        """Return the records, by index and in order, that had not ended."""

    def running(self) -> Sequence[int]:
        """Return the records, by index, that had started and not ended."""


class Serial(NamedTuple):
    """One after the other: so many have started, and of these only the last may still run."""

    started: int

    def outstanding(self, count: int) -> range:
        """Return all from the last one that has started."""
        return range(max(0, self.started - 1), count)

    def running(self) -> range:
        """Return the last one that has started."""
        return range(max(0, self.started - 1), self.started)


WAITS, RUNS, ENDED, BACK = 0, 1, 2, 3
"""What :class:`Scattered` says of a record; the last one has been given back unrun."""


class Scattered(NamedTuple):
    """In any order, and many at once: of each record whether it waits, runs or has ended."""

    marks: bytes

    def outstanding(self, count: int) -> list[int]:
        """Return all that have not ended."""
        del count  # there is a mark for each
        return [index for index, mark in enumerate(self.marks) if mark != ENDED]

    def running(self) -> list[int]:
        """Return those that run."""
        return [index for index, mark in enumerate(self.marks) if mark == RUNS]


UNSTARTED = Serial(0)

Progress: TypeAlias = Mapping[int, Running]
"""By the ids of slices; of one that is not there nothing has started."""


NONE: frozenset[int] = frozenset()
"""No record: mostly nothing out of the ordinary happens to a slice."""


@dataclass(slots=True, eq=False)
class Leased:
    """What the core has noted of a slice that is not reported as ended. Records are indices.

    ``table`` is the version of the slot table that it was leased by. ``retries`` are the closed
    lanes whose heads run again in it, in their order; ``claimed`` the lanes of its records where
    each may have one lease only; ``first`` are a few of its records of which one arrived before all
    others. ``back`` are leased no more: taken back before they had started, or reported as ended
    before the rest. ``unsettled`` came back failed or set aside, and are leased until their end is
    reported; ``aside`` counts the latter. ``in_time`` are those that had ended by the last commit
    of their partition, which has gone since. ``let_go`` are known to have ended: no slot that
    drains waits for them. The failure watch has counted the successes among the records before
    ``seen_to``, at its beat number ``seen_at``. ``beside`` ran before the one record that is left,
    and their time is told with its.
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
        """Note of which shards it has how many records: they are with its worker until its end."""
        self.shards = [*shards]
        for shard, count in self.shards:
            shard.lease(self.slice.worker, count)

    def hold_also(self, shard: HeldBy) -> None:
        """Have a shard wait for its end as well."""
        self.shards = [*self.shards, (shard, 1)]
        shard.lease(self.slice.worker, 1)

    def free(self) -> None:
        """Let its shards go: they end with it, or what it still has is in closed lanes."""
        for shard, count in self.shards:
            shard.free(count)
        self.shards = ()

    def came_back(self, index: int) -> None:
        """Note that a record has come back failed or set aside."""
        if isinstance(self.unsettled, set):
            self.unsettled.add(index)
        else:
            self.unsettled = {*self.unsettled, index}

    def end(self, indices: Iterable[int]) -> None:
        """Note that leases are over while others of the slice are not."""
        if isinstance(self.back, set):
            self.back.update(indices)
        else:
            self.back = {*self.back, *indices}

    def __len__(self) -> int:
        """Return how many leases there are."""
        return len(self.slice.records) - len(self.back)

    def has(self, index: int) -> bool:
        """Say whether the record is leased and has not come back."""
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
        """Yield where the records are of which one arrived before all others."""
        came, records = self.slice.came, self.slice.records
        for record in self.first:
            for index, each in enumerate(records):
                if each is record:
                    if index not in self.back:  # one that was taken back is held elsewhere
                        yield came.coordinates_of(index)
                    break


class Book:
    """Every slice that is leased and not reported as ended, by its id."""

    def __init__(self) -> None:
        self.next_id: Callable[[], int] = itertools.count().__next__
        """Returns an id that no slice has had."""
        self._leased: dict[int, Leased] = {}

    def enter(self, leased: Leased) -> None:
        """Note a slice that is leased."""
        self._leased[leased.slice.id] = leased

    def strike(self, leased: Leased) -> None:
        """Forget a slice that has ended."""
        del self._leased[leased.slice.id]

    def find(self, id_: int, index: int | None = None) -> Leased:
        """Return what is noted of a slice on which a pool reports, on one of its records or all.

        Raises :class:`InvariantError` where there is no such lease, or none any more.
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
    """Which leases are over because their partition has come or gone since.

    ``now`` is the number of times that partitions have come or gone; ``since`` says at which of
    them each partition came that is there.
    """

    def __init__(self) -> None:
        self.now = 0
        self.since: dict[TopicPartition, int] = {}

    def come(self, partitions: Iterable[TopicPartition]) -> None:
        """Note partitions that have come."""
        self.now += 1
        self.since.update(dict.fromkeys(partitions, self.now))

    def go(self, partitions: Collection[TopicPartition]) -> None:
        """Note partitions that have gone."""
        self.now += 1
        for partition in partitions:
            self.since.pop(partition, None)

    def over(self, epoch: int, partition: TopicPartition) -> bool:
        """Say whether a lease of that epoch is over, of a record of that partition."""
        if epoch == self.now:
            return False
        since = self.since.get(partition)
        return since is None or since > epoch

    def ended(self, leased: Leased, index: int) -> bool:
        """Say whether the lease of a record is over: its partition has come or gone since."""
        slice_ = leased.slice
        return slice_.epoch != self.now and self.over(slice_.epoch, slice_.came.partition_of(index))

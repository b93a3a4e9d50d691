"""Shards: queues of slot groups, shared by workers that own no keys.

A *shard* is a group of slots with its own queue, and the unit of serial execution. Its records are
leased to one worker at a time, which keeps the order of each key at any worker. Any worker takes
any shard. So no worker is idle while a shard is ready, and a worker that joins or leaves moves no
slots. (Flink calls this a key group, Decaton a sub-partition.)

Ready shards are served in turn. A key with a long queue waits behind the other shards, never the
other way round. A worker with a long shard may run that one only (:meth:`SharedRow.find_long`). The
other workers serve the other shards.

A key with at least half of a long queue is hot. Its slot becomes a shard of its own, so the other
keys of the group do not wait behind it. That costs nothing per record, because the slot table gets
another list there. If other keys of that same slot appear, they get a second shard. Only from then
on are the records of the slot checked, chunk by chunk.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import attrgetter, itemgetter

from kafka_keyshared.core.records.backlog import Backlog, came_in, without
from kafka_keyshared.core.records.pristine import Chunk
from kafka_keyshared.core.workers.run_queue import SLICE_SECONDS, RunQueue
from kafka_keyshared.hashing import SLOTS
from kafka_keyshared.model import Record, TopicPartition

IN_ORDER = 64
"""In chunks of at most this size, keys start in the order of their records."""

LONG = 64
"""Minimum queue length for a hot-key search, and the approximate size of its sample."""

BATCH_SECONDS = 0.02
BATCHES_MOST = 1_000
"""Approximate batches per second of all workers together. Each costs the owner and two threads a
wake-up. More than 20 workers have longer batches."""


class Shard(Backlog):
    """The queue of a group of slots; ``slot`` is set if it is of a single one.

    In that case ``key`` is the hot key, and ``beside`` the shard of the slot's other keys, if any.

    ``at`` is the id of the worker that has leases of it, None if there are none. ``leased`` counts
    the records of open slices. ``turn`` is the number of its turn in the ``row``, 0 while it is
    empty. Since the last heartbeat ``taken`` records were taken out of it, and ``back`` of them
    were returned.
    """

    __slots__ = ("at", "back", "beside", "key", "leased", "number", "row", "slot", "taken", "turn")

    def __init__(
        self, row: SharedRow, number: int, slot: int | None = None, key: bytes | None = None
    ) -> None:
        super().__init__()
        self.row = row
        self.number = number
        self.slot = slot
        self.key = key
        self.beside: Shard | None = None
        self.at: int | None = None
        self.leased = self.taken = self.back = self.turn = 0

    def lease(self, worker: int, count: int) -> None:
        """Add a slice of this worker with ``count`` records of the shard."""
        self.leased += count
        if self.at is None:
            self.at = worker
            if self.turn:
                self.row.hold(self, worker)

    def free(self, count: int) -> None:
        """Remove such a slice, which has ended."""
        self.leased -= count
        if not self.leased and self.at is not None:
            worker, self.at = self.at, None
            if self.turn:
                self.row.let_go(self, worker)

    def is_over(self) -> bool:
        """Return whether the shard has no waiting and no leased records."""
        return not self.records and self.at is None


def shard_of(slot: int, shards: int) -> int:
    """Return the number of the shard that a slot is in."""
    return slot * shards // SLOTS


class SharedRow(RunQueue):
    """A row of shards that all workers of a subscription take from.

    ``key_of`` returns the key of a record, None where it has none, and ``slot_of`` the slot of a
    key. ``by_slot`` has for each slot the list that takes its records. ``count`` is the number of
    records that wait in shards, ``came`` the number ever received. Non-empty shards without leases
    are in ``free``, others in ``held`` of their worker, both in the order of their turns.
    ``single`` maps slots to their single-slot shards. Queues of at least ``long`` records are
    searched for a hot key. ``only`` has for some workers the long shard that their next batch is
    limited to (see :meth:`find_long`). ``slow`` are the single slots whose queues take seconds to
    run, as of the last heartbeat.
    """

    __slots__ = (
        *("_turns", "by_slot", "came", "count", "free", "held", "key_of", "long", "only"),
        *("shards", "single", "slot_of", "slow"),
    )

    def __init__(
        self,
        key_of: Callable[[Record], bytes | None],
        slot_of: Callable[[bytes], int],
        shards: int,
    ) -> None:
        super().__init__(None)
        self.key_of = key_of
        self.slot_of = slot_of
        self.shards = [Shard(self, number) for number in range(shards)]
        ends = [-(-SLOTS * number // shards) for number in range(shards + 1)]
        sizes = map(int.__sub__, ends[1:], ends)
        self.by_slot = [
            each.records for each, size in zip(self.shards, sizes, strict=True) for _ in range(size)
        ]
        self.count = self.came = self._turns = 0
        self.free: OrderedDict[Shard, None] = OrderedDict()
        self.held: dict[int, OrderedDict[Shard, None]] = {}
        self.single: dict[int, Shard] = {}
        self.long = LONG
        self.only: dict[int, Shard] = {}
        self.slow: list[Shard] = []

    def __len__(self) -> int:
        return self.count + len(self.front)

    def _group_of(self, slot: int) -> Shard:
        return self.shards[shard_of(slot, len(self.shards))]

    def shard_of(self, record: Record) -> Shard:
        """Return the shard that a record waits in."""
        key = self.key_of(record)
        if key is None:
            return self.shards[0]
        slot = self.slot_of(key)
        single = self.single.get(slot)
        if single is None:
            return self._group_of(slot)
        return single.beside if single.beside is not None and key != single.key else single

    def every(self) -> Iterator[Shard]:
        """Yield all shards."""
        yield from self.shards
        for shard in self.single.values():
            yield shard
            if shard.beside is not None:
                yield shard.beside

    def is_for(self, workers: int) -> None:
        """Set the batch duration for this number of workers, as short as the owner can sustain."""
        self.slice_seconds = min(SLICE_SECONDS, max(BATCH_SECONDS, workers / BATCHES_MOST))

    # --- turns ---

    def queued(self) -> Iterator[Shard]:
        """Yield the non-empty shards."""
        return chain(self.free, *self.held.values())

    def startable(self, worker: int, most: int) -> list[Shard]:
        """Return the shards for a worker's next batch, in order of their turns.

        They are the worker's own shards and up to ``most`` free ones. A long shard of the worker is
        returned alone.
        """
        if (only := self.only.get(worker)) is not None and only.turn:
            return [only]
        found = [*islice(self.free, most)]
        if mine := self.held.get(worker):
            found += mine
            found.sort(key=_turn)
        return found

    def find_long(self, most: int) -> None:
        """Limit up to ``most`` workers, those with the longest queues, to one shard each.

        A long queue has more than ``long`` records and twice the mean. A hot key's queue
        only needs ``long``, because more of its records arrive. Served in turn, such a
        shard would get a worker only at its turns. It would be left over when all others have
        ended, because it can use only one worker at a time. The other workers serve all other
        shards in turn. A worker keeps its long shard until another queue is twice as long.
        """
        before, held = self.only, self.held
        self.only = {}
        if not held or not most:
            return
        ready = len(self.free) + sum(map(len, held.values()))
        long = max(self.long, 2 * self.count // (ready + 1))
        found = [
            (len(shard.records) * (2 if before.get(worker) is shard else 1), worker, shard)
            for worker, queue in held.items()
            for shard in queue
            if len(shard.records) > (long if shard.slot is None else self.long)
        ]
        found.sort(key=_length)
        self.only = {worker: shard for _, worker, shard in found[-most:]}

    def hold(self, shard: Shard, worker: int) -> None:
        """Make a non-empty shard wait for the leases that a worker now has of it."""
        del self.free[shard]
        self._queue_of(worker)[shard] = None

    def let_go(self, shard: Shard, worker: int) -> None:
        """Make a non-empty shard available to any worker, with the last turn."""
        self._leave(shard, worker)
        self._join(shard)

    def _queue_of(self, worker: int | None) -> OrderedDict[Shard, None]:
        if worker is None:
            return self.free
        queue = self.held.get(worker)
        if queue is None:
            queue = self.held[worker] = OrderedDict()
        return queue

    def _join(self, shard: Shard) -> None:
        """Give a shard the last turn."""
        self._turns += 1
        shard.turn = self._turns
        self._queue_of(shard.at)[shard] = None

    def _leave(self, shard: Shard, worker: int | None) -> None:
        queue = self._queue_of(worker)
        del queue[shard]
        shard.turn = 0
        if not queue and worker is not None:
            del self.held[worker]

    # --- records ---

    def came_in(self, chunk: Chunk) -> int:
        """Assign the records appended since the last call to this chunk; return their number.

        The new shards of a small chunk take turns in the order of its records. With little work,
        keys run in arrival order.
        """
        found = came_in(self.every() if self.single else self.shards, chunk)
        count = sum([new for _, new in found])
        self.count += count
        self.came += count
        if self.single:
            found += self._sort_out(found)
        new = [shard for shard, _ in found if shard.records and not shard.turn]
        if len(new) > 1 and len(chunk.records) <= IN_ORDER:
            place = {id(record): at for at, record in enumerate(chunk.records)}
            new.sort(key=lambda shard: place[id(shard.records[0])])
        for shard in new:
            self._join(shard)
        return count

    def merge(self) -> Backlog:
        """Put returned records at the heads of their shards, in order."""
        if not self.front:
            return self.backlog
        by_shard: dict[Shard, list[Record]] = {}
        for record in self.front:
            by_shard.setdefault(self.shard_of(record), []).append(record)
        for shard, records in by_shard.items():
            shard.back += len(records)
            shard.put_first(records)
            if not shard.turn:
                self._join(shard)
        self.count += len(self.front)
        self.front = []
        return self.backlog

    def backlogs(self) -> Sequence[Backlog]:
        """Return the queues of the shards."""
        return [*self.every()]

    def behind(self, worker: int) -> Iterator[Record]:
        """Return the records that wait for the leases that a worker has of their shard."""
        return chain.from_iterable(shard.records for shard in self.held.get(worker, ()))

    def take_from(self, shard: Shard, most: int) -> tuple[list[Record], list[Chunk]]:
        """Take up to ``most`` records of a shard, and give the shard the last turn."""
        taken = shard.take(most)
        self._took(shard, len(taken[0]))
        return taken

    def take_all(self, shard: Shard, records: list[Record], chunks: dict[int, Chunk]) -> None:
        """Append all records of a shard to ``records``; see :meth:`Backlog.take_all`."""
        count = len(shard.records)
        shard.take_all(records, chunks)
        self.count -= count
        shard.taken += count
        if shard.at is None:  # as in _leave(), without two calls
            del self.free[shard]
            shard.turn = 0
        else:
            self._leave(shard, shard.at)

    def _took(self, shard: Shard, count: int) -> None:
        self.count -= count
        shard.taken += count
        self._leave(shard, shard.at)
        if shard.records:
            self._join(shard)

    def hot_key(self, shard: Shard) -> bytes | None:
        """Return the key that has at least half of a long queue; None if there is none."""
        waiting = len(shard.records)
        if shard.slot is not None or waiting < self.long:
            return None
        sample = shard.records[:: waiting // self.long]
        ((key, count),) = Counter(map(self.key_of, sample)).most_common(1)
        return key if 2 * count >= len(sample) else None

    def split(self, key: bytes) -> tuple[Shard, Shard]:
        """Make the slot of a key a shard of its own; return its previous shard and the new one.

        The caller has to make the new shard wait for the leases of the old one.
        """
        slot = self.slot_of(key)
        old, new = self._group_of(slot), Shard(self, len(self.shards) + slot, slot, key)
        slot_of, key_of = self.slot_of, self.key_of
        new.extend(old.pick([_is_in(slot, key_of(record), slot_of) for record in old.records]))
        self.single[slot] = new
        self.by_slot[slot] = new.records
        if new.records:
            self._join(new)
            if not old.records:
                self._leave(old, old.at)
        return old, new

    def has_others(self, shard: Shard) -> bool:
        """Return whether other keys wait behind the hot one of a single slot."""
        key, key_of = shard.key, self.key_of
        return shard.beside is None and any(key_of(record) != key for record in shard.records)

    def set_beside(self, shard: Shard) -> Shard:
        """Give the other keys of a single slot their own shard; return it.

        The caller has to make the new shard wait for the leases of the slot's shard.
        """
        new = shard.beside = Shard(self, shard.number + SLOTS, shard.slot)
        self._move_others(shard, new, 0)
        self._join(new)
        return new

    def _sort_out(self, found: list[tuple[Shard, int]]) -> list[tuple[Shard, int]]:
        """Move new records of a hot key's slot that have other keys into the shard beside it."""
        moved = []
        for shard, count in found:
            if shard.beside is not None:
                new = self._move_others(shard, shard.beside, len(shard.records) - count)
                moved += [(shard.beside, new)] if new else []
        return moved

    def _move_others(self, shard: Shard, beside: Shard, start: int) -> int:
        """Move the other keys' records from index ``start`` on; return their number."""
        key, key_of = shard.key, self.key_of
        others = [at >= start and key_of(each) != key for at, each in enumerate(shard.records)]
        beside.extend(shard.pick(others))
        if shard.turn and not shard.records:
            self._leave(shard, shard.at)
        return sum(others)

    def measured(self, slow: Iterable[Shard]) -> None:
        """Store the slow single slots, and restart the counts of all single slots."""
        self.slow[:] = slow
        for shard in self.single.values():
            shard.taken = shard.back = 0

    def join(self, kept: Collection[int] = ()) -> None:
        """Return single slots without waiting and leased records to their groups.

        Slots in ``kept`` stay, because they have records that wait elsewhere.
        """
        for slot, shard in [*self.single.items()]:
            if shard.beside is not None and shard.beside.is_over():
                shard.beside = None
            if shard.beside is None and shard.is_over() and slot not in kept:
                del self.single[slot]
                self.by_slot[slot] = self._group_of(slot).records

    def waiting(self) -> Iterator[Record]:
        """Return every record that waits here."""
        granted = [record for _, record in self.granted]
        return chain(granted, self.front, *[shard.records for shard in self.queued()])

    def strays(self) -> Iterator[Record]:
        """Yield the records that are in no unchanged chunk."""
        yield from (record for _, record in self.granted)
        yield from self.front
        for shard in self.queued():
            yield from shard.strays()

    def empty(self) -> bool:
        """Say whether nothing waits here."""
        return not (self.granted or self.front or self.count)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the records of these partitions."""
        self.granted = [each for each in self.granted if _of(each[1]) not in partitions]
        self.front[:] = without(self.front, partitions)
        for shard in [*self.queued()]:
            self.count -= len(shard.records)
            shard.forget(partitions)
            self.count += len(shard.records)
            if not shard.records:
                self._leave(shard, shard.at)


class Detaching:
    """The record that each worker was seen running, by worker id, and since when.

    ``due`` is the time of the next look. A record is detached once it has run for ``after``
    seconds. ``total`` counts detached records. ``since`` has the time when each record that is now
    detached was first seen, by the id of its slice.
    """

    def __init__(self, after: float) -> None:
        self.after = after
        self.due = float("-inf")
        self.seen: dict[int, tuple[tuple[int, int], float]] = {}
        # Workers that were asked to return their other records, and the record that caused it.
        self.asked: dict[int, tuple[int, int]] = {}
        self.total = 0
        self.since: dict[int, float] = {}


_turn = attrgetter("turn")
_length = itemgetter(0)


def _is_in(slot: int, key: bytes | None, slot_of: Callable[[bytes], int]) -> bool:
    return key is not None and slot_of(key) == slot


def _of(record: Record) -> TopicPartition:
    return TopicPartition(record.topic(), record.partition())

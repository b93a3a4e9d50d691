"""Leasing of shared shards to workers with room.

Idle workers come first, and each gets an even part, so no worker is idle while another has two
batches. A batch takes whole ready shards in turn. If a worker runs many keys at once, the batch
takes a quantum of each shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kafka_keyshared.core.contract.commands import Command
from kafka_keyshared.core.records.lane_identity import Lane
from kafka_keyshared.core.records.pristine import Chunk
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.workers.shards import Shard, SharedRow
from kafka_keyshared.core.workers.worker import Worker
from kafka_keyshared.model import Record

QUANTUM = 16
"""Maximum leased records of a shard at a worker that has half of its places taken; two calls of the
handler, if a call takes several records."""


class BatchDraft:
    """A batch for a worker: records, their chunks, their claimed lanes and their shards."""

    def __init__(self, records: list[Record], lanes: list[Lane]) -> None:
        self.records = records
        self.lanes = lanes
        self.chunks: dict[int, Chunk] = {}
        # The index where records of a shard begin, in order; None for records without a key.
        self.runs: list[tuple[int, Shard | None]] = []
        # The first record without a key, if any.
        self.keyless: Sequence[Record] = ()
        if records:
            granted = Chunk(records[:])
            self.chunks[id(granted)] = granted

    def add(
        self,
        shard: Shard | None,
        records: Sequence[Record],
        lanes: Sequence[Lane],
        came: Sequence[Chunk],
    ) -> None:
        """Add records of a shard, or records without one."""
        self.runs.append((len(self.records), shard))
        self.records += records
        self.lanes += lanes
        self.chunks.update((id(chunk), chunk) for chunk in came)

    def append(self, other: BatchDraft) -> None:
        """Add all records of another batch."""
        at = len(self.records)
        self.runs += [(at + start, shard) for start, shard in other.runs] if at else other.runs
        self.records += other.records
        self.lanes += other.lanes
        self.chunks.update(other.chunks)

    def leave_out(self, sub: Subscription) -> bool:
        """Move records that must not start to where they wait; return whether there were none."""
        records, runs = self.records, self.runs
        self.records, self.lanes = sub.startable_of(records)
        if len(self.records) == len(records):
            return True
        starts = [*(start for start, _ in runs), len(records)]
        self.runs, kept = [], 0
        stays = iter(map(id, self.records))
        following = next(stays, None)
        for number, (start, shard) in enumerate(runs):
            before = kept
            for record in records[start : starts[number + 1]]:
                if id(record) == following:
                    kept += 1
                    following = next(stays, None)
            if kept > before:
                self.runs.append((before, shard))
        return False


def lease_shards(sub: Subscription, shared: SharedRow) -> Iterator[Command]:
    """Lease all records that may start now."""
    shared.merge()
    for worker in with_room(sub.workers.values()) if shared.retries else ():
        yield from sub.lease_heads(worker)
    if not sub.settings.individually or sub.settings.call_records > 1:
        # Otherwise a worker runs many keys at once.
        shared.find_long(len(sub.workers) // 2)
    while waiting := shared.count + len(shared.granted) + len(sub.keyless.records):
        able = with_room(_who_may(sub, shared))
        # A worker that took all ready shards would leave none for the others.
        most = max(1, -(-len(shared.free) // max(1, len(sub.workers))))
        leased = False
        for left, worker in zip(range(len(able), 0, -1), able, strict=True):
            shards = len(shared.free) + (worker.id in shared.held)
            alone = len(shared.granted) + len(sub.keyless.records)
            if not (shards or alone):
                continue
            # No more workers than there are shards can get records.
            share = max(1, -(-waiting // min(left, shards + alone)))
            many = most
            if share < worker.worth:
                # Fewer workers with larger batches: waking more would take as long as the work.
                share = worker.worth
                many = max(most, -(-len(shared.free) * share // waiting))
            batch = gather(sub, shared, worker, min(worker.places(), share), many)
            waiting -= len(batch.records)
            for command in _leases(sub, worker, batch):
                leased = True
                yield command
        if not leased:
            return


def _who_may(sub: Subscription, shared: SharedRow) -> Iterable[Worker]:
    """Return the workers that may get records: all, or those that hold a shard with more."""
    if shared.free or shared.granted or sub.keyless.records:
        return sub.workers.values()
    return [sub.workers[id_] for id_ in shared.held]


def with_room(workers: Iterable[Worker]) -> list[Worker]:
    """Return the workers that may get a lease, idle ones first."""
    # With many workers most are full; this test is cheaper than room().
    able = [
        worker
        for worker in workers
        if len(worker.slices) < worker.slices_max + len(worker.apart) and worker.room()
    ]
    if len(able) > 1:
        able.sort(key=lambda worker: (len(worker.slices) - len(worker.apart), worker.id))
    return able


def _leases(sub: Subscription, worker: Worker, batch: BatchDraft) -> Iterator[Command]:
    records, chunks = batch.records, [*batch.chunks.values()]
    if not records:
        return
    most = worker.slice_max if worker.individually else len(records)
    for at in range(0, len(records), most):
        those = records[at : at + most]
        claimed = batch.lanes[at : at + most]
        shards, heads = _shards(batch, at, at + len(those))
        also = [*batch.keyless, *heads]
        yield sub.lease(worker, those, chunks, claimed, also=also, shards=shards)


def _shards(batch: BatchDraft, start: int, end: int) -> tuple[dict[Shard, int], list[Record]]:
    """Return the shards of a part of a batch with their record counts, and their first records."""
    found: dict[Shard, int] = {}
    records, runs = batch.records, batch.runs
    starts = [index for index, _ in runs]
    if start or end < len(records):
        part = [number for number, index in enumerate(starts) if index < end]
        while len(part) > 1 and starts[part[1]] <= start:
            del part[0]
        runs = [runs[number] for number in part]
        starts = [max(start, starts[number]) for number in part]
    ends = [*starts[1:], end] if starts else []
    for (_, shard), index, after in zip(runs, starts, ends, strict=True):
        if shard is not None:
            found[shard] = found.get(shard, 0) + after - index
    return found, [records[index] for index in starts]


def gather(
    sub: Subscription, shared: SharedRow, worker: Worker, room: int, most: int
) -> BatchDraft:
    """Take up to ``room`` records that may start from the worker's ready shards.

    The shards are those that the worker holds and up to ``most`` free ones. If the worker holds a
    long shard, it is only that one.
    """
    granted = sub.take_granted(worker, room, ()) if shared.granted else ([], [])
    if shared.front:  # a returned grant puts the records behind it before the rest
        shared.merge()
    batch = BatchDraft(*granted)
    if sub.keyless.records and sub.routing.takes_keyless(worker):
        _add_keyless(sub, shared, worker, batch, room)
    shards = shared.startable(worker.id, most)
    alone = worker.individually and sub.settings.call_records == 1
    if alone or worker.bytes.most is not None:
        _take_one_by_one(sub, worker, batch, shards, room)
    else:
        _take_at_once(sub, worker, batch, shards, room)
    return batch


def _take_at_once(
    sub: Subscription, worker: Worker, batch: BatchDraft, shards: list[Shard], room: int
) -> None:
    """Fill a batch with records that may start, checking all taken records in one call."""
    while (left := room - len(batch.records)) > 0:
        taken = BatchDraft([], [])
        _take_all(taken, shards, left, worker.places() - len(batch.records))
        if not taken.records:
            return
        everything = sub.all_may_start() or taken.leave_out(sub)
        batch.append(taken)
        if everything:
            return
        shards = [shard for shard in shards if shard.records]


def _take_all(batch: BatchDraft, shards: list[Shard], room: int, places: int) -> None:
    """Fill a batch without checking single records.

    A shard gives all its records, up to ``places``: no other worker could run the rest at the same
    time. A batch of fewer shards leaves more shards for other workers. A shard that does not fit
    into the second half of a batch is therefore not taken.
    """
    records, chunks = batch.records, batch.chunks
    for shard in shards:
        count, left = len(records), places - len(records)
        fits = len(shard.records) <= left
        if count >= room or (not fits and 2 * count >= room):
            return
        batch.runs.append((count, shard))
        if fits:
            shard.row.take_all(shard, records, chunks)
        else:
            part, came = shard.row.take_from(shard, left)
            records += part
            chunks.update([(id(chunk), chunk) for chunk in came])


def _take_one_by_one(
    sub: Subscription, worker: Worker, batch: BatchDraft, shards: list[Shard], room: int
) -> None:
    """Fill a batch with records that may start; the others move to their waiting place."""
    records, fitting = batch.records, worker.bytes.fitting
    half = worker.leases_max // 2
    # Enough records of one key for the running call and the next one.
    quantum = max(QUANTUM, 2 * sub.settings.call_records)
    has = {shard: shard.leased for shard in shards}
    while len(records) < room and (ready := [shard for shard in shards if shard.records]):
        moved = False
        for shard in ready:
            most = room - len(records)
            if worker.individually:
                most = min(most, max(1, most // len(ready)))
                free = worker.leases_max - worker.leased - len(records)
                most = min(most, max(quantum - has[shard], free - half))
            startable: list[Record] = []
            while most > 0 and not startable and (fits := fitting(shard.records, most, records)):
                quantum_of, came = shard.row.take_from(shard, fits)
                startable, lanes = sub.startable_of(quantum_of)
                moved = True
                if startable:
                    batch.add(shard, startable, lanes, came)
                    has[shard] += len(startable)
        if not moved:
            break


def separate_hot(sub: Subscription, now: float) -> None:
    """Split hot slots off their shards, and return idle ones to their groups.

    Leases of the old shard may be of the slot, so the new shard also waits for them.
    """
    shared = sub.shared
    if shared is None:
        return
    shared.merge()
    elsewhere = sub.hot_keys.beat(sub, shared, now)
    shared.join(elsewhere)
    for shard in [*shared.queued()]:
        key = shared.hot_key(shard)
        if key is not None:
            old, new = shared.split(key)
            _wait_as(sub, old, new)
    for shard in shared.single.values():
        if shared.has_others(shard):
            _wait_as(sub, shard, shared.set_beside(shard))
    sub.hot_keys.follow(sub, shared, now)


def _wait_as(sub: Subscription, old: Shard, new: Shard) -> None:
    """Make a new shard wait for the leases of the old one."""
    worker = None if old.at is None else sub.workers[old.at]
    for leased in () if worker is None else worker.slices.values():
        if any(each is old for each, _ in leased.shards):
            leased.hold_also(new)


def _add_keyless(
    sub: Subscription, shared: SharedRow, worker: Worker, batch: BatchDraft, room: int
) -> None:
    """Add records without a key, in proportion to their share of the waiting records."""
    count = len(sub.keyless)
    most = -(-(room - len(batch.records)) * count // (count + len(shared)))
    most = worker.bytes.fitting(sub.keyless.records, most, batch.records)
    if most > 0:
        part, came = sub.keyless.take(most)
        startable, lanes = sub.startable_of(part)
        batch.keyless = startable[:1]
        batch.add(None, startable, lanes, came)

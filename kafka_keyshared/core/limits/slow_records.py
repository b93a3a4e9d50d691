"""Long-running records and the records that wait behind them.

A serial worker runs one record after the other, so all its records wait for the current one. With
one lease per key the lane of each record waits. The log is read in order: to fetch later records,
the waiting ones must be received. They therefore count toward the limit of closed lanes
(:mod:`.blocked_quota`).

Run times are checked at heartbeats, which costs nothing per record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kafka_keyshared.core.contract.slices import Epochs
from kafka_keyshared.core.lanes.single_inflight import OneLease
from kafka_keyshared.core.workers.worker import Worker
from kafka_keyshared.model import Record

SLOW_AFTER = 0.5
"""Seconds from the first heartbeat that sees a record running until it is slow: one interval."""


@dataclass(frozen=True, slots=True)
class LongRunning:
    """A running record, by its slice and its index there, and when it was first seen running.

    ``key`` is its routing key.
    """

    slice: int
    index: int
    record: Record
    since: float
    key: bytes | None


@dataclass(frozen=True, slots=True)
class Slow:
    """A worker's long-running records; ``whole`` says that all its other records wait for them."""

    worker: Worker
    running: tuple[LongRunning, ...]
    whole: bool

    @property
    def first(self) -> LongRunning:
        """Return the one that has been running the longest."""
        return min(self.running, key=lambda each: each.since)

    def over(self) -> bool:
        """Return whether all of them are reported as ended."""
        return not any(each.slice in self.worker.slices for each in self.running)

    def waiting(self, leases: OneLease | None, epochs: Epochs) -> Iterator[Record]:
        """Yield records waiting at the worker; with one lease per key also behind its leases."""
        leased = self._unstarted(epochs) if self.whole else []
        yield from leased
        if self.whole:
            yield from self.worker.row.behind(self.worker.id)
        if leases is not None:
            granted = [record for _, record in self.worker.row.granted] if self.whole else []
            for lane in leases.lanes_of([*self._records(epochs), *leased, *granted]):
                yield from leases.behind(lane)

    def count(self, leases: OneLease | None, epochs: Epochs) -> int:
        """Return the approximate number of waiting records, without a walk.

        Records that wait for unstarted leases are left out. The worker's leases are counted too.
        """
        count = 0
        if self.whole:
            count = self.worker.leased + self.worker.waiting()
        if leases is not None:
            lanes = leases.lanes_of(self._records(epochs))
            count += sum(len(leases.behind(lane)) for lane in lanes)
        return count

    def _records(self, epochs: Epochs) -> list[Record]:
        """Return those that still run, as far as is known; keys of others may be forgotten."""
        found: list[Record] = []
        for each in self.running:
            leased = self.worker.slices.get(each.slice)
            if (
                leased is not None
                and leased.has(each.index)
                and not epochs.ended(leased, each.index)
            ):
                found.append(each.record)
        return found

    def _unstarted(self, epochs: Epochs) -> list[Record]:
        """Return the unstarted records as received, without those of ended epochs.

        One may have started since the last heartbeat, and its handler may have changed it. Records
        of a partition that has gone wait for nothing.
        """
        started = {each.slice: each.index for each in self.running}
        found: list[Record] = []
        for id_, leased in self.worker.slices.items():
            if id_ not in self.worker.apart:
                came, after = leased.slice.came, started.get(id_, -1)
                found += [
                    came[index]
                    for index in leased.indices()
                    if index > after and leased.has(index) and not epochs.ended(leased, index)
                ]
        return found


def slow_at(worker: Worker, running: Iterable[LongRunning], now: float) -> Slow | None:
    """Return the worker's long-running records, None if there are none.

    All its other records wait if everything that it runs is slow. They also wait if the worker
    itself waits for a stuck record. A stuck record with a replacement thread beside it is ignored.
    """
    if worker.waits:
        stuck = tuple(each for each in running if each.slice == worker.waits_for)
        return Slow(worker, stuck, whole=True) if stuck else None
    beside = [each for each in running if each.slice not in worker.apart]
    slow = tuple(each for each in beside if now - each.since >= SLOW_AFTER)
    return Slow(worker, slow, whole=len(slow) == len(beside)) if slow else None

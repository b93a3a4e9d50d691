"""What waits behind records that run for long, although nothing has failed.

A worker does one record after the other, so all that it has waits for the one that it is in; with
one lease per key the lane of each record waits. None of that can run yet, and a log is read in its
order: whoever wants what is behind it has to take it in. So it counts to what closed lanes may hold
(:mod:`.look_ahead`).

Who runs for how long is seen at heartbeats, and costs nothing per record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kafka_keyshared.core.one_lease import OneLease
from kafka_keyshared.core.slices import Epochs
from kafka_keyshared.core.workers import Worker
from kafka_keyshared.model import Record

SLOW_AFTER = 0.5
"""Seconds for which a record has been seen running that others wait for: from one beat to the
next."""


@dataclass(frozen=True, slots=True)
class Running:
    """A record that runs, by its slice and its index there, and since when it has been seen so.

    ``key`` is the one that it goes by.
    """

    slice: int
    index: int
    record: Record
    since: float
    key: bytes | None


@dataclass(frozen=True, slots=True)
class Slow:
    """What a worker has been running for long; ``whole`` says that all that it has waits for it."""

    worker: Worker
    running: tuple[Running, ...]
    whole: bool

    @property
    def first(self) -> Running:
        """Return the one that has been running the longest."""
        return min(self.running, key=lambda each: each.since)

    def over(self) -> bool:
        """Say whether none of it runs any more, as far as that is reported."""
        return not any(each.slice in self.worker.slices for each in self.running)

    def waiting(self, leases: OneLease | None, epochs: Epochs) -> Iterator[Record]:
        """Yield what waits at the worker; with one lease per key also what waits for its leases."""
        leased = self._unstarted(epochs) if self.whole else []
        yield from leased
        if self.whole:
            yield from self.worker.row.behind(self.worker.id)
        if leases is not None:
            granted = [record for _, record in self.worker.row.granted] if self.whole else []
            for lane in leases.lanes_of([*self._records(epochs), *leased, *granted]):
                yield from leases.behind(lane)

    def count(self, leases: OneLease | None, epochs: Epochs) -> int:
        """Return about how many wait, without a walk: what waits for unstarted leases is left out.

        What the worker runs is counted too.
        """
        count = 0
        if self.whole:
            count = self.worker.leased + self.worker.waiting()
        if leases is not None:
            lanes = leases.lanes_of(self._records(epochs))
            count += sum(len(leases.behind(lane)) for lane in lanes)
        return count

    def _records(self, epochs: Epochs) -> list[Record]:
        """Return those that run for all that is known: of others the keys may be forgotten."""
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
        """Return them as they came: since the last beat one may have started, with its handler
        writing into it. What is to come back of a partition that has gone waits for nothing."""
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


def slow_at(worker: Worker, running: Iterable[Running], now: float) -> Slow | None:
    """Return what the worker has been running for long, None where that is nothing.

    All that it has waits where everything that it runs is slow, and where it waits for a stuck
    record that nobody goes on beside. Who is stuck and has somebody beside it is no matter.
    """
    if worker.waits:
        stuck = tuple(each for each in running if each.slice == worker.waits_for)
        return Slow(worker, stuck, whole=True) if stuck else None
    beside = [each for each in running if each.slice not in worker.apart]
    slow = tuple(each for each in beside if now - each.since >= SLOW_AFTER)
    return Slow(worker, slow, whole=len(slow) == len(beside)) if slow else None

"""Counters of rare states of shared shards and detached records.

They look into the core of one member. From outside it is invisible which shard a batch leases, or
that a record was detached. :mod:`kafka_keyshared.core.failures.detaching` explains detaching.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.commands import Command, LeaseSlice
from kafka_keyshared.core.subscription.subscription import Subscription, Subscriptions
from kafka_keyshared.core.workers.shards import shard_of
from kafka_keyshared.model import Record, TopicPartition

DETACHED = "record detached from its shard"
FAILED = "detached record failed"
OUTLIVED = "detached record settled after its partition went"
REVOKED = "partition revoked while a record of it was detached"
STUCK = "detached record stuck past its ack timeout"
ENDED_FIRST = "record ended before it was detached"
MOVED = "shard taken by another worker than before"
WENT_ON = "shard taken by another worker while a record of it is detached"

RARE = (DETACHED, FAILED, OUTLIVED, REVOKED, STUCK, ENDED_FIRST, MOVED, WENT_ON)


class _Detached(NamedTuple):
    """A detached record: its subscription, its place in its slice, its partition and its shard."""

    sub: Subscription
    at: int
    partition: TopicPartition
    shard: int | None


class Detachments:
    """Counts each of :data:`RARE` at one member.

    - *record detached from its shard*: its worker has given back the rest of its batch;
    - *detached record failed*: its handler raised, or asked for another attempt;
    - *detached record settled after its partition went*: its outcome counts for nothing;
    - *partition revoked while a record of it was detached*: or lost;
    - *detached record stuck past its ack timeout*: its worker goes on, or another one does;
    - *record ended before it was detached*: its worker gave back the rest too late for that;
    - *shard taken by another worker than before*: another worker got its previous batch;
    - *shard taken by another worker while a record of it is detached*: the waiting records go on.
    """

    def __init__(self, subs: Subscriptions, reached: Counter[str]) -> None:
        self._subs = [sub for sub in subs.values() if sub.shared is not None]
        self._reached = reached
        # By the id of the slice of which nothing else is left.
        self._detached: dict[int, _Detached] = {}
        # The worker that each shard was last leased to, by subscription and shard.
        self._last: dict[tuple[str, int | None], int] = {}
        self._asked: list[tuple[Subscription, int]] = []

    def before(self, event: ev.Event) -> None:
        """Look at the state before the core takes an event."""
        if not self._subs:
            return
        if isinstance(event, ev.Recalled):
            self._asked = [
                (sub, event.worker)
                for sub in self._subs
                if sub.name == event.subscription
                and sub.detaching is not None
                and event.worker in sub.detaching.asked
            ]
        elif not self._detached:
            return
        elif isinstance(event, ev.Revoking):
            going = set(event.partitions)
            self._reached[REVOKED] += any(
                each.partition in going and not _over(each, id_)
                for id_, each in self._detached.items()
            )
        elif isinstance(event, ev.Reported):
            self._reports(event.reports)

    def _reports(self, reports: Iterable[ev.Report]) -> None:
        for report in reports:
            if isinstance(report, ev.Failed) and report.slice in self._detached:
                self._reached[FAILED] += report.index == self._detached[report.slice].at
            elif isinstance(report, ev.SliceEnded):
                each = self._detached.pop(report.slice, None)
                if each is not None:
                    self._reached[OUTLIVED] += _over(each, report.slice)

    def after(self, commands: Iterable[Command]) -> None:
        """Look at the state after the core has taken it."""
        if not self._subs:
            return
        for sub in self._subs:
            if sub.detaching is not None:
                self._look(sub)
        for sub, worker in self._asked:
            found = sub.workers.get(worker)
            over = sub.detaching is not None and worker not in sub.detaching.asked
            self._reached[ENDED_FIRST] += over and (found is None or found.detached is None)
        self._asked = []
        for command in commands:
            if isinstance(command, LeaseSlice):
                self._leased(command)

    def _look(self, sub: Subscription) -> None:
        for worker in sub.workers.values():
            id_ = worker.detached
            if id_ is not None and id_ not in self._detached:
                self._reached[DETACHED] += 1
                leased = worker.slices[id_]
                for index in leased.indices():
                    came = leased.slice.came
                    shard = _shard_of(sub, came[index])
                    self._detached[id_] = _Detached(sub, index, came.partition_of(index), shard)
        for id_, each in list(self._detached.items()):
            if each.sub is sub and not any(w.detached == id_ for w in sub.workers.values()):
                del self._detached[id_]
                self._reached[STUCK] += any(id_ in w.apart for w in sub.workers.values())

    def _leased(self, command: LeaseSlice) -> None:
        slice_ = command.slice
        sub = next((each for each in self._subs if each.name == slice_.subscription), None)
        if sub is None:
            return
        shards = {_shard_of(sub, record) for record in slice_.records} - {None}
        for shard in shards:
            place = sub.name, shard
            before, self._last[place] = self._last.get(place), slice_.worker
            self._reached[MOVED] += before is not None and before != slice_.worker
        self._reached[WENT_ON] += any(
            each.sub is sub and each.shard in shards and slice_.worker not in _holders(sub, id_)
            for id_, each in self._detached.items()
        )


def _over(each: _Detached, id_: int) -> bool:
    """Return whether the partition of a detached record has gone since, or come again."""
    return each.sub.epochs.ended(each.sub.book.find(id_), each.at)


def _shard_of(sub: Subscription, record: Record) -> int | None:
    key = sub.keys.key(record)
    return None if key is None else shard_of(sub.keys.slot(key), sub.settings.shard_count)


def _holders(sub: Subscription, id_: int) -> set[int]:
    """Return the workers that have a slice."""
    return {worker.id for worker in sub.workers.values() if id_ in worker.slices}

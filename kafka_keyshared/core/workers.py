"""A worker's side of the core: who it is, what waits for it, and what it holds.

A serial worker holds at most two slices, so that one waits while one runs, and the size of a slice
follows the time that the last one took: a fast handler gets hundreds of records, one that takes 50
ms gets one. That keeps small what a fence, a revoke or a worker that joins or leaves has to wait
for or take back. One whose records end in any order may hold any number of slices: there, what
waits has nothing in front of it.

What is done as one comes and goes stands in :mod:`.worker_lifecycle`.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from itertools import chain, islice

from kafka_keyshared.core.backlog import Backlog
from kafka_keyshared.core.lanes import ClosedLane
from kafka_keyshared.core.lease_bytes import LeaseBytes
from kafka_keyshared.core.rows import Row
from kafka_keyshared.core.slices import Leased
from kafka_keyshared.core.tables import follow
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import Record, TopicPartition, partition_of

SLICES_MAX = 2
WORTH_SECONDS = 0.0005
"""Seconds of work that are worth a batch: of less, what waking a thread costs is the most of it."""

FIRST_SLICE = 32


class WorkerState(enum.Enum):
    """Where a worker is in its life."""

    JOINING = "joining"
    """It has its slots, and gets of them what was received before it joined, until all that is
    settled, wherever it is: the rule of Pulsar 3.x."""
    ACTIVE = "active"
    """It has its slots, and gets what comes in them."""
    LEAVING = "leaving"
    """It has no slots any more, and gets nothing; its last leases have yet to end."""
    GONE = "gone"
    """It has neither slots nor leases."""


class WorkerEvent(enum.Enum):
    """What can happen to a worker as a whole."""

    CAUGHT_UP = "all that was received before it joined is settled"
    DISMISSED = "it is to go: fewer workers are wanted"
    LEFT = "it has left of its own accord: a member that closed"
    EVICTED = "its thread or process is gone and could not be replaced"
    EMPTIED = "its last lease has ended"


_S, _E = WorkerState, WorkerEvent

WORKER_TABLE: Mapping[WorkerState, Mapping[WorkerEvent, WorkerState]] = {
    _S.JOINING: {
        _E.CAUGHT_UP: _S.ACTIVE,
        _E.DISMISSED: _S.LEAVING,
        _E.LEFT: _S.LEAVING,
        _E.EVICTED: _S.LEAVING,
    },
    _S.ACTIVE: {_E.DISMISSED: _S.LEAVING, _E.LEFT: _S.LEAVING, _E.EVICTED: _S.LEAVING},
    _S.LEAVING: {_E.EMPTIED: _S.GONE},
    _S.GONE: {},
}
"""The state that follows; what is not here cannot happen."""

GETS_LEASES = (_S.JOINING, _S.ACTIVE)


class Worker:
    """What one worker holds and what waits for it.

    ``id`` names it in leases and reports: no two workers of a subscription ever have the same one,
    also when one takes the name of another that is gone.
    """

    def __init__(
        self,
        name: str,
        id_: int,
        leases_max: int,
        *,
        bytes_max: int | None = None,
        individually: bool = False,
        slice_records: int = 1,
        state: WorkerState = WorkerState.ACTIVE,
        row: Row | None = None,
    ) -> None:
        self.name = name
        self.id = id_
        self.state = state
        self.leases_max = leases_max
        self.bytes = LeaseBytes(bytes_max)
        self.individually = individually
        self.slices_max = leases_max if individually else SLICES_MAX
        self.slice_max = slice_records if individually else max(1, leases_max // SLICES_MAX)
        self.slice_size = self.slice_max if individually else min(FIRST_SLICE, self.slice_max)
        # How many records are worth a batch, by the time that the last one took.
        self.worth = 1
        self.row = Row(id_ if state in GETS_LEASES else None) if row is None else row
        self.shares = row is not None
        # By their ids, in the order of the leases.
        self.slices: dict[int, Leased] = {}
        self.leased = 0
        # While it joins: where the partitions had been received to before, and what is behind that.
        self.joined_at: Mapping[TopicPartition, int] = {}
        self.later = Backlog()
        # Whether it leaves in order, and ends what it runs.
        self.dismissed = False
        # How often it was asked for what it has not started, and has not answered.
        self.recalls = 0
        # Those of its slices of which only a stuck record is left, and the one for whose end it
        # waits because nobody else can do its work meanwhile.
        self.apart: set[int] = set()
        self.waits_for: int | None = None
        # That one, where it only takes long: no ack timeout has passed.
        self.detached: int | None = None
        self.idle_beats = 0
        # Whether it has left, and there was nobody else.
        self.alone = False
        # Whether it could not be restarted; and whether what it has in hand then counts as settled.
        self.evicted = False
        self.written_off = False
        self.busy_seconds = 0.0
        self.starved_seconds = 0.0
        self.restarts = 0
        # Without reliability: records that were dropped because it was full.
        self.shed = 0

    def on(self, event: WorkerEvent) -> None:
        """Go to the state that follows.

        Raises :class:`InvariantError`, and changes nothing, where :data:`WORKER_TABLE` has none.
        """
        self.state = follow(WORKER_TABLE, self.state, event, self.name)
        if not self.shares:
            self.row.holder = self.id if self.state in GETS_LEASES else None

    @property
    def present(self) -> bool:
        """Say whether it has not been told to go, nor gone by itself."""
        return self.state in GETS_LEASES

    def room(self) -> int:
        """Return how many records the next slice may have, 0 when there is to be none yet."""
        return min(self.slice_size, self._left())

    def places(self) -> int:
        """Return how many records it may be leased at once, in one slice or several."""
        return self._left() if self.individually else self.room()

    def _left(self) -> int:
        """Return how many more it may hold, whatever is stuck beside it; 0 when it is to get none.

        Nothing goes to a worker that is being recalled: it would overtake what comes back.
        """
        slices, leased = len(self.slices), self.leased
        if self.apart:
            slices, leased = slices - len(self.apart), leased - len(self.apart)
        if slices >= self.slices_max or self.recalls or not self.present or self.waits:
            return 0
        left = max(0, self.leases_max - leased)
        return min(left, self.slices_max - slices) if self.individually else left

    @property
    def waits(self) -> bool:
        """Say whether it does nothing until a record ends that is stuck."""
        return self.waits_for is not None

    @property
    def idle(self) -> bool:
        """Say whether it has nothing to do, whatever is stuck beside it."""
        return len(self.slices) == len(self.apart) and not self.waits

    def load(self) -> tuple[bool, int, int]:
        """Return what tells who is to have a record that anybody may have: the least."""
        return self.waits, self.leased + len(self.row.retries), self.id

    def waiting(self) -> int:
        """Return how many records wait for this worker and for no other one."""
        if self.shares:
            return sum(1 for _ in self.row.behind(self.id))
        return len(self.row) + len(self.row.granted)

    def take_ready(self, most: int) -> list[ClosedLane]:
        """Take the lanes that were readied first, up to ``most`` and as many as fit."""
        heads = [closed.head for closed in islice(self.row.retries, most)]
        return self.row.take_ready(self.bytes.fitting(heads, most))

    def hold_later(self) -> None:
        """While it joins: put what was received since in a place where it waits for the rest.

        What came back goes before what waits there, as it does everywhere.
        """
        before: list[Record] = []
        since: list[Record] = []
        for record in self.row.front:
            (since if self._is_later(record) else before).append(record)
        self.row.front = before
        self.later.put_first(since)
        backlog = self.row.backlog
        routed = [self._is_later(each) for each in backlog.records]
        if any(routed):
            self.later.extend(backlog.pick(routed))

    def _is_later(self, record: Record) -> bool:
        return record.offset() >= self.joined_at.get(partition_of(record), 0)

    def forget_before(self, partitions: Collection[TopicPartition]) -> None:
        """While it joins: wait for nothing of these, which are gone; what comes of them is new.

        Else two that join could wait for each other, each for what the other holds for later.
        """
        if self.joined_at:
            those = self.joined_at.items()
            self.joined_at = {each: 0 if each in partitions else end for each, end in those}

    def end_later(self) -> None:
        """Put what waits there back behind all that was received before it.

        What was routed just now, as a key that could not be read before, comes behind what waits.
        """
        self.hold_later()
        self.row.merge().extend(self.later.take(len(self.later))[0])

    def lease(self, leased: Leased) -> None:
        """Note that the slice is leased to it, in the same step in which it was admitted."""
        self.slices[leased.slice.id] = leased
        self.leased += len(leased.slice.records)
        self.bytes.lease(leased)

    def release(self, leased: Leased, count: int, seconds: float) -> None:
        """End all ``count`` leases of the oldest slice (of any, individually); learn its time.

        A stuck record is behind nothing, and its time tells nothing of others.
        """
        id_ = leased.slice.id
        if id_ in self.apart:
            self.apart.remove(id_)
            self.waits_for = None if self.waits_for == id_ else self.waits_for
            self.detached = None if self.detached == id_ else self.detached
            del self.slices[id_]
            self.leased -= count
            self.busy_seconds += seconds
            return
        if id_ not in self.slices or not (self.individually or self._oldest() == id_):
            raise InvariantError(
                f"{self.name} reported a slice that is not the oldest one it holds; "
                "reports must arrive in the order of the leases"
            )
        del self.slices[id_]
        leased.free()
        self.bytes.release(leased)
        self.leased -= count
        self.busy_seconds += seconds
        if count and not self.individually:  # what runs at once says nothing of how long a slice is
            self._resize(count, seconds)

    def end(self, leased: Leased, indices: Collection[int], seconds: float) -> None:
        """End leases of a slice of which others go on; what it took is not learnt from."""
        self.bytes.take_back(leased, indices)
        leased.end(indices)
        self.leased -= len(indices)
        self.busy_seconds += seconds

    def _oldest(self) -> int | None:
        if not self.apart:
            return next(iter(self.slices))
        return next((id_ for id_ in self.slices if id_ not in self.apart), None)

    def set_apart(self, leased: Leased, *, goes_on: bool) -> None:
        """Note that of this slice only a stuck record is left, for which the worker may wait."""
        id_ = leased.slice.id
        self.slices[id_] = leased
        leased.free()
        self.bytes.release(leased)
        self.apart.add(id_)
        if not goes_on:
            self.waits_for = id_
        elif self.waits_for == id_:
            self.waits_for = None

    def take_back(self, leased: Leased, unstarted: Collection[int]) -> None:
        """End the leases of records that the worker had not started."""
        self.bytes.take_back(leased, unstarted)
        leased.end(unstarted)
        self.leased -= len(unstarted)
        if not len(leased):
            leased.free()  # nothing of it runs: others may have its shards before its end is told

    def _resize(self, count: int, seconds: float) -> None:
        fits = int(self.row.slice_seconds * count / seconds) if seconds > 0 else self.slice_max
        self.slice_size = max(1, min(fits, self.slice_size * 2, self.slice_max))
        self.worth = max(1, int(WORTH_SECONDS * count / seconds)) if seconds > 0 else 1


def merged(keyed: Iterable[Record], keyless: Iterable[Record]) -> list[Record]:
    """Return both with each keyless record before what is later in its partition.

    Nothing else moves: a lane may run through several partitions.
    """
    alone: dict[tuple[str, int], deque[Record]] = {}
    for record in keyless:
        alone.setdefault(_partition(record), deque()).append(record)
    found: list[Record] = []
    for record in keyed:
        waiting = alone.get(_partition(record))
        while waiting and waiting[0].offset() < record.offset():
            found.append(waiting.popleft())
        found.append(record)
    return [*found, *chain.from_iterable(alone.values())]


def _partition(record: Record) -> tuple[str, int]:
    return record.topic(), record.partition()

"""Workers in the core: identity, state, waiting records, leases and their bytes.

A serial worker holds at most two slices: one waits while one runs. The size of a slice follows the
duration of the last one. A fast handler gets hundreds of records, one that takes 50 ms gets one.
That limits how much a fence, a revoke or a joining or leaving worker has to wait for or recall. A
worker whose records end in any order may hold any number of slices. No waiting record has another
one in front of it there.

The bytes leased to a worker may be bounded. Each record is then weighed when it is leased. Nothing
is sampled, and without the bound it costs nothing. One record is always leased, however large.

:mod:`kafka_keyshared.core.worker_changes.worker_lifecycle` has the actions when a worker joins or
leaves.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, islice

from kafka_keyshared.core.contract.slices import SliceState
from kafka_keyshared.core.contract.transitions import follow
from kafka_keyshared.core.lanes.closed import ClosedLane
from kafka_keyshared.core.records.backlog import Backlog
from kafka_keyshared.core.records.window import length_of
from kafka_keyshared.core.workers.run_queue import RunQueue
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import Record, TopicPartition, partition_of


class LeaseBytes:
    """Bytes leased to a worker, and their bound ``most``; None means no bound."""

    def __init__(self, most: int | None) -> None:
        self.most = most
        self.held = 0
        # By slice and index, for leased records.
        self._sizes: dict[int, dict[int, int]] = {}

    def fitting(
        self, records: Collection[Record | None], most: int, *beside: Sequence[Record]
    ) -> int:
        """Return how many of the records fit, at most ``most``.

        The current leases and the records in ``beside`` take their bytes first.
        """
        most = min(most, len(records))
        if self.most is None:
            return most
        left = self.most - self.held - sum(map(size_of, chain(*beside)))
        alone = not (self._sizes or any(beside))
        count = 0
        for record in islice(records, most):
            left -= size_of(record)
            if left < 0 and not alone:
                break
            alone = False
            count += 1
        return count

    def lease(self, leased: SliceState) -> None:
        """Count the bytes of a slice that is leased."""
        if self.most is not None:
            sizes = dict(enumerate(map(size_of, leased.slice.records)))
            self._sizes[leased.slice.id] = sizes
            self.held += sum(sizes.values())

    def take_back(self, leased: SliceState, indices: Iterable[int]) -> None:
        """Subtract the bytes of leases that were taken back."""
        if self.most is not None:
            sizes = self._sizes[leased.slice.id]
            self.held -= sum([sizes.pop(index) for index in indices])

    def release(self, leased: SliceState) -> None:
        """Subtract a slice that has ended or of which only a stuck record is left."""
        if self.most is not None:
            self.held -= sum(self._sizes.pop(leased.slice.id, {}).values())

    def is_true_of(self, slices: Mapping[int, SliceState]) -> bool:
        """Return whether the counted bytes match these slices; the invariant checks use this."""
        if self.most is None:
            return True
        counted = {(id_, index) for id_, sizes in self._sizes.items() for index in sizes}
        leased = {(id_, index) for id_, each in slices.items() for index in each.indices()}
        total = sum(sum(sizes.values()) for sizes in self._sizes.values())
        over = self.held > self.most and len(leased) > 1
        return counted == leased and total == self.held and not over


def size_of(record: Record | None) -> int:
    """Return the bytes of a record's key and value, 0 for a head that is forgotten."""
    return 0 if record is None else length_of([record.key(), record.value()])


SLICES_MAX = 2
WORTH_SECONDS = 0.0005
"""Minimum work in seconds for a batch: below it, the thread wake-up is most of the cost."""

FIRST_SLICE = 32


class WorkerState(enum.Enum):
    """The state of a worker."""

    JOINING = "joining"
    """It has its slots. It gets only records that were received before it joined, until those are
    settled at all workers. This is the rule of Pulsar 3.x."""
    ACTIVE = "active"
    """It has its slots, and gets all records of them."""
    LEAVING = "leaving"
    """It has no slots and gets no leases; its last leases have not ended yet."""
    GONE = "gone"
    """It has neither slots nor leases."""


class WorkerEvent(enum.Enum):
    """An event that changes a worker's state."""

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
"""The next state by state and event; a missing entry is an impossible event."""

GETS_LEASES = (_S.JOINING, _S.ACTIVE)


class Worker:
    """One worker's leases and waiting records.

    ``id`` identifies it in leases and reports. It is unique in a subscription, also if a worker
    takes the name of another one that is gone.
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
        row: RunQueue | None = None,
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
        # The number of records worth a batch, by the duration of the last one.
        self.worth = 1
        self.row = RunQueue(id_ if state in GETS_LEASES else None) if row is None else row
        self.shares = row is not None
        # By slice id, in the order of the leases.
        self.slices: dict[int, SliceState] = {}
        self.leased = 0
        # While it joins: the received ends before it joined, and the records received since.
        self.joined_at: Mapping[TopicPartition, int] = {}
        self.later = Backlog()
        # Whether it was dismissed, so it finishes its running records.
        self.dismissed = False
        # The number of recalls that it has not answered.
        self.recalls = 0
        # Its slices with only a stuck record left. It waits for one of them if no other thread can
        # do its work.
        self.apart: set[int] = set()
        self.waits_for: int | None = None
        # The slice that it waits for, if its record is only slow: no ack timeout has passed.
        self.detached: int | None = None
        self.idle_beats = 0
        # Whether it has left while there was no other worker.
        self.alone = False
        # Whether it could not be restarted, and whether its leases then count as settled.
        self.evicted = False
        self.written_off = False
        self.busy_seconds = 0.0
        self.starved_seconds = 0.0
        self.restarts = 0
        # Without reliability: the number of records dropped because it was full.
        self.shed = 0

    def on(self, event: WorkerEvent) -> None:
        """Change to the next state.

        Raises :class:`InvariantError`, and changes nothing, if :data:`WORKER_TABLE` has none.
        """
        self.state = follow(WORKER_TABLE, self.state, event, self.name)
        if not self.shares:
            self.row.holder = self.id if self.state in GETS_LEASES else None

    @property
    def present(self) -> bool:
        """Return whether it is joining or active."""
        return self.state in GETS_LEASES

    def room(self) -> int:
        """Return the maximum size of its next slice, 0 if it must not get one yet."""
        return min(self.slice_size, self._left())

    def places(self) -> int:
        """Return how many records it may be leased at once, in one slice or several."""
        return self._left() if self.individually else self.room()

    def _left(self) -> int:
        """Return how many more records it may hold, not counting stuck ones; 0 if it may get none.

        A worker with an open recall gets none: they would overtake the returned records.
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
        """Return whether it does nothing until a stuck or detached record ends."""
        return self.waits_for is not None

    @property
    def idle(self) -> bool:
        """Return whether it has nothing to run, not counting stuck records."""
        return len(self.slices) == len(self.apart) and not self.waits

    def load(self) -> tuple[bool, int, int]:
        """Return its sort key for a record that any worker may run: the least gets it."""
        return self.waits, self.leased + len(self.row.retries), self.id

    def waiting(self) -> int:
        """Return how many records wait for this worker and for no other one."""
        if self.shares:
            return sum(1 for _ in self.row.behind(self.id))
        return len(self.row) + len(self.row.granted)

    def take_ready(self, most: int) -> list[ClosedLane]:
        """Take the lanes that were queued first, up to ``most`` and as many as fit in bytes."""
        heads = [closed.head for closed in islice(self.row.retries, most)]
        return self.row.take_ready(self.bytes.fitting(heads, most))

    def hold_later(self) -> None:
        """Move the records received since it joined to ``later``, while it joins.

        As everywhere, returned records go before those that already wait there.
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
        """Stop waiting for records of these gone partitions, while it joins; later ones are new.

        Otherwise two joining workers could wait for each other's ``later`` records.
        """
        if self.joined_at:
            those = self.joined_at.items()
            self.joined_at = {each: 0 if each in partitions else end for each, end in those}

    def end_later(self) -> None:
        """Append ``later`` to all records that were received before it.

        Newly routed records, such as those of a key that could not be read before, come after it.
        """
        self.hold_later()
        self.row.merge().extend(self.later.take(len(self.later))[0])

    def lease(self, leased: SliceState) -> None:
        """Add a slice, in the same step in which its room was checked."""
        self.slices[leased.slice.id] = leased
        self.leased += len(leased.slice.records)
        self.bytes.lease(leased)

    def release(self, leased: SliceState, count: int, seconds: float) -> None:
        """End all ``count`` leases of the oldest slice (of any, individually); set the slice size.

        A stuck record has no slice in front of it, and its duration does not count for the size.
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
        if count and not self.individually:  # concurrent records do not show a slice's duration
            self._resize(count, seconds)

    def end(self, leased: SliceState, indices: Collection[int], seconds: float) -> None:
        """End some leases of a slice while others go on; the slice size stays."""
        self.bytes.take_back(leased, indices)
        leased.end(indices)
        self.leased -= len(indices)
        self.busy_seconds += seconds

    def _oldest(self) -> int | None:
        if not self.apart:
            return next(iter(self.slices))
        return next((id_ for id_ in self.slices if id_ not in self.apart), None)

    def set_apart(self, leased: SliceState, *, goes_on: bool) -> None:
        """Mark a slice that has only a stuck record left, for which the worker may wait."""
        id_ = leased.slice.id
        self.slices[id_] = leased
        leased.free()
        self.bytes.release(leased)
        self.apart.add(id_)
        if not goes_on:
            self.waits_for = id_
        elif self.waits_for == id_:
            self.waits_for = None

    def take_back(self, leased: SliceState, unstarted: Collection[int]) -> None:
        """End the leases of records that the worker had not started."""
        self.bytes.take_back(leased, unstarted)
        leased.end(unstarted)
        self.leased -= len(unstarted)
        if not len(leased):
            leased.free()  # no record of it runs: others may have its shards before it is reported

    def _resize(self, count: int, seconds: float) -> None:
        fits = int(self.row.slice_seconds * count / seconds) if seconds > 0 else self.slice_max
        self.slice_size = max(1, min(fits, self.slice_size * 2, self.slice_max))
        self.worth = max(1, int(WORTH_SECONDS * count / seconds)) if seconds > 0 else 1


def merged(keyed: Iterable[Record], keyless: Iterable[Record]) -> list[Record]:
    """Return all records, each keyless one before the later records of its partition.

    The keyed records keep their order, because a lane may have records of several partitions.
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

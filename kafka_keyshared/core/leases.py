"""A worker's side of the core: what waits for it, and what it holds.

A slot-table entry *is* the list of its owner's backlog: routing a record is one look-up and one
append. A worker holds at most two slices, so that one waits while one runs, and the size of a slice
follows the time that the last one took: a fast handler gets hundreds of records, one that takes
50 ms gets one. That keeps small what a fence, a revoke or a resize has to wait for or take back.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator
from itertools import chain

from kafka_keyshared.core.backlog import Backlog
from kafka_keyshared.core.events import Slice
from kafka_keyshared.core.lanes import ClosedLane
from kafka_keyshared.core.places import without
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import Record, TopicPartition

SLICES_HELD = 2
SLICE_SECONDS = 0.1
FIRST_SLICE = 32


class WorkerLeases:
    """What one worker holds and what waits for it. ``index`` is its place in the subscription."""

    def __init__(
        self, name: str, index: int, leases_max: int, *, individually: bool = False
    ) -> None:
        self.name = name
        self.index = index
        self.leases_max = leases_max
        self.individually = individually
        self.slices_held = leases_max if individually else SLICES_HELD
        self.slice_max = max(1, leases_max // self.slices_held)
        self.slice_size = min(FIRST_SLICE, self.slice_max)
        self.backlog = Backlog()
        self.front: list[Record] = []
        self.granted: list[Record] = []
        # The lanes whose heads are to run again, in order; there may be any number of them.
        self.retries: OrderedDict[ClosedLane, None] = OrderedDict()
        self.slices: deque[Slice] = deque()
        self.leased = 0
        self.idle_beats = 0
        self.gone = False
        self.removed = False
        self.busy_seconds = 0.0
        self.starved_seconds = 0.0
        self.restarts = 0

    # ``granted`` is used with one lease per key only: records that hold their lane's lease already.

    def room(self) -> int:
        """Return how many records the next slice may have, 0 when there is to be none yet."""
        if len(self.slices) >= self.slices_held:
            return 0
        return min(self.slice_size, self.leases_free())

    def leases_free(self) -> int:
        """Return how many more records the worker may hold."""
        return 0 if self.gone else max(0, self.leases_max - self.leased)

    def ready(self, closed: ClosedLane) -> None:
        """Let the head of a closed lane run again; once, however often this is said."""
        self.retries[closed] = None

    def take_ready(self, most: int) -> list[ClosedLane]:
        """Take the lanes that were readied first, up to ``most``."""
        return [self.retries.popitem(last=False)[0] for _ in range(min(most, len(self.retries)))]

    def merge_front(self) -> None:
        """Put what must run first (opened lanes, recalled leases) at the head of the backlog."""
        if self.front:
            self.backlog.put_first(self.front)
            self.front = []

    def waiting(self) -> Iterator[Record]:
        """Yield every record that waits to be leased to the worker."""
        yield from self.granted
        yield from self.front
        yield from self.backlog.records

    def empty(self) -> bool:
        """Say whether nothing waits to be leased to the worker."""
        return not (self.granted or self.front or self.backlog.records)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop what waits here and is of these partitions."""
        self.granted[:] = without(self.granted, partitions)
        self.front[:] = without(self.front, partitions)
        self.backlog.forget(partitions)

    def hold(self, taken: Slice) -> None:
        """Record that the slice is leased, in the same step in which it was admitted."""
        self.slices.append(taken)
        self.leased += len(taken.records)

    def release(self, ended: Slice, seconds: float) -> None:
        """End the leases of the oldest slice (of any, individually); learn from its time."""
        in_turn = bool(self.slices) and self.slices[0] is ended
        if not in_turn and self.individually and ended in self.slices:
            self.slices.remove(ended)
            self.slices.appendleft(ended)
            in_turn = True
        if not in_turn:
            raise InvariantError(
                f"{self.name} reported a slice that is not the oldest one it holds; "
                "reports must arrive in the order of the leases"
            )
        self.slices.popleft()
        count = len(ended.records)
        self.leased -= count
        self.busy_seconds += seconds
        if count:
            self._resize(count, seconds)

    def take_back(self, held: Slice, unstarted: list[Record]) -> None:
        """End the leases of records that the worker had not started."""
        if unstarted:
            del held.records[len(held.records) - len(unstarted) :]
            self.leased -= len(unstarted)

    def _resize(self, count: int, seconds: float) -> None:
        fits = int(SLICE_SECONDS * count / seconds) if seconds > 0 else self.slice_max
        self.slice_size = max(1, min(fits, self.slice_size * 2, self.slice_max))


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

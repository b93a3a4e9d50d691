"""The lease of a record, as its handler can query it.

Records pay nothing for this. A worker's thread registers itself once, and a lease is looked up when
a handler asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.model import (
    Attempt,
    Coordinates,
    Record,
    TopicPartition,
    name_of,
    partition_of,
)


class SliceView(Protocol):
    """A leased slice: the part that this module reads."""

    @property
    def epoch(self) -> int:
        """Return the number of partition changes (assigned or gone) before the lease."""

    @property
    def attempts(self) -> Mapping[Coordinates, Attempt]:
        """Return those records of it that failed before."""


class OneLeased(SliceView, Protocol):
    """A slice of one record."""

    @property
    def records(self) -> Sequence[Record]:
        """Return the record, as a sequence of one."""


class LeasedSlice(Protocol):
    """A slice at a worker, and the partitions whose leases are over."""

    @property
    def slice(self) -> SliceView:
        """Return the slice."""

    @property
    def gone(self) -> frozenset[TopicPartition]:
        """Return the partitions whose leases are over."""


class OneHeld(LeasedSlice, Protocol):
    """A slice of one record at a worker."""

    @property
    def slice(self) -> OneLeased:
        """Return the slice."""


class Together:
    """The records of one call, each in a slice of its own."""

    def __init__(self, held: Iterable[OneHeld]) -> None:
        self._held = {name_of(each.slice.records[0]): each for each in held}

    def of(self, record: Record) -> LeasedSlice | None:
        """Return the slice of a record of the call."""
        return self._held.get(name_of(record))


class RunningWorker(Protocol):
    """A worker that runs slices one after the other; it is in one of them or in none."""

    @property
    def name(self) -> str:
        """Return the worker's name."""

    @property
    def attempts(self) -> int | None:
        """Return the number of attempts of a record, where the error's class has no own number."""

    @property
    def current(self) -> LeasedSlice | Together | None:
        """Return the slice that the worker runs, or the several slices of its call."""


WORKER: ContextVar[RunningWorker] = ContextVar("worker")
"""The worker of this thread or task. Tasks and calls of ``asyncio.to_thread`` inherit it."""


def worker_here() -> str:
    """Return the name of the worker that runs a handler here, "" if none does."""
    worker = WORKER.get(None)
    return "" if worker is None else worker.name


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease of one record to one worker, while its partition stays with the instance.

    ``epoch`` never decreases from a record to a later one of the same key. It is larger once the
    partition has gone and come back. It can therefore serve as a fencing token per key, for
    resources that handlers of one instance share. It cannot be compared between instances. If
    several instances write to a resource, use the offset as its fencing token.
    """

    worker: str
    partition: TopicPartition
    epoch: int
    _held: LeasedSlice = field(repr=False, compare=False)

    def over(self) -> bool:
        """Return whether the partition has gone; another member may have run the record again.

        Once true, it stays true, also when the partition comes back. The result of the handler then
        settles nothing. The handler should leave its effects undone and return.
        """
        return self.partition in self._held.gone


def lease_of(record: Record) -> Lease:
    """Return the lease of the record that a handler is running, from within the handler.

    Raises :class:`KeySharedError` outside a handler call, such as in a thread that the handler
    started.
    """
    worker, held = _running(record, "lease")
    return Lease(worker.name, partition_of(record), held.slice.epoch, held)


def attempt_of(record: Record) -> Attempt:
    """Return the attempt of the record that a handler is running, from within the handler.

    Raises :class:`KeySharedError` outside a handler call, such as in a thread that the handler
    started.
    """
    worker, held = _running(record, "attempt")
    attempts = held.slice.attempts
    attempt = attempts.get((partition_of(record), record.offset())) if attempts else None
    return attempt or Attempt(of=worker.attempts)


def _running(record: Record, what: str) -> tuple[RunningWorker, LeasedSlice]:
    """Return the worker that runs a handler here, and the slice with the record."""
    worker = WORKER.get(None)
    held = None if worker is None else worker.current
    if isinstance(held, Together):
        held = held.of(record)
    if worker is None or held is None:
        raise KeySharedError(
            f"no handler runs here: ask {what}_of(record) in the handler, "
            f"and give the {what} to threads that it starts"
        )
    return worker, held

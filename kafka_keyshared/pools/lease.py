"""What a handler may ask of the lease that it works under.

Nothing of this costs a record anything: a worker's thread says once who it is, and the rest is
looked up when a handler asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.model import Record, TopicPartition, name_of, partition_of


class Leased(Protocol):
    """The slice, as far as it is asked for here."""

    @property
    def epoch(self) -> int:
        """Return the number of partitions that had come and gone when it was leased."""


class OneLeased(Leased, Protocol):
    """A slice of one record."""

    @property
    def records(self) -> Sequence[Record]:
        """Return the record."""


class Held(Protocol):
    """A slice in the hands of a worker, and the partitions of which its leases are over."""

    @property
    def slice(self) -> Leased:
        """Return the slice."""

    @property
    def gone(self) -> frozenset[TopicPartition]:
        """Return those partitions."""


class OneHeld(Held, Protocol):
    """A slice of one record in the hands of a worker."""

    @property
    def slice(self) -> OneLeased:
        """Return the slice."""


class Together:
    """The records of one call, each in a slice of its own."""

    def __init__(self, held: Iterable[OneHeld]) -> None:
        self._held = {name_of(each.slice.records[0]): each for each in held}

    def of(self, record: Record) -> Held | None:
        """Return the slice of a record of the call."""
        return self._held.get(name_of(record))


class Worker(Protocol):
    """Whoever runs slices, one after the other, and is in one of them or in none."""

    @property
    def name(self) -> str:
        """Return what the worker is called."""

    @property
    def current(self) -> Held | Together | None:
        """Return the slice that it is in, or several that it is in together."""


WORKER: ContextVar[Worker] = ContextVar("worker")
"""Whose thread this is. A task, and what ``asyncio.to_thread`` calls, take it along."""


def worker_here() -> str:
    """Return what the worker is called that runs a handler here; nothing where none does."""
    worker = WORKER.get(None)
    return "" if worker is None else worker.name


@dataclass(frozen=True, slots=True)
class Lease:
    """One record in the hands of one worker, for as long as its partition stays with the instance.

    ``epoch`` is never smaller for a later record of a key, and larger once the partition has gone
    and come back: a fencing token, key by key, for whatever the handlers of one instance share.
    Between instances it says nothing; what several of them write to is fenced by the offset.
    """

    worker: str
    partition: TopicPartition
    epoch: int
    _held: Held = field(repr=False, compare=False)

    def over(self) -> bool:
        """Say whether the partition has gone: another member may have run the record again by now.

        It never becomes false again, also when the partition comes back. Whatever the handler does
        from then on settles nothing, so it had better leave its effects undone and return.
        """
        return self.partition in self._held.gone


def lease_of(record: Record) -> Lease:
    """Return the lease of the record that a handler is running, from within the handler.

    Raises :class:`KeySharedError` where no handler runs, such as in a thread of the handler's own.
    """
    worker = WORKER.get(None)
    held = None if worker is None else worker.current
    if isinstance(held, Together):
        held = held.of(record)
    if worker is None or held is None:
        raise KeySharedError(
            "no handler runs here: ask lease_of(record) in the handler, "
            "and give the lease to threads that it starts"
        )
    return Lease(worker.name, partition_of(record), held.slice.epoch, held)

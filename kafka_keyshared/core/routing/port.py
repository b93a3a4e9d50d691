"""Interface of all routings: the owner of each slot, and its changes.

A routing is immutable. A worker that joins or leaves, or a range that is assigned, makes a new one.
So the old and the new one can be compared, and the moved slots can be drained. Owners are indices
into ``workers``, because the table is made of them. A slot without a worker has an :class:`Unowned`
instead, which says how its records are handled.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import ClassVar, NamedTuple, TypeAlias

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import SLOTS


class Unowned(enum.IntEnum):
    """Why a slot has no worker; below 0, where the indices of workers begin."""

    UNASSIGNED = -1
    """No worker was ever declared for it: ``on_unmatched`` decides what happens to its records."""
    AWAY = -2
    """The worker declared for it is away: its records are held until that worker is present."""
    ANYBODY = -3
    """Slots do not count: records are distributed to the workers in turn."""


Owner: TypeAlias = str | Unowned
"""The name of a worker, or why there is none."""


class SlotSpan(NamedTuple):
    """Adjacent slots with one owner, ``first`` and ``last`` included."""

    first: int
    last: int
    owner: Owner


class Move(NamedTuple):
    """Adjacent slots that have changed their owner, ``first`` and ``last`` included."""

    first: int
    last: int
    before: Owner
    after: Owner


class Routing(ABC):
    """The owner of each slot, over named workers.

    ``workers`` are the present ones; the numbers of :meth:`arcs` and :meth:`table` are indices into
    it. A routing without slots (:class:`.Unordered`) has a single arc, with the owner
    ``Unowned.ANYBODY``.
    """

    __slots__ = ()

    workers: tuple[str, ...]

    takes_filters: ClassVar[bool] = True
    """Whether workers may declare which keys they take."""

    has_gaps: ClassVar[bool] = False
    """Whether a slot may have no worker while workers are present."""

    in_ranges: ClassVar[bool] = False
    """Whether each worker's slots are few ranges, which people can read."""

    @abstractmethod
    def arcs(self) -> Iterable[tuple[int, int]]:
        """Return (owner, number of slots) from slot 0 on; together they are 65,536.

        The owner is an index into ``workers`` or an :class:`Unowned`.
        """

    @abstractmethod
    def owner_among(self, slot: int, names: AbstractSet[str]) -> Owner:
        """Return the owner of ``slot`` if only these workers had been declared.

        The workers in ``names`` need not be present; ``names`` must not be empty. Filters use this.
        """

    @abstractmethod
    def with_worker(self, name: str) -> Routing:
        """Return the routing with one more worker, the last in ``workers``.

        Raises :class:`~kafka_keyshared.errors.ConfigError` when the worker is there already.
        """

    @abstractmethod
    def without_worker(self, name: str) -> Routing:
        """Return the routing without one worker.

        Raises :class:`~kafka_keyshared.errors.ConfigError` when it is not there or is the last.
        """

    def brought_to(self, names: Sequence[str]) -> Routing:
        """Return the routing with exactly these workers: others have left, missing ones joined.

        Joins come before leaves, so that one worker may replace the only other one.
        """
        routing: Routing = self
        for name in names:
            if name not in routing.workers:
                routing = routing.with_worker(name)
        for name in routing.workers:
            if name not in names:
                routing = routing.without_worker(name)
        return routing

    def uncovered(self, names: AbstractSet[str] | None = None) -> Sequence[SlotSpan]:
        """Return the slots for which none of these workers was declared (None: of all)."""
        del names
        return ()

    def table(self) -> list[int]:
        """Return a new list of 65,536 entries: each slot's owner, as in :meth:`arcs`."""
        table: list[int] = []
        for owner, slots in self.arcs():
            table += [owner] * slots
        return table

    def spans(self) -> Iterator[SlotSpan]:
        """Yield the slots from 0 on by owner, in as few spans as possible."""
        first = end = 0
        last_owner: int | None = None
        for owner, slots in self.arcs():
            if owner != last_owner and slots:
                if last_owner is not None:
                    yield SlotSpan(first, end - 1, self._named(last_owner))
                first, last_owner = end, owner
            end += slots
        if last_owner is not None:
            yield SlotSpan(first, end - 1, self._named(last_owner))

    def owner(self, slot: int) -> Owner:
        """Return the owner of ``slot``. Raises ``IndexError`` for a slot outside 0..65535."""
        check_slot(slot)
        return next(span.owner for span in self.spans() if slot <= span.last)

    def share(self) -> dict[str, float]:
        """Return for each worker the fraction of all slots that it owns; 1 is all of them."""
        owned = dict.fromkeys(range(len(self.workers)), 0)
        for owner, slots in self.arcs():
            if owner >= 0:
                owned[owner] += slots
        return {name: owned[index] / SLOTS for index, name in enumerate(self.workers)}

    def _named(self, owner: int) -> Owner:
        return self.workers[owner] if owner >= 0 else Unowned(owner)


def moves(old: Routing, new: Routing) -> Iterator[Move]:
    """Yield the slots, ascending, whose owner in ``new`` is not the one in ``old``.

    Owners are compared by name, because a worker may have another index in the new routing.
    """
    earlier, later = old.spans(), new.spans()
    was, now = next(earlier), next(later)
    first = 0
    while True:
        last = min(was.last, now.last)
        if was.owner != now.owner:
            yield Move(first, last, was.owner, now.owner)
        first = last + 1
        if first == SLOTS:
            return
        was = next(earlier) if was.last == last else was
        now = next(later) if now.last == last else now


def moved(old: Routing, new: Routing) -> list[int]:
    """Return the slots, ascending, whose owner in ``new`` has another name than in ``old``."""
    return [slot for move in moves(old, new) for slot in range(move.first, move.last + 1)]


def checked(names: Sequence[str], what: str) -> tuple[str, ...]:
    """Return the names of the workers of ``what``.

    Raises :class:`~kafka_keyshared.errors.ConfigError` for none, an empty one or one given twice.
    """
    names = tuple(names)
    if not names:
        raise ConfigError(f"{what} has no workers: give at least one worker name")
    if "" in names:
        raise ConfigError(f"worker number {names.index('')} of {what} has an empty name: name it")
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ConfigError(
            f"{what} has two workers named {', '.join(map(repr, twice))}: give each its own name"
        )
    return names


def rest(routing: Routing, name: str, what: str) -> tuple[str, ...]:
    """Return the workers other than ``name``.

    Raises :class:`~kafka_keyshared.errors.ConfigError` when it is not there or is the last.
    """
    if name not in routing.workers:
        raise ConfigError(
            f"worker {name!r} is not in {what}; its workers are {', '.join(routing.workers)}"
        )
    return checked([other for other in routing.workers if other != name], what)


def check_slot(slot: int) -> None:
    """Raise ``IndexError`` for a slot outside 0..65535."""
    if not 0 <= slot < SLOTS:
        raise IndexError(f"slot {slot} is not in 0..{SLOTS - 1}")

"""Exclusive: one worker has everything, the others stand by.

As Celeriant's *ordering required*: the strictest order, and no more than one worker's speed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import ClassVar

from kafka_keyshared.core.routing.port import Owner, Routing, Unowned, check_slot, checked, rest
from kafka_keyshared.hashing import SLOTS

_WHAT = "the exclusive routing"
_NUMBER = re.compile(r"([0-9]+)")


@dataclass(frozen=True, slots=True, init=False)
class Exclusive(Routing):
    """All slots are the first worker's in the order of the names.

    Numbers in names count as numbers: ``worker-2`` comes before ``worker-10``. Who is active
    follows from the names of those that are there, not from who came first: one with an earlier
    name that joins takes over, and the slots drain as in any other change.

    Raises :class:`~kafka_keyshared.errors.ConfigError` for no workers, a name given twice or an
    empty name.
    """

    workers: tuple[str, ...]

    takes_filters: ClassVar[bool] = False
    in_ranges: ClassVar[bool] = True

    def __init__(self, workers: Sequence[str]) -> None:
        # The only way to fill a frozen instance; nothing writes to it afterwards.
        object.__setattr__(self, "workers", checked(workers, _WHAT))

    @property
    def active(self) -> str:
        """The worker that has everything."""
        return min(self.workers, key=_by_name)

    @property
    def standby(self) -> tuple[str, ...]:
        """The others, in the order in which they follow when the active one leaves."""
        return tuple(sorted(self.workers, key=_by_name)[1:])

    def owner(self, slot: int) -> str:
        """Return whose ``slot`` is. Raises ``IndexError`` for a slot outside 0..65535."""
        check_slot(slot)
        return self.active

    def owner_among(self, slot: int, names: AbstractSet[str]) -> Owner:
        """Return the first of these workers that is there."""
        check_slot(slot)
        there = (name for name in self.workers if name in names)
        return min(there, key=_by_name, default=Unowned.AWAY)

    def arcs(self) -> Iterator[tuple[int, int]]:
        """Yield the one arc, of the active worker."""
        yield self.workers.index(self.active), SLOTS

    def with_worker(self, name: str) -> Exclusive:
        """Return the routing with one more worker.

        Raises :class:`~kafka_keyshared.errors.ConfigError` when the worker is there already.
        """
        return Exclusive((*self.workers, name))

    def without_worker(self, name: str) -> Exclusive:
        """Return the routing without one worker.

        Raises :class:`~kafka_keyshared.errors.ConfigError` when it is not there or is the last.
        """
        return Exclusive(rest(self, name, _WHAT))


def _by_name(name: str) -> tuple[list[str | int], str]:
    """Return what names are ordered by: every other part of a name is a number."""
    parts = _NUMBER.split(name)
    return [int(part) if at % 2 else part for at, part in enumerate(parts)], name

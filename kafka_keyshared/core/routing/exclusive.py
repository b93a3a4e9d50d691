"""Exclusive routing: one worker owns all slots, the others stand by.

It corresponds to Celeriant's *ordering required*: the strictest order, at the speed of one worker.
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
    """All slots belong to the first worker in the order of the names.

    Numbers in names count as numbers: ``worker-2`` comes before ``worker-10``. The active worker
    follows from the names of the present workers, not from who came first. A joining worker with an
    earlier name takes over, and the slots drain as in any other change.

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
        """The worker that owns all slots."""
        return min(self.workers, key=_by_name)

    @property
    def standby(self) -> tuple[str, ...]:
        """The others, in the order in which they follow when the active one leaves."""
        return tuple(sorted(self.workers, key=_by_name)[1:])

    def owner(self, slot: int) -> str:
        """Return the owner of ``slot``. Raises ``IndexError`` for a slot outside 0..65535."""
        check_slot(slot)
        return self.active

    def owner_among(self, slot: int, names: AbstractSet[str]) -> Owner:
        """Return the first of these workers that is present."""
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
    """Return the sort key of a name: every other part of it is a number."""
    parts = _NUMBER.split(name)
    return [int(part) if at % 2 else part for at, part in enumerate(parts)], name

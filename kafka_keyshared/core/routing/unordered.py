"""Unordered routing: records go to the workers in turn, without slots.

It corresponds to a shared subscription of Danube or Pulsar: the most even load, and no order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import ClassVar

from kafka_keyshared.core.routing.port import Owner, Routing, Unowned, check_slot, checked, rest
from kafka_keyshared.hashing import SLOTS

_WHAT = "the unordered routing"


@dataclass(frozen=True, slots=True, init=False)
class Unordered(Routing):
    """Slots have no particular owner, so none ever moves or drains.

    Records take their turns through ``workers``, like records without a key.

    Raises :class:`~kafka_keyshared.errors.ConfigError` for no workers, a name given twice or an
    empty name.
    """

    workers: tuple[str, ...]

    takes_filters: ClassVar[bool] = False

    def __init__(self, workers: Sequence[str]) -> None:
        # The only way to fill a frozen instance; nothing writes to it afterwards.
        object.__setattr__(self, "workers", checked(workers, _WHAT))

    def owner_among(self, slot: int, names: AbstractSet[str]) -> Owner:
        """Return ``Unowned.ANYBODY`` if any of these workers is present, else ``Unowned.AWAY``."""
        check_slot(slot)
        return Unowned.AWAY if names.isdisjoint(self.workers) else Unowned.ANYBODY

    def arcs(self) -> Iterator[tuple[int, int]]:
        """Yield the one arc, with the owner ``Unowned.ANYBODY``."""
        yield Unowned.ANYBODY, SLOTS

    def with_worker(self, name: str) -> Unordered:
        """Return the routing with one more worker.

        Raises :class:`~kafka_keyshared.errors.ConfigError` when the worker is there already.
        """
        return Unordered((*self.workers, name))

    def without_worker(self, name: str) -> Unordered:
        """Return the routing without one worker.

        Raises :class:`~kafka_keyshared.errors.ConfigError` when it is not there or is the last.
        """
        return Unordered(rest(self, name, _WHAT))

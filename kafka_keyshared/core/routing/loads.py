"""How evenly a slot table spreads what there is of each slot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

Amount = TypeVar("Amount", int, float)


def loads(slots: Mapping[int, Amount], table: Sequence[int], workers: int) -> dict[int, Amount]:
    """Return what each of so many workers gets of what is in these slots."""
    found: dict[int, Amount] = dict.fromkeys(range(workers), 0)
    for slot, amount in slots.items():
        found[table[slot]] += amount
    return found


def busiest(spread: Mapping[int, int], records: int, workers: int) -> int:
    """Return how many of ``records`` the busiest of the workers has to run.

    ``spread`` is what the ring gives each worker. Records without a key go to whoever has least to
    do, so they fill up the others and add to the busiest only when all are level.
    """
    return max(max(spread.values(), default=0), -(-records // workers))

"""Measures of how evenly a slot table spreads the load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

Amount = TypeVar("Amount", int, float)


def loads(slots: Mapping[int, Amount], table: Sequence[int], workers: int) -> dict[int, Amount]:
    """Return the amount that each worker (0 to ``workers`` - 1) gets from these slots."""
    found: dict[int, Amount] = dict.fromkeys(range(workers), 0)
    for slot, amount in slots.items():
        found[table[slot]] += amount
    return found


def busiest(spread: Mapping[int, int], records: int, workers: int) -> int:
    """Return how many of ``records`` the busiest of the workers has to run.

    ``spread`` is the number of records that the ring gives each worker. Records without a key go to
    the least loaded worker. They fill up the others first, and add to the busiest only when all are
    level.
    """
    return max(max(spread.values(), default=0), -(-records // workers))

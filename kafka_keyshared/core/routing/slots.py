"""Sets of slots, stored as runs of adjacent slots.

A joining worker moves tens of thousands of slots. They move arc by arc, in a few hundred runs,
because the owner thread does nothing else during the move.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, starmap
from typing import TypeAlias, overload

Run: TypeAlias = tuple[int, int]
"""Adjacent slots: the first one, and the one behind the last."""

Arcs: TypeAlias = Sequence[tuple[int, int]]
"""Owners from slot 0 on: the slot behind each arc, and the owner of the arc."""

Move: TypeAlias = tuple[Run, int, int]
"""Slots that have changed their owner, the old owner, and the new one."""


class Slots(Sequence[int]):
    """Slots, ascending. ``runs`` are sorted, and neither overlap nor touch."""

    __slots__ = ("_starts", "runs")

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        """Join these runs, which may be in any order and overlap."""
        joined: list[Run] = []
        start = end = -1
        for first, behind in sorted(runs):
            if first > end:
                if end > start:
                    joined.append((start, end))
                start, end = first, behind
            elif behind > end:
                end = behind
        if end > start:
            joined.append((start, end))
        self.runs = joined
        self._starts = [first for first, _ in joined]

    @classmethod
    def single(cls, slots: Iterable[int]) -> Slots:
        """Return these slots, given one by one."""
        return cls((slot, slot + 1) for slot in slots)

    def __len__(self) -> int:
        return sum([end - start for start, end in self.runs])

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(starmap(range, self.runs))

    def __contains__(self, slot: object) -> bool:
        if not isinstance(slot, int):
            return False
        at = bisect_right(self._starts, slot) - 1
        return at >= 0 and slot < self.runs[at][1]

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[int]: ...
    def __getitem__(self, at: int | slice) -> int | Sequence[int]:
        return tuple(self)[at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slots) and self.runs == other.runs

    def __hash__(self) -> int:
        return hash(tuple(self.runs))

    def __repr__(self) -> str:
        return f"Slots({self.runs})"

    def without(self, others: Slots) -> Slots:
        """Return the slots that are not among the others."""
        left: list[Run] = []
        away = iter((*others.runs, (1 << 64, 1 << 64)))
        first, behind = next(away)
        for start, end in self.runs:
            at = start
            while at < end:
                while behind <= at:
                    first, behind = next(away)
                if first > at:
                    left.append((at, min(end, first)))
                at = behind
        return Slots(left)

    def by_owner(self, arcs: Arcs) -> dict[int, list[Run]]:
        """Return the runs by owner, in the order of the first slot of each."""
        found: dict[int, list[Run]] = {}
        arc = 0
        for start, end in self.runs:
            at = start
            if arcs[arc][0] <= at:
                arc = bisect_right(arcs, (at + 1,), arc)
            while True:
                behind, owner = arcs[arc]
                runs = found.get(owner)
                if runs is None:
                    runs = found[owner] = []
                if behind >= end:
                    runs.append((at, end))
                    break
                runs.append((at, behind))
                at = behind
                arc += 1
        return found


def moved(before: Arcs, after: Arcs) -> Iterator[Move]:
    """Yield the runs that have changed their owner, with the old and the new owner."""
    earlier = iter(before)
    behind, old = next(earlier)
    start = 0
    for end, new in after:
        while behind < end:
            if old != new and behind > start:
                yield (start, behind), old, new
            start = max(start, behind)
            behind, old = next(earlier)
        if old != new:
            yield (start, end), old, new
        start = end

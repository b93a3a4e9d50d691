"""Auto-split routing: joining workers halve the largest range, leaving ones merge theirs.

This is Pulsar's hash range selector, slot for slot. Each worker has one range. The ranges follow
from the order in which workers joined and left. Two instances agree if that order was the same. A
change touches only two workers. The ring moves fewer slots, but between all workers.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import ClassVar

from kafka_keyshared.core.routing.port import Owner, Routing, Unowned, check_slot, checked, rest
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import SLOTS

_WHAT = "the auto-split ranges"

_bound_of = itemgetter(0)


@dataclass(frozen=True, slots=True, init=False)
class AutoSplit(Routing):
    """Ranges that are halved and merged as workers join and leave.

    ``workers`` is in the order in which they joined. ``bounds`` are (bound, worker), ascending. A
    slot belongs to the first bound at or after it, and the last bound is 65,536. So the lowest
    range has one slot more than its width and the highest one less, as in Pulsar.

    Raises :class:`~kafka_keyshared.errors.ConfigError` for no workers, a name given twice, an empty
    name, or 65,536 workers or more.
    """

    workers: tuple[str, ...]
    bounds: tuple[tuple[int, str], ...]

    in_ranges: ClassVar[bool] = True

    def __init__(self, workers: Sequence[str]) -> None:
        names = _enough(checked(workers, _WHAT))
        bounds = [(SLOTS, names[0])]
        for name in names[1:]:
            _split(bounds, name)
        # The only way to fill a frozen instance; nothing writes to it afterwards.
        object.__setattr__(self, "workers", names)
        object.__setattr__(self, "bounds", tuple(bounds))

    def owner(self, slot: int) -> str:
        """Return the owner of ``slot``. Raises ``IndexError`` for a slot outside 0..65535."""
        return self.bounds[self._place(slot)][1]

    def owner_among(self, slot: int, names: AbstractSet[str]) -> Owner:
        """Return the owner of ``slot`` if the other workers left.

        Each leaving worker gives its range to the one above, and the highest to the one below. So
        the owner is the first of these workers from the slot on, or else the highest of them.
        """
        place = self._place(slot)
        for _, name in (*self.bounds[place:], *reversed(self.bounds[:place])):
            if name in names:
                return name
        return Unowned.AWAY

    def arcs(self) -> Iterator[tuple[int, int]]:
        """Yield (owner, number of slots) from slot 0 on; together they are 65,536."""
        index_of = {name: index for index, name in enumerate(self.workers)}
        start = 0
        for bound, name in self.bounds:
            end = min(bound + 1, SLOTS)
            yield index_of[name], end - start
            start = end

    def with_worker(self, name: str) -> AutoSplit:
        """Return the ranges with one more worker: it gets the lower half of the largest one.

        Of equally large ranges the lowest is halved. Raises
        :class:`~kafka_keyshared.errors.ConfigError` when the worker is there already.
        """
        workers = _enough(checked((*self.workers, name), _WHAT))
        bounds = [*self.bounds]
        _split(bounds, name)
        return _made(workers, bounds)

    def without_worker(self, name: str) -> AutoSplit:
        """Return the ranges without one worker: its range goes to the one above it.

        The highest range goes to the one below. Raises :class:`~kafka_keyshared.errors.ConfigError`
        when the worker is not there or is the last.
        """
        workers = rest(self, name, _WHAT)
        bounds = [each for each in self.bounds if each[1] != name]
        bounds[-1] = (SLOTS, bounds[-1][1])
        return _made(workers, bounds)

    def _place(self, slot: int) -> int:
        check_slot(slot)
        return bisect_left(self.bounds, slot, key=_bound_of)


def _made(workers: tuple[str, ...], bounds: list[tuple[int, str]]) -> AutoSplit:
    made = object.__new__(AutoSplit)
    object.__setattr__(made, "workers", workers)
    object.__setattr__(made, "bounds", tuple(bounds))
    return made


def _enough(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(names) >= SLOTS:
        raise ConfigError(
            f"{_WHAT} have {len(names):,} workers: there are {SLOTS:,} slots to split; give fewer"
        )
    return names


def _split(bounds: list[tuple[int, str]], name: str) -> None:
    """Give the worker the lower half of the largest range; of equally large ones, of the lowest."""
    lower = [0, *map(_bound_of, bounds)]
    widths = [high - low for low, high in pairwise(lower)]
    at = widths.index(max(widths))
    insort(bounds, (lower[at + 1] - widths[at] // 2, name), key=_bound_of)

"""Sticky routing: ranges of slots assigned to named workers.

The ranges work as for Pulsar's sticky consumers, and can be assigned at run time as in Celeriant.
Slots in no range have no owner, also between two ranges of one worker. A range stays with its
worker when that leaves. Its records wait until the worker is back or another takes the range over.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from kafka_keyshared.core.routing.port import (
    Owner,
    Routing,
    SlotSpan,
    Unowned,
    check_slot,
    checked,
    rest,
)
from kafka_keyshared.core.routing.slot_ranges import parse_ranges
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import SLOTS

_WHAT = "the sticky ranges"


class Range(NamedTuple):
    """The slots ``first`` to ``last``, both included, and the worker that they are assigned to."""

    first: int
    last: int
    worker: str

    def __str__(self) -> str:
        return f"{self.first}..{self.last}"


@dataclass(frozen=True, slots=True, init=False)
class StickyRanges(Routing):
    """Slots by worker, as assigned by settings or orders.

    ``ranges`` is in the order of the slots; adjacent ranges of one worker are joined. ``workers``
    are the present ones; by default all that have a range. A worker without a range gets only
    records without a key. A worker that is away keeps its ranges.

    Raises :class:`~kafka_keyshared.errors.ConfigError`, which names the worker and the bounds, for
    a range that is inverted, out of bounds or overlaps another. Also for a worker with an empty
    list.
    """

    workers: tuple[str, ...]
    ranges: tuple[Range, ...]

    has_gaps: ClassVar[bool] = True
    in_ranges: ClassVar[bool] = True

    def __init__(
        self,
        ranges: Mapping[str, Iterable[tuple[int, int]]],
        workers: Sequence[str] | None = None,
    ) -> None:
        names = checked([*ranges] if workers is None else workers, _WHAT)
        asked: list[Range] = []
        for worker, spans in ranges.items():
            own = [_range(span, worker) for span in spans]
            if not own:
                raise ConfigError(
                    f"worker {worker!r} has an empty list of ranges: give it one, or leave it out"
                )
            asked += own
        if not asked:
            raise ConfigError(f"{_WHAT} are empty: give at least one worker a range")
        # The only way to fill a frozen instance; nothing writes to it afterwards.
        object.__setattr__(self, "workers", names)
        object.__setattr__(self, "ranges", _in_order(asked))

    def owner(self, slot: int) -> Owner:
        """Return the owner of ``slot``. Raises ``IndexError`` for a slot outside 0..65535."""
        return self._owner(self._range_of(slot))

    def owner_among(self, slot: int, names: AbstractSet[str]) -> Owner:
        """Return the owner of ``slot``, ignoring the ranges of other workers."""
        found = self._range_of(slot)
        return self._owner(found if found is not None and found.worker in names else None)

    def arcs(self) -> Iterator[tuple[int, int]]:
        """Yield (owner, number of slots) from slot 0 on; together they are 65,536."""
        place = {name: index for index, name in enumerate(self.workers)}
        start = 0
        for each in self.ranges:
            if each.first > start:
                yield Unowned.UNASSIGNED, each.first - start
            yield place.get(each.worker, Unowned.AWAY), each.last - each.first + 1
            start = each.last + 1
        if start < SLOTS:
            yield Unowned.UNASSIGNED, SLOTS - start

    def uncovered(self, names: AbstractSet[str] | None = None) -> Sequence[SlotSpan]:
        """Return the slots that are in no range of these workers (None: of any)."""
        found = []
        start = 0
        for each in self.ranges:
            if names is None or each.worker in names:
                if each.first > start:
                    found.append(SlotSpan(start, each.first - 1, Unowned.UNASSIGNED))
                start = each.last + 1
        if start < SLOTS:
            found.append(SlotSpan(start, SLOTS - 1, Unowned.UNASSIGNED))
        return found

    def assigned(self, first: int, last: int, worker: str) -> StickyRanges:
        """Return the ranges with one more, of slots without an owner.

        Raises :class:`~kafka_keyshared.errors.ConfigError` if any worker, including this one, has
        some of the slots. :meth:`taken_over` accepts such slots.
        """
        return _made(self.workers, (*self.ranges, self._asked(first, last, worker)))

    def taken_over(self, first: int, last: int, worker: str) -> StickyRanges:
        """Return the ranges with these slots assigned to the worker, regardless of their owners.

        The other slots of those ranges stay with their workers. :func:`.moves` returns the changed
        owners.
        """
        asked = self._asked(first, last, worker)
        return _made(self.workers, (*self._beside(asked), asked))

    def withdrawn(self, first: int, last: int) -> StickyRanges:
        """Return the ranges without these slots: they have no owner then.

        Raises :class:`~kafka_keyshared.errors.ConfigError` for an invalid range.
        """
        return _made(self.workers, self._beside(Range(*_slots((first, last), "unassigned"), "")))

    def given(self, first: int, last: int, worker: str | None, *, take_over: bool) -> StickyRanges:
        """Return the ranges after an order: the worker gets the slots; None leaves them unowned.

        Slots in the range of a worker are refused, unless they are taken over or left unowned.
        """
        if worker is None:
            return self.withdrawn(first, last)
        make = self.taken_over if take_over else self.assigned
        return make(first, last, worker)

    def with_worker(self, name: str) -> StickyRanges:
        """Return the ranges with one more worker present; it gets those that were assigned to it.

        Raises :class:`~kafka_keyshared.errors.ConfigError` when the worker is there already.
        """
        return _made(checked((*self.workers, name), _WHAT), self.ranges)

    def without_worker(self, name: str) -> StickyRanges:
        """Return the ranges with one worker away; the records of its ranges wait for it.

        Raises :class:`~kafka_keyshared.errors.ConfigError` when it is not there or is the last.
        """
        return _made(rest(self, name, _WHAT), self.ranges)

    def _range_of(self, slot: int) -> Range | None:
        check_slot(slot)
        place = bisect_left(self.ranges, slot, key=_last)
        if place < len(self.ranges) and self.ranges[place].first <= slot:
            return self.ranges[place]
        return None

    def _owner(self, found: Range | None) -> Owner:
        if found is None:
            return Unowned.UNASSIGNED
        return found.worker if found.worker in self.workers else Unowned.AWAY

    def _beside(self, asked: Range) -> list[Range]:
        """Return the rest of the ranges when these slots are taken out."""
        first = bisect_left(self.ranges, asked.first, key=_last)
        behind = bisect_right(self.ranges, asked.last, key=_first)
        left = [
            Range(start, end, each.worker)
            for each in self.ranges[first:behind]
            for start, end in (
                (each.first, min(each.last, asked.first - 1)),
                (max(each.first, asked.last + 1), each.last),
            )
            if start <= end
        ]
        return [*self.ranges[:first], *left, *self.ranges[behind:]]

    def _asked(self, first: int, last: int, worker: str) -> Range:
        known = dict.fromkeys((*self.workers, *(each.worker for each in self.ranges)))
        if worker not in known:
            raise ConfigError(
                f"range {first}..{last} is for worker {worker!r}, and there is none; give one of "
                f"{', '.join(known)}, or let it join first"
            )
        return _range((first, last), worker)


def read_back(ranges: Mapping[str, str], workers: Sequence[str]) -> StickyRanges:
    """Return the ranges that :func:`written` has written, with these workers present.

    There may be none: the last one may have been withdrawn.
    """
    if not ranges:
        return _made(checked(workers, _WHAT), ())
    return StickyRanges({name: parse_ranges(text) for name, text in ranges.items()}, workers)


def unassigned_slots(routing: Routing) -> str:
    """Return the slots in no range, in the form of a worker's slots; often empty."""
    return ",".join(f"{first}-{last}" for first, last, _ in routing.uncovered())


def written(routing: Routing) -> dict[str, str]:
    """Return each worker's slots in the form of the settings, if the routing is in ranges.

    Assigned ranges are included for workers that are away.
    """
    found: dict[str, list[str]] = {}
    if isinstance(routing, StickyRanges):
        for each in routing.ranges:
            found.setdefault(each.worker, []).append(f"{each.first}-{each.last}")
    elif routing.in_ranges:
        for first, last, owner in routing.spans():
            found.setdefault(str(owner), []).append(f"{first}-{last}")
    return {worker: ",".join(spans) for worker, spans in sorted(found.items())}


def _made(workers: tuple[str, ...], ranges: Iterable[Range]) -> StickyRanges:
    made = object.__new__(StickyRanges)
    object.__setattr__(made, "workers", workers)
    object.__setattr__(made, "ranges", _in_order(ranges))
    return made


def _first(each: Range) -> int:
    return each.first


def _last(each: Range) -> int:
    return each.last


def _range(span: tuple[int, int], worker: str) -> Range:
    return Range(*_slots(span, f"worker {worker!r}"), worker)


def _slots(span: tuple[int, int], whose: str) -> tuple[int, int]:
    try:
        first, last = span
    except (TypeError, ValueError):
        raise ConfigError(
            f"{whose}: range {span!r}: give the first and the last slot, (0, 16383)"
        ) from None
    if not all(isinstance(each, int) and not isinstance(each, bool) for each in (first, last)):
        raise ConfigError(f"{whose}: range {first!r}..{last!r}: slots are whole numbers")
    if not (0 <= first < SLOTS and 0 <= last < SLOTS):
        raise ConfigError(
            f"{whose}: range {first}..{last} is out of bounds: slots are 0..{SLOTS - 1}, "
            "and the last one is in the range"
        )
    if first > last:
        raise ConfigError(
            f"{whose}: range {first}..{last} is inverted: it ends before it begins; the "
            "first slot comes first, and the last one is in the range"
        )
    return first, last


def _in_order(asked: Iterable[Range]) -> tuple[Range, ...]:
    """Return the ranges in slot order, adjacent ones of a worker joined; refuse overlaps."""
    found: list[Range] = []
    given: Range | None = None  # the range before, as it was given: the error names no joined one
    for each in sorted(asked, key=_first):
        if given is not None and each.first <= given.last:
            raise ConfigError(
                f"range {given} of worker {given.worker!r} and {each} of worker {each.worker!r} "
                f"overlap in {each.first}..{min(each.last, given.last)}: a slot has one owner; "
                "shorten one of them, or take the slots over"
            )
        given = each
        before = found[-1] if found else None
        if before is not None and before.worker == each.worker and each.first == before.last + 1:
            found[-1] = Range(before.first, each.last, each.worker)
        else:
            found.append(each)
    return tuple(found)

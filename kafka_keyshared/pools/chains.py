"""Which records of a worker may start: those of which none of their lane runs or waits before them.

What waits for an earlier one of its lane is *chained* to it, in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from kafka_keyshared.core.lane_identity import Lane
from kafka_keyshared.core.slices import BACK, RUNS, UNSTARTED, WAITS, Scattered, Serial, Slice
from kafka_keyshared.model import TopicPartition


class Given:
    """A record in the hands of a worker: the only one of its slice.

    ``lane`` is None where it has no key. ``cancelled`` says that it is to end because it has run
    for too long; ``apart`` that it runs on all the same, and its worker goes on beside it.
    ``awaited`` says that somebody who has asked back what had not started waits for it, although
    the call that it was in has failed and it has yet to run alone. ``gone`` are the partitions of
    which the leases are over, and the owner's; the rest is the worker's.
    """

    __slots__ = ("apart", "awaited", "cancelled", "gone", "lane", "since", "slice", "started")

    def __init__(self, slice_: Slice) -> None:
        self.slice = slice_
        self.lane: Lane | None = None
        self.started = False
        self.since = 0.0
        self.cancelled = False
        self.apart = False
        self.awaited = False
        self.gone: frozenset[TopicPartition] = frozenset()

    def progress(self) -> Serial:
        """Return whether the record runs, as far as others have to know; from any thread."""
        return STARTED if self.started or self.awaited else UNSTARTED


STARTED = Serial(1)


class Handed:
    """A slice in the hands of a worker whose records run in any order.

    ``marks`` say of each record whether it waits, runs or has ended; ``left`` counts those that are
    neither reported as ended nor given back. ``over`` have ended since the last report, which took
    them ``seconds`` in all, and ``dropped`` are those of them that their handler dropped. ``gone``
    are the partitions of which the leases are over, and the owner's; the rest is the worker's.
    """

    __slots__ = ("dropped", "gone", "lanes", "left", "marks", "over", "seconds", "slice")

    def __init__(self, slice_: Slice) -> None:
        self.slice = slice_
        self.marks = bytearray(len(slice_.records))
        self.left = len(slice_.records)
        self.lanes: Sequence[Lane | None] = ()
        self.over: list[int] = []
        self.seconds = 0.0
        self.dropped: list[int] = []
        self.gone: frozenset[TopicPartition] = frozenset()

    def progress(self) -> Scattered:
        """Return which records run and which have ended; from any thread."""
        return Scattered(bytes(self.marks))  # copied in one C call, while the worker writes

    def waiting(self) -> list[int]:
        """Return the records that have not started, and are here."""
        return [index for index, mark in enumerate(self.marks) if mark == WAITS]


Item: TypeAlias = tuple[Handed, int]
"""A record of a slice, by its index there."""

Taken: TypeAlias = list[tuple[int, list[int]]]
"""By the ids of slices, in the order of the leases: records that were taken back, in order."""


class Chains:
    """What waits to be run. ``ready`` may start now, the first one first."""

    def __init__(self) -> None:
        self.ready: deque[Item] = deque()
        # By lanes of which a record is ready or runs: what is behind it; None for nothing.
        self._behind: dict[Lane, deque[Item] | None] = {}

    def add(self, handed: Handed, indices: Iterable[int]) -> None:
        """Let records of a slice wait for their turn, each behind all of its lane."""
        lanes, chained, ready = handed.lanes, self._behind, self.ready
        for index in indices:
            lane = lanes[index]
            if lane is None:
                ready.append((handed, index))
            elif lane not in chained:
                chained[lane] = None
                ready.append((handed, index))
            elif (behind := chained[lane]) is None:
                chained[lane] = deque([(handed, index)])
            else:
                behind.append((handed, index))

    def let_next(self, lane: Lane | None) -> None:
        """Let the next one of a lane start: the one before it has ended."""
        if lane is None:
            return
        if behind := self._behind[lane]:
            self.ready.append(behind.popleft())
        else:
            del self._behind[lane]

    def cut(self, lane: Lane | None) -> Iterable[Item]:
        """Forget a lane; return, in order, what waited behind the one that has ended."""
        return () if lane is None else self._behind.pop(lane, None) or ()

    def clear(self) -> None:
        """Forget what waits."""
        self.ready.clear()
        for lane in self._behind:
            self._behind[lane] = None

    def take_back(
        self, handed: Sequence[Handed], only: Mapping[int, Collection[int]] | None = None
    ) -> Taken:
        """Take out what waits, all or these; return it by slice, in the order of the leases.

        ``handed`` is all that the worker has, in that order.
        """
        back: Taken = []
        self.ready.clear()
        self._behind.clear()
        for each in handed:
            for index, mark in enumerate(each.marks):
                if mark == RUNS and (lane := each.lanes[index]) is not None:
                    self._behind[lane] = None
        for each in handed:
            those = () if only is None else only.get(each.slice.id, ())
            waiting = each.waiting()
            taken = [index for index in waiting if only is None or index in those]
            for index in taken:
                each.marks[index] = BACK
            self.add(each, each.waiting())
            if taken:
                each.left -= len(taken)
                back.append((each.slice.id, taken))
        return back

"""Queues of a worker, with one running record per lane.

A record may start when no earlier record of its lane runs or waits. A record that waits for an
earlier one of its lane is *chained* to it, in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from kafka_keyshared.core.contract.slices import (
    BACK,
    RUNS,
    UNSTARTED,
    WAITS,
    Scattered,
    SerialProgress,
    Slice,
)
from kafka_keyshared.core.records.lane_identity import Lane
from kafka_keyshared.model import TopicPartition


class Given:
    """A record at a worker: the only one of its slice.

    - ``lane`` is None for a record without a key.
    - ``cancelled``: the record ran too long and was cancelled.
    - ``apart``: it runs on all the same, and its worker continues beside it.
    - ``awaited``: a recall waits for the record. Its call has failed, and it has yet to run
      alone.
    - ``gone``: the partitions whose leases are over. Only the owner writes it; the worker writes
      the rest.
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

    def progress(self) -> SerialProgress:
        """Return whether the record counts as running for other threads; from any thread."""
        return STARTED if self.started or self.awaited else UNSTARTED


STARTED = SerialProgress(1)


class Handed:
    """A slice at a worker that runs its records in any order.

    - ``marks``: the state of each record: waiting, running, ended, or taken back.
    - ``left``: the number of records that are neither reported as ended nor handed back.
    - ``over``: the records that ended since the last report, ``seconds`` their total run time,
      ``dropped`` those that the handler dropped.
    - ``gone``: the partitions whose leases are over. Only the owner writes it; the worker writes
      the rest.
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
        return Scattered(bytes(self.marks))  # copied in one C call: the worker writes

    def waiting(self) -> list[int]:
        """Return the records that have not started and were not taken back."""
        return [index for index, mark in enumerate(self.marks) if mark == WAITS]


Item: TypeAlias = tuple[Handed, int]
"""A record of a slice, by its index there."""

Taken: TypeAlias = list[tuple[int, list[int]]]
"""Records that were taken back, in order, by slice id in lease order."""


class Chains:
    """The waiting records of a worker; those in ``ready`` may start now, in order."""

    def __init__(self) -> None:
        self.ready: deque[Item] = deque()
        # For each lane with a ready or running record: the records behind it, None if there are
        # none.
        self._behind: dict[Lane, deque[Item] | None] = {}

    def add(self, handed: Handed, indices: Iterable[int]) -> None:
        """Queue records of a slice, each behind all earlier ones of its lane."""
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
        """Make the next record of a lane ready, because the previous one has ended."""
        if lane is None:
            return
        if behind := self._behind[lane]:
            self.ready.append(behind.popleft())
        else:
            del self._behind[lane]

    def cut(self, lane: Lane | None) -> Iterable[Item]:
        """Forget a lane; return, in order, the records behind the one that has ended."""
        return () if lane is None else self._behind.pop(lane, None) or ()

    def clear(self) -> None:
        """Forget the waiting records."""
        self.ready.clear()
        for lane in self._behind:
            self._behind[lane] = None

    def take_back(
        self, handed: Sequence[Handed], only: Mapping[int, Collection[int]] | None = None
    ) -> Taken:
        """Remove waiting records, all or these; return them by slice, in lease order.

        ``handed`` is all slices that the worker holds, in that order.
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

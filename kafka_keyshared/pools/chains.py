"""Which records of a worker may start: those of which none of their lane runs or waits before them.

What waits for an earlier one of its lane is *chained* to it, in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable

from kafka_keyshared.core.lanes import Lane
from kafka_keyshared.core.slices import Slice
from kafka_keyshared.model import TopicPartition


class Given:
    """A record in the hands of a worker: the only one of its slice.

    ``lane`` is None where it has no key. ``cancelled`` says that it is to end because it has run
    for too long; ``apart`` that it runs on all the same, and its worker goes on beside it. ``gone``
    are the partitions of which the leases are over, and the owner's; the rest is the worker's.
    """

    __slots__ = ("apart", "cancelled", "gone", "lane", "since", "slice", "started")

    def __init__(self, slice_: Slice) -> None:
        self.slice = slice_
        self.lane: Lane | None = None
        self.started = False
        self.since = 0.0
        self.cancelled = False
        self.apart = False
        self.gone: frozenset[TopicPartition] = frozenset()


class Chains:
    """What waits to be run. ``ready`` may start now, the first one first."""

    def __init__(self) -> None:
        self.ready: deque[Given] = deque()
        # By lanes of which a record is ready or runs: what is behind it; None for nothing.
        self._behind: dict[Lane, deque[Given] | None] = {}

    def add(self, given: Given) -> None:
        """Let a record wait for its turn, behind all of its lane."""
        lane = given.lane
        if lane is None:
            self.ready.append(given)
        elif lane not in self._behind:
            self._behind[lane] = None
            self.ready.append(given)
        elif (behind := self._behind[lane]) is None:
            self._behind[lane] = deque((given,))
        else:
            behind.append(given)

    def let_next(self, lane: Lane | None) -> None:
        """Let the next one of a lane start: the one before it has ended."""
        if lane is None:
            return
        if behind := self._behind.get(lane):
            self.ready.append(behind.popleft())
        else:
            self._behind.pop(lane, None)

    def cut(self, lane: Lane | None) -> Iterable[Given]:
        """Forget a lane; return, in order, what waited behind the one that has ended."""
        return () if lane is None else self._behind.pop(lane, None) or ()

    def clear(self) -> None:
        """Forget everything."""
        self.ready.clear()
        self._behind.clear()

    def take_back(self, given: Iterable[Given], ids: Container[int] | None = None) -> list[Given]:
        """Take out what waits, of these slices or of all; return it in the order of the leases.

        ``given`` is all that the worker has, in that order.
        """
        everything = list(given)
        waits = {each.slice.id for each in self.ready}
        for behind in self._behind.values():
            waits.update(each.slice.id for each in behind or ())
        waiting = [each for each in everything if each.slice.id in waits]
        back = [each for each in waiting if ids is None or each.slice.id in ids]
        self.clear()
        for each in everything:
            if each.started and each.lane is not None:
                self._behind[each.lane] = None
        for each in waiting:
            if ids is not None and each.slice.id not in ids:
                self.add(each)
        return back

"""The lanes in which a record of a worker has failed, as the worker knows them.

From a failure until the fence comes by, the worker hands back unrun whatever else it has of that
lane. This is the worker's half of :mod:`kafka_keyshared.core.failures`, the same for every pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from kafka_keyshared.core.lane_identity import Lane, is_keyless, lane_of
from kafka_keyshared.core.slices import Slice
from kafka_keyshared.model import Record

LaneOf: TypeAlias = Callable[[Record], Lane]
Lanes: TypeAlias = Callable[[str], LaneOf]
"""Gives for each subscription, by its name, what says which lane a record is in."""


def own_lanes(subscription: str) -> LaneOf:
    """Give what goes by the records' own keys, whatever the subscription."""
    del subscription
    return lane_of


class FailedLanes:
    """The failed lanes of one worker. That ``lanes`` is empty is all that the common path asks."""

    __slots__ = ("lane_of", "lanes")

    def __init__(self, of: LaneOf = lane_of) -> None:
        self.lane_of = of
        self.lanes: set[Lane] = set()

    def fail(self, slice_: Slice, index: int) -> bool:
        """Note that a record has failed; say whether others may have to be handed back for it.

        The record is made what it was: only so is its lane known, and only so may it run again.
        """
        slice_.came.restore(index)
        lane = self.lane_of(slice_.records[index])
        if is_keyless(lane):
            return False
        self.lanes.add(lane)
        return True

    def holds(self, record: Record) -> bool:
        """Say whether the record is to be handed back; no handler has had it."""
        return self.lane_of(record) in self.lanes

    def lanes_of(self, records: Sequence[Record]) -> list[Lane | None]:
        """Return which lane each of these is in, None for one that is a lane of its own."""
        of_all = getattr(self.lane_of, "of_all", None)
        lanes = map(self.lane_of, records) if of_all is None else of_all(records)
        return [None if is_keyless(lane) else lane for lane in lanes]

    def among(self, lanes: Sequence[Lane | None]) -> list[int]:
        """Return which of these records are to be handed back, by the lanes that they are in."""
        failed = self.lanes
        return [at for at, lane in enumerate(lanes) if lane in failed] if failed else []

    def passed(self, lanes: Iterable[Lane]) -> None:
        """Take records of these lanes again: their fence has come by."""
        self.lanes.difference_update(lanes)

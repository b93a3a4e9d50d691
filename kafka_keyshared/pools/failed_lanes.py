"""The lanes in which a record of a worker has failed, as the worker knows them.

From a failure until the fence comes by, the worker hands back unrun whatever else it has of that
lane. This is the worker's half of :mod:`kafka_keyshared.core.failures`, the same for every pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from kafka_keyshared.core.lanes import Lane, is_keyless, lane_of
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

    def passed(self, lanes: Iterable[Lane]) -> None:
        """Take records of these lanes again: their fence has come by."""
        self.lanes.difference_update(lanes)

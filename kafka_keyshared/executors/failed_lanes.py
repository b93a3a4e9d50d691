"""The failed lanes of one worker, as the worker knows them.

From a failure until the fence passes, the worker hands back unrun all other records of that lane.
This is the worker's half of :mod:`kafka_keyshared.core.failures.failed_attempts`, the same for
every pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from kafka_keyshared.core.contract.slices import Slice
from kafka_keyshared.core.records.lane_identity import Lane, is_keyless, lane_of
from kafka_keyshared.model import Record

LaneOf: TypeAlias = Callable[[Record], Lane]
Lanes: TypeAlias = Callable[[str], LaneOf]
"""Returns, by subscription name, the function that maps a record to its lane."""


def own_lanes(subscription: str) -> LaneOf:
    """Return the function that maps a record to its lane by its own key."""
    del subscription
    return lane_of


class FailedLanes:
    """The failed lanes of one worker. The common path only checks that ``lanes`` is empty."""

    __slots__ = ("lane_of", "lanes")

    def __init__(self, of: LaneOf = lane_of) -> None:
        self.lane_of = of
        self.lanes: set[Lane] = set()

    def fail(self, slice_: Slice, index: int) -> bool:
        """Note a failed record; return whether other records may have to be handed back.

        The record is first restored to its received state. Only then is its lane correct, and only
        then may it run again.
        """
        slice_.came.restore(index)
        lane = self.lane_of(slice_.records[index])
        if is_keyless(lane):
            return False
        self.lanes.add(lane)
        return True

    def holds(self, record: Record) -> bool:
        """Return whether the record must be handed back; no handler has had it."""
        return self.lane_of(record) in self.lanes

    def lanes_of(self, records: Sequence[Record]) -> list[Lane | None]:
        """Return the lane of each record, None for a record without a key."""
        of_all = getattr(self.lane_of, "of_all", None)
        lanes = map(self.lane_of, records) if of_all is None else of_all(records)
        return [None if is_keyless(lane) else lane for lane in lanes]

    def among(self, lanes: Sequence[Lane | None]) -> list[int]:
        """Return the indices of the records whose lanes have failed."""
        failed = self.lanes
        return [at for at, lane in enumerate(lanes) if lane in failed] if failed else []

    def passed(self, lanes: Iterable[Lane]) -> None:
        """Accept records of these lanes again, because their fence has passed."""
        self.lanes.difference_update(lanes)

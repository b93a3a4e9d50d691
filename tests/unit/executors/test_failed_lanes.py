"""What a worker remembers of lanes that have failed."""

from __future__ import annotations

from kafka_keyshared.executors.failed_lanes import FailedLanes
from tests.support.records import record
from tests.support.slices import slice_of


def test_a_lane_is_kept_until_its_fence() -> None:
    failed = FailedLanes()
    assert failed.fail(slice_of(record(1, "a"), record(2, "b")), 0)
    assert failed.holds(record(3, "a"))
    assert not failed.holds(record(4, "b"))
    failed.passed(failed.lanes.copy())
    assert not failed.holds(record(5, "a"))


def test_of_a_record_without_a_key_nothing_is_kept() -> None:
    """Nothing is behind it, so no fence ever comes for it."""
    failed = FailedLanes()
    assert not failed.fail(slice_of(record(1, None)), 0)
    assert failed.lanes == set()

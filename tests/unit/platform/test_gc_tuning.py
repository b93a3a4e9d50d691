"""How many more objects may be made before Python looks for cycles, while records are in flight."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kafka_keyshared.platform.gc_tuning import MOST, Threshold, in_flight


@pytest.fixture
def threshold() -> Iterator[Threshold]:
    """One of its own: an instance that another test has left behind may still run."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield Threshold()
    gc.set_threshold(*before)


def test_records_in_flight_do_not_set_off_the_collector_and_all_is_as_before_at_the_end(
    threshold: Threshold,
) -> None:
    with in_flight(10_000, threshold):
        assert gc.get_threshold() == (13_200, 10, 10)
    assert gc.get_threshold() == (700, 10, 10)
    with pytest.raises(ValueError, match="the run fails"), in_flight(100, threshold):
        assert gc.get_threshold() == (825, 10, 10)
        raise ValueError("the run fails")
    assert gc.get_threshold() == (700, 10, 10)


def test_two_instances_in_one_process_count_together_in_whatever_order_they_end(
    threshold: Threshold,
) -> None:
    first, second = in_flight(1_000, threshold), in_flight(2_000, threshold)
    with first:
        second.__enter__()
        assert gc.get_threshold()[0] == 700 + 1_250 + 2_500
    assert gc.get_threshold()[0] == 700 + 2_500
    second.__exit__(None, None, None)
    assert gc.get_threshold()[0] == 700


def test_a_large_window_does_not_put_the_collector_off_without_end(threshold: Threshold) -> None:
    with in_flight(10_000_000, threshold):
        assert gc.get_threshold()[0] == 700 + MOST


def test_a_collector_that_is_switched_off_stays_off(threshold: Threshold) -> None:
    gc.set_threshold(0)
    with in_flight(10_000, threshold):
        assert gc.get_threshold()[0] == 0
    assert gc.get_threshold()[0] == 0
    gc.set_threshold(700, 10, 10)
    with in_flight(1_000, threshold):
        assert gc.get_threshold()[0] == 1_950, "and the next run is as any other"
    assert gc.get_threshold()[0] == 700


def test_what_somebody_sets_meanwhile_stays(threshold: Threshold) -> None:
    with in_flight(10_000, threshold):
        gc.set_threshold(5_000, 20, 20)
    assert gc.get_threshold() == (5_000, 20, 20)
    with in_flight(1_000, threshold):
        assert gc.get_threshold() == (5_000, 20, 20), "and what was set before does too"
    assert gc.get_threshold() == (5_000, 20, 20)

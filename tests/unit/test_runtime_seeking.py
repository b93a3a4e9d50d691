"""Back to the received end: after a loss, and when the broker calls a place out of range."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError

from kafka_keyshared.runtime.seeking import OUT_OF_RANGE_WAIT, inside
from tests.support.ports import Stage
from tests.support.records import P0, FakeRecord, record

OUT_OF_RANGE = KafkaError(KafkaError._AUTO_OFFSET_RESET, "offset out of range")


def received(count: int) -> Stage:
    """A loop that has received and settled so many records."""
    stage = Stage()
    stage.assign()
    stage.accept()
    stage.fill(*(record(offset) for offset in range(count)))
    stage.step(3)
    stage.work()
    stage.step(3)
    return stage


def told_out_of_range(stage: Stage) -> None:
    stage.client.plans.append(lambda: [FakeRecord(P0, -1, None, error=OUT_OF_RANGE)])
    stage.step()


def test_a_place_that_the_log_has_is_read_again_and_not_the_policys() -> None:
    stage = received(5)
    told_out_of_range(stage)
    stage.fill(record(5))
    stage.now += OUT_OF_RANGE_WAIT
    stage.step(2)
    assert stage.client.made("restart") == [(P0, 5)]
    assert stage.work() == [5], "neither the five before it again, nor a gap"


def test_nothing_is_committed_until_the_place_is_found_and_no_spin_waits_for_it() -> None:
    stage = received(5)
    sent = len(stage.client.commits)
    told_out_of_range(stage)
    stage.step(3)
    assert stage.client.made("restart") == []
    assert len(stage.client.commits) == sent


def test_without_the_bounds_of_the_log_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = received(5)
    monkeypatch.setattr(stage.client, "log_bounds", lambda partition, timeout: None)
    told_out_of_range(stage)
    stage.now += OUT_OF_RANGE_WAIT
    stage.step(3)
    assert stage.client.made("restart") == []
    monkeypatch.undo()
    stage.step()
    assert stage.client.made("restart") == [(P0, 5)]


def test_a_user_who_wants_an_error_gets_one() -> None:
    stage = received(5)
    stage.client.halts_out_of_range = True
    told_out_of_range(stage)
    assert stage.loop.halted == "offset out of range"


def test_a_partition_that_went_meanwhile_is_not_sought() -> None:
    stage = received(5)
    told_out_of_range(stage)
    stage.client.callbacks["revoke"]([P0])
    stage.now += OUT_OF_RANGE_WAIT
    stage.step(2)
    assert stage.client.made("restart") == []
    assert not stage.loop.reseek


@pytest.mark.parametrize(
    ("bounds", "expected", "level", "said"),
    [
        ((0, 9), 5, logging.INFO, "which the log has"),
        ((7, 9), 7, logging.WARNING, "2 offsets are gone"),
        ((0, 3), 3, logging.ERROR, "was cut off or made anew"),
    ],
)
def test_where_to_read_on(
    bounds: tuple[int, int],
    expected: int,
    level: int,
    said: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        assert inside(P0, 5, bounds) == expected
    (line,) = caplog.records
    assert line.levelno == level
    assert said in line.getMessage()

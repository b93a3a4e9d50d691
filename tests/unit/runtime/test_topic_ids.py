"""The ids of topics: asked for when partitions begin, now and then, and where a log is in doubt."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from kafka_keyshared.core.dispatch.tick import BEAT_SECONDS
from kafka_keyshared.runtime.seeking import ASK_AGAIN_AFTER, IDS_ASKED_MOST, OUT_OF_RANGE_WAIT
from kafka_keyshared.runtime.topic_ids import ANSWER_WITHIN, LOOK_EVERY, LOOK_SELDOM
from tests.support.loop_ports import Stage
from tests.support.records import P0, FakeRecord, record
from tests.unit.runtime.test_seeking import out_of_range


def beat(stage: Stage, times: int = 2) -> None:
    """Let so many heartbeats come: one asks, the next hears."""
    for _ in range(times):
        stage.now += BEAT_SECONDS
        stage.step()


def asked(stage: Stage) -> int:
    return len(stage.client.made("ask_topic_ids"))


def begun(ids: dict[str, str] | None, count: int = 9) -> Stage:
    """A loop that has received, settled and committed so many records of P0."""
    stage = Stage()
    stage.client.ids = ids
    stage.assign()
    stage.accept()
    stage.fill(*(record(offset) for offset in range(count)))
    stage.step(3)
    stage.work()
    beat(stage, 3)
    assert stage.core.commits.committed(P0) == count
    return stage


def new_log(stage: Stage, count: int, *, epoch: int) -> None:
    stage.client.logs[P0] = [record(offset, f"new-{offset % 3}") for offset in range(count)]
    stage.client.epochs[P0] = epoch


def told_out_of_range(stage: Stage) -> None:
    stage.client.plans.append(lambda: [out_of_range(P0)])
    stage.step()
    stage.now += OUT_OF_RANGE_WAIT
    stage.step()


# --- when it is asked ---


def test_ids_are_asked_for_once_and_then_every_minute() -> None:
    stage = begun({"orders": "one"})
    assert asked(stage) == 1
    beat(stage, 20)
    assert asked(stage) == 1
    stage.now += LOOK_EVERY
    beat(stage)
    assert asked(stage) == 2


def test_a_topic_that_the_client_does_not_find_is_asked_for_at_once() -> None:
    """It may be on its way to be made anew."""
    stage = begun({"orders": "one"})
    gone = FakeRecord(P0, -1, None, error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    away = FakeRecord(P0, -1, None, error=KafkaError(KafkaError._TRANSPORT))
    stage.client.plans.append(lambda: [away])
    beat(stage, 3)
    assert asked(stage) == 1
    stage.client.plans.append(lambda: [gone])
    beat(stage, 3)
    assert asked(stage) == 2


def test_a_partition_that_comes_back_is_asked_for_anew() -> None:
    """It may have been made anew meanwhile, and read by others since: that is no change."""
    stage = begun({"orders": "one"})
    stage.client.callbacks["revoke"]([P0])
    stage.client.ids = {"orders": "two"}
    stage.assign()
    beat(stage)
    assert asked(stage) == 2
    stage.now += LOOK_EVERY
    beat(stage, 3)
    assert stage.client.made("restart") == []


@pytest.mark.parametrize(("ids", "later"), [({}, 0.0), (None, ANSWER_WITHIN)], ids=["none", "mute"])
def test_where_no_ids_are_told_it_is_asked_seldom(ids: dict[str, str] | None, later: float) -> None:
    stage = begun(ids)
    stage.now += later
    beat(stage)
    stage.now += LOOK_EVERY
    beat(stage)
    assert asked(stage) == 1
    stage.now += LOOK_SELDOM
    beat(stage)
    assert asked(stage) == 2


def test_without_a_partition_nothing_is_asked() -> None:
    stage = Stage()
    beat(stage, 3)
    assert asked(stage) == 0


# --- what follows ---


def test_a_topic_made_anew_that_has_outgrown_the_old_one_is_read_from_its_start() -> None:
    """No broker calls a place out of range then."""
    stage = begun({"orders": "one"})
    new_log(stage, 20, epoch=0)
    stage.client.ids = {"orders": "two"}
    stage.now += LOOK_EVERY
    beat(stage, 4)
    stage.now += 1.0
    stage.step(4)
    assert sorted(stage.work())[:9] == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    beat(stage, 4)
    assert stage.core.commits.committed(P0) == 20
    stage.now += 2 * LOOK_EVERY
    beat(stage, 4)
    assert len(stage.client.made("restart")) == 1, "it is known by its new id"


def test_a_topic_made_anew_is_not_taken_for_one_cut_off_because_its_epoch_has_risen() -> None:
    stage = begun({"orders": "one"})
    new_log(stage, 4, epoch=3)
    stage.client.ids = {"orders": "two"}
    told_out_of_range(stage)
    stage.step(3)
    assert sorted(stage.work()) == [0, 1, 2, 3]


def test_a_log_that_was_cut_off_has_the_same_id() -> None:
    stage = begun({"orders": "one"})
    new_log(stage, 4, epoch=3)
    told_out_of_range(stage)
    stage.step(3)
    assert stage.work() == []


@pytest.mark.parametrize("ids", [{}, None], ids=["not told", "no answer"])
def test_whoever_has_known_the_id_waits_for_it_before_records_are_left_out(
    ids: dict[str, str] | None,
) -> None:
    stage = begun({"orders": "one"})
    new_log(stage, 4, epoch=3)
    stage.client.ids = ids
    told_out_of_range(stage)
    assert stage.client.made("restart") == []
    stage.client.ids = {"orders": "two"}
    stage.now += ASK_AGAIN_AFTER
    stage.step(4)
    assert sorted(stage.work()) == [0, 1, 2, 3]


def test_but_not_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    stage = begun({"orders": "one"})
    new_log(stage, 4, epoch=3)
    stage.client.ids = {}
    told_out_of_range(stage)
    for _ in range(IDS_ASKED_MOST):
        stage.now += ASK_AGAIN_AFTER
        stage.step()
    assert len(stage.client.made("restart")) == 1
    assert "decided without the topic's id" in caplog.text


@pytest.mark.parametrize(("id_", "commits"), [("one", True), ("two", False)])
def test_what_is_given_up_of_a_topic_with_another_id_is_not_committed(
    id_: str, commits: bool
) -> None:
    """It has outgrown the old one, so the bounds of its log say nothing."""
    stage = begun({"orders": "one"})
    stage.fill(record(9))
    stage.step()
    stage.work()
    stage.client.ids = {"orders": id_}
    sent = stage.sent()

    stage.client.plans.append(lambda: [out_of_range(P0)])
    stage.step()
    stage.client.callbacks["revoke"]([P0])
    assert stage.sent() == ([*sent, 10] if commits else sent)

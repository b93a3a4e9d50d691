"""The watchdog over fake ports: what is a stall, what only looks like one, and what follows."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_keyshared.client.port import CommittedOffset, LogBounds
from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.runtime.status_board import Observer, StatusBoard
from tests.support.loop_ports import Stage
from tests.support.records import P0, P1, FakeRecord, record


@pytest.fixture
def stage() -> Stage:
    """An instance that has read and done ten records and is idle; P1 has nothing."""
    made = Stage(SubscriptionSettings(window_records=100))
    made.client.stored[P0] = CommittedOffset(0, None)
    made.fill(*(record(offset) for offset in range(10)))
    made.accept()
    made.assign(P0, P1)
    made.step(2)
    assert made.work() == list(range(10))
    made.step(2)
    return made


def live(stage: Stage, seconds: float) -> None:
    """Let the instance live, a step every half second; whatever arrives is worked on."""
    end = stage.now + seconds
    while stage.now < end:
        stage.now += 0.5
        stage.step()
        stage.work()


def stuck(stage: Stage, seeks: int) -> None:
    """From now on P0 delivers nothing until it was sought that often, and there is something."""
    stage.client.stuck[P0] = seeks
    stage.fill(record(10))


def health(stage: Stage) -> StatusBoard:
    """The board after a look of the observer."""
    board = StatusBoard(stage.loop.ports.clock)
    observer = Observer(stage.loop, board, group="g", pool="thread", interval_ms=300_000)
    observer.enter("running")
    observer.step()
    return board


def test_a_stalled_partition_is_said_counted_and_read_again(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stuck(stage, seeks=1)
    stage.client.last_error = "broker 3: connection reset"
    live(stage, 29.0)
    assert stage.client.made("seek") == []
    live(stage, 10.0)
    assert stage.client.made("seek") == [(P0, 10)]
    assert stage.core.partitions[P0].received_end == 11
    assert stage.loop.watchdog.stalls == {"orders": 1}
    (said,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    for part in ("orders-0", "received end 10", "end of the log 11", "not paused", "connection"):
        assert part in said
    assert health(stage).live().ok


def test_the_client_is_told_again_that_it_is_not_paused(stage: Stage) -> None:
    """A pause that nobody of us knows of: of the client's own, or of a user's callback."""
    stage.fill(record(10))
    stage.client.plans.append(list)
    stage.client._ends[P0] = 11
    stage.client.paused.add(P0)
    live(stage, 40.0)
    assert stage.client.paused == set()
    assert stage.core.partitions[P0].received_end == 11


def test_liveness_fails_when_reading_again_did_not_help_and_until_it_delivers(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stuck(stage, seeks=4)
    live(stage, 40.0)
    assert health(stage).live().ok
    live(stage, 32.0)
    failed = health(stage).live()
    assert not failed.ok
    assert "orders-0" in failed.reason
    live(stage, 90.0)
    assert health(stage).live().ok
    assert stage.core.partitions[P0].received_end == 11
    assert stage.loop.watchdog.stalls == {"orders": 4}
    levels = [
        each.levelname for each in caplog.records if "although the log has more" in each.message
    ]
    assert levels == ["WARNING", "ERROR"], "said twice, however long it lasts"


def test_a_partition_that_was_never_read_here_asks_for_no_restart() -> None:
    """A restart has been tried, or would come back to the same."""
    stage = Stage()
    stage.client.stored[P0] = CommittedOffset(5, None)
    stage.fill(*(record(offset) for offset in range(10)))
    stage.client.stuck[P0] = 1_000
    stage.assign()
    live(stage, 200.0)
    assert stage.loop.watchdog.stalls["orders"] > 2
    assert health(stage).live().ok


def test_a_stall_outlasts_an_assignment_and_is_forgotten_with_the_partition(stage: Stage) -> None:
    stuck(stage, seeks=1_000)
    live(stage, 80.0)
    assert not health(stage).live().ok
    stage.client.callbacks["revoke"]([P0, P1])
    live(stage, 6.0)
    assert health(stage).live().ok
    stage.client.stored[P0] = CommittedOffset(10, None)
    stage.assign(P0, P1)
    live(stage, 80.0)
    assert not health(stage).live().ok, "this process has read it before"


@pytest.mark.parametrize("waited", [26.0, 60.0])
def test_a_partition_that_goes_and_comes_back_between_two_looks_is_waited_for_anew(
    stage: Stage, waited: float, caplog: pytest.LogCaptureFixture
) -> None:
    """It delivers nothing, so its received end is the old one; and nothing delivers again."""
    caplog.set_level("INFO")
    stuck(stage, seeks=1_000)
    live(stage, waited)
    before = stage.loop.watchdog.stalls["orders"]
    stage.client.callbacks["revoke"]([P0, P1])
    stage.client.stored[P0] = CommittedOffset(10, None)
    stage.assign(P0, P1)
    live(stage, 20.0)
    assert stage.loop.watchdog.stalls["orders"] == before
    live(stage, 20.0)
    assert stage.loop.watchdog.stalls["orders"] == before + 1
    assert "delivers again" not in caplog.text


def test_what_is_behind_markers_is_no_stall(stage: Stage) -> None:
    """The end of the log is beyond the received end, and the client's position has passed it."""
    stage.client.log_ends = lambda: {P0: 12}  # type: ignore[method-assign]
    stage.client.log_bounds = lambda *_: {P0: LogBounds(0, 12)}  # type: ignore[method-assign]
    stage.client._positions[P0] = 12
    live(stage, 100.0)
    assert stage.client.made("seek") == []
    stage.client._positions[P0] = 10
    live(stage, 40.0)
    assert stage.client.made("seek") == [(P0, 10)], "the position is what told the difference"


def test_an_open_transaction_is_no_stall(stage: Stage) -> None:
    """The broker, asked, says how far a reader of committed records may read."""
    stage.client.log_ends = lambda: {P0: 12}  # type: ignore[method-assign]
    asked: list[float] = []

    def log_bounds(_partitions: object, timeout: float) -> dict[TopicPartition, LogBounds]:
        asked.append(timeout)
        return {P0: LogBounds(0, 10)}

    stage.client.log_bounds = log_bounds  # type: ignore[assignment]
    live(stage, 100.0)
    assert 2 <= len(asked) <= 3
    assert stage.client.made("seek") == []


def test_brokers_that_are_away_are_said_once_and_are_no_stall(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.fill(FakeRecord(P1, 0, b"key"))
    live(stage, 1.0)
    stuck(stage, seeks=1)
    stage.client.stuck[P1] = 1
    stage.fill(FakeRecord(P1, 1, b"key"))
    answers = stage.client.log_bounds
    asked: list[float] = []

    def log_bounds(_partitions: object, _timeout: float) -> dict[TopicPartition, LogBounds]:
        asked.append(stage.now)
        return {}

    stage.client.log_bounds = log_bounds  # type: ignore[assignment]
    live(stage, 300.0)
    assert 5 <= len(asked) <= 10
    assert [
        each.message for each in caplog.records if "does not answer" in each.message
    ].__len__() == 1
    assert stage.client.made("seek") == []
    assert health(stage).live().ok
    stage.client.log_bounds = answers  # type: ignore[method-assign]
    live(stage, 70.0)
    assert stage.core.partitions[P0].received_end == 11


def test_what_is_held_back_is_no_stall(stage: Stage) -> None:
    stuck(stage, seeks=1)
    stage.core.holds.hold_back(Reason.UNREAD, [P0])
    live(stage, 100.0)
    assert stage.client.made("seek") == []
    stage.core.holds.let_go(Reason.UNREAD, [P0])
    live(stage, 29.0)
    assert stage.client.made("seek") == [], "the time begins when it could deliver"
    live(stage, 10.0)
    assert stage.client.made("seek") == [(P0, 10)]


def test_a_full_window_is_no_stall(stage: Stage) -> None:
    stuck(stage, seeks=1)
    stage.fill(*(FakeRecord(P1, offset, b"%d" % offset) for offset in range(200)))
    for _ in range(200):
        stage.now += 0.5
        stage.step()
    assert stage.core.room() < 10
    assert stage.client.made("seek") == []


def test_a_window_that_is_full_now_and_then_is_no_stall(stage: Stage) -> None:
    """Then the client's queue may be full of others' records: nobody asked for more of these."""
    stuck(stage, seeks=1)
    for _ in range(20):
        stage.loop.watchdog.full = True
        live(stage, 5.0)
    assert stage.client.made("seek") == []
    live(stage, 45.0)
    assert stage.client.made("seek") == [(P0, 10)]


def test_a_process_that_slept_has_not_waited(stage: Stage) -> None:
    stuck(stage, seeks=1)
    live(stage, 6.0)
    stage.now += 3_600.0
    live(stage, 6.0)
    assert stage.client.made("seek") == []


def test_a_seek_that_is_refused_for_long_is_followed_by_a_new_assignment(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stuck(stage, seeks=1)
    stage.client.seek_fails += [KafkaException(KafkaError(KafkaError._STATE))] * 10_000
    live(stage, 100.0)
    assert [(places[P0], moved) for places, moved in stage.client.made("restart")] == [(10, {P0})]
    assert "refuses to seek" in caplog.text


def test_idle_partitions_cost_no_question(stage: Stage) -> None:
    stage.client.log_bounds = None  # type: ignore[assignment]
    live(stage, 100.0)
    assert stage.client.made("seek") == []
    assert stage.loop.stats.beats > 100


def test_a_look_asks_the_client_once_where_it_is_however_many_do_not_deliver(stage: Stage) -> None:
    """Of a thousand partitions that takes milliseconds; brokers may be away for long."""
    stage.fill(FakeRecord(P1, 0, b"key"))
    live(stage, 1.0)
    for partition in (P0, P1):
        stage.client.stuck[partition] = 1_000
    stage.fill(record(10), FakeRecord(P1, 1, b"key"))
    stage.client.unreachable.update((P0, P1))
    positions = stage.client.positions
    asked: list[float] = []

    def counted(
        partitions: Collection[TopicPartition] | None = None,
    ) -> dict[TopicPartition, int]:
        asked.append(stage.now)
        return positions(partitions)

    stage.client.positions = counted  # type: ignore[method-assign]
    live(stage, 120.0)
    assert 20 <= len(asked) <= 30, "one for each look"

"""Whether the instance is ready, and when a status is made, over a loop without a world."""

from __future__ import annotations

import logging

import pytest

from kafka_keyshared.client.port import CommittedOffset
from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract.slices import SliceState
from kafka_keyshared.core.records.lane_identity import lane_of
from kafka_keyshared.model import Record
from kafka_keyshared.runtime.pause_commands import pause
from kafka_keyshared.runtime.pauses import Those
from kafka_keyshared.runtime.standstill import StandstillWatch
from kafka_keyshared.runtime.status_board import DERIVE_AFTER, Observer, StatusBoard, chained
from tests.support.loop_ports import Stage
from tests.support.records import ERROR, P0, P1, record
from tests.support.slices import slice_of


class Watched:
    """A loop with an observer and its board."""

    def __init__(self, **board: bool) -> None:
        self.stage = Stage()
        self.standstill = StandstillWatch(lambda: self.stage.now, lambda: 0.0)
        self.stage.accept()
        self.stage.client.stored[P0] = CommittedOffset(0, None)
        self.stage.client.stored[P1] = CommittedOffset(0, None)
        self.board = StatusBoard(self.stage.loop.ports.clock, **board)
        self.observer = Observer(
            self.stage.loop,
            self.board,
            group="g",
            pool="thread",
            interval_ms=300_000,
            standstill=self.standstill,
        )
        self.stage.rebalancer.observer = self.observer.rebalanced
        self.stage.instance.watcher = self.observer

    def rebalance(self, how: str) -> None:
        self.stage.client.callbacks[how]([P0, P1])

    def step(self, seconds: float = 0.0) -> None:
        self.stage.now += seconds
        self.stage.step()


@pytest.fixture
def watched() -> Watched:
    made = Watched()
    made.observer.enter("running")
    return made


def test_it_is_ready_while_it_has_partitions_or_gave_them_back_in_order(watched: Watched) -> None:
    ready = [watched.board.ready()]
    for how in ("assign", "revoke", "assign"):
        watched.rebalance(how)
        ready.append(watched.board.ready())
    assert [each.ok for each in ready] == [False, True, True, True]
    assert "not assigned any partition yet" in ready[0].reason


def test_it_is_not_ready_once_everything_was_lost_until_it_gets_something(watched: Watched) -> None:
    for how, expected in (("assign", True), ("lost", False), ("assign", True)):
        watched.rebalance(how)
        assert watched.board.ready().ok is expected
        watched.observer.show()
        status = watched.board.read(wait=0.0)
        assert status is not None
        assert status.joined is expected


def test_it_is_not_ready_before_it_runs_and_while_it_stops(watched: Watched) -> None:
    watched.rebalance("assign")
    watched.observer.enter("stopping")
    assert (watched.board.ready().ok, watched.board.ready().reason) == (False, "stopping")
    assert not StatusBoard(Clock()).ready().ok


def test_a_status_is_made_at_a_heartbeat_while_somebody_reads(watched: Watched) -> None:
    watched.rebalance("assign")
    first = watched.board.read(wait=0.0)
    for _ in range(2):
        watched.step(10.0)
    second = watched.board.read(wait=0.0)
    assert first is not None
    assert second is not None
    assert second.taken_at >= first.taken_at
    assert second is not first
    watched.observer.step()
    assert watched.board.read(wait=0.0) is second, "there was no heartbeat since"


def test_what_holds_up_the_position_is_shown_although_nothing_is_committed(
    watched: Watched,
) -> None:
    watched.stage.fill(record(0), record(1, "other"))
    watched.rebalance("assign")
    watched.stage.step(2)
    watched.stage.worker().start()
    before = watched.stage.core.snapshots.derived_at
    watched.stage.now += DERIVE_AFTER + 1.0
    watched.observer.show()
    assert watched.stage.core.snapshots.derived_at == watched.stage.now > before
    assert P0 in watched.stage.core.snapshots.derived


def test_a_record_that_ends_with_the_standstill_is_named_also_before_its_end_is_read(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # The owner comes back out of its fetch, and has read its mail for the last time in this round.
    # Then the worker ends its record: it runs no more, and has not ended as far as the core knows.
    stage = watched.stage
    stage.fill(record(0))
    watched.rebalance("assign")
    stage.step(2)
    worker = stage.worker()
    stage.pool.seconds = 8.0

    def stand_still() -> list[Record]:
        stage.now += 8.0
        watched.standstill.look(lambda: "")
        return []

    def beat() -> None:
        worker.finish()
        assert worker.start() is None

    watched.standstill.look(lambda: "")
    worker.start()
    stage.client.plans.append(stand_still)
    monkeypatch.setattr(stage.pool, "beat", beat)
    with caplog.at_level(logging.WARNING, "kafka_keyshared.loop"):
        stage.step()
    (line,) = [each for each in caplog.messages if "stood still" in each]
    assert "records that ran: orders-0@0 on worker-0" in line


def test_all_observers_are_told() -> None:
    told: list[str] = []
    tell = chained(lambda what, _: told.append(what), None, lambda what, _: told.append(what * 2))
    tell("lost", [P0])
    assert told == ["lost", "lostlost"]


def test_it_is_ready_while_it_is_paused_by_hand_and_says_so(watched: Watched) -> None:
    watched.rebalance("assign")
    work = pause(Those(partitions=[P0]))
    reply = watched.stage.loop.orders.post("pause", lambda: work(watched.stage.loop))
    watched.step(1.0)
    watched.step(1.0)
    assert reply.result(0.0) == [P0]
    ready = watched.board.ready()
    assert ready.ok
    assert ready.reason.startswith("running; 1 partition paused by hand")
    watched.stage.loop.by_hand.order(Those(), paused=False, here=[P0, P1])
    watched.step(1.0)
    assert watched.board.ready() == (True, "running; healthy")


def test_a_rebalance_that_the_owner_is_in_is_shown_with_its_time(watched: Watched) -> None:
    watched.rebalance("assign")
    watched.observer.show()
    before = watched.board.read(wait=0.0)
    assert before is not None
    assert before.rebalance_seconds is None
    watched.board.turning(True)
    watched.stage.now += 7.0  # no status is made meanwhile
    inside = watched.board.read(wait=0.0)
    assert inside is not None
    assert inside.rebalance_seconds == 7.0
    assert "a rebalance has been in progress for 7 s" in watched.board.ready().reason
    watched.board.turning(False)
    watched.observer.show()
    after = watched.board.read(wait=0.0)
    assert after is not None
    assert after.rebalance_seconds is None


def test_a_loop_that_stands_still_is_named_although_its_last_status_is_from_before_it_joined(
    watched: Watched,
) -> None:
    watched.observer.enter("running")
    before = watched.board.read(wait=0.0)
    assert before is not None
    assert before.rebalance_seconds is not None
    watched.stage.now += 20.0  # nobody has looked before, and no status is made meanwhile
    diagnosis = watched.board.diagnosis()
    assert diagnosis is not None
    assert diagnosis.text == "the control loop has run no round for 20 s"


def fail(watched: Watched, number: int) -> None:
    """Let records of three keys fail, and a heartbeat pass."""
    watch = watched.stage.sub.failure_watch
    for each in range(3):
        watch.failed(P0, lane_of(record(number * 3 + each, f"k{each}")), ERROR, first=True)
    watched.step(0.6)


def test_a_high_failure_rate_is_shown_and_logged_though_nobody_reads(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.rebalance("assign")
    watched.board.diagnosis()
    watched.stage.now += 120.0  # the reader of before has gone
    watched.step()
    made = watched.board.read(wait=0.0)
    watched.stage.now += 120.0
    with caplog.at_level(logging.WARNING, "kafka_keyshared.diagnosis"):
        for number in range(30):
            fail(watched, number)
    assert watched.board.read(wait=0.0) is not made
    assert "[most-attempts-fail]" in caplog.text
    assert "no attempt has succeeded" in watched.board.ready().reason


@pytest.mark.parametrize("unready", [True, False])
def test_readiness_ends_with_an_outage_where_that_is_wanted(unready: bool) -> None:
    watched = Watched(unready_on_outage=unready)
    watched.observer.enter("running")
    watched.rebalance("assign")
    watched.step(0.6)
    assert watched.board.ready().ok
    for number in range(30):
        fail(watched, number)
    assert watched.board.ready().ok is not unready
    done = SliceState(slice_of(*map(record, range(10))))
    for _ in range(30):
        watched.stage.sub.failure_watch.ended(done, range(10), ())
        watched.step(0.6)
    watched.board.ready()
    watched.step(0.6)
    assert watched.board.ready() == (True, "running; healthy")

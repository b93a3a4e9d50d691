"""A stop says what it waits for, and for how long."""

from __future__ import annotations

import logging

import pytest

from kafka_keyshared.client.port import CommittedOffset
from kafka_keyshared.core.contract.commands import Commit
from kafka_keyshared.core.contract.events import CommitAnswer, CommitResult
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.dispatch.tick import BEAT_SECONDS
from kafka_keyshared.core.offsets.commit_metadata import decode
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.model import Record
from kafka_keyshared.runtime.flush import FlushOrder
from kafka_keyshared.runtime.shutdown import AWAIT_WAIT, StopReport, stop
from tests.support.commit_texts import here
from tests.support.loop_ports import Stage
from tests.support.records import ERROR, P0, FakeRecord, record


@pytest.fixture
def stage() -> Stage:
    made = Stage()
    made.client.stored[P0] = CommittedOffset(0, None)
    made.fill(record(0, "slow"), *(record(offset, f"key-{offset}") for offset in range(1, 10)))
    made.assign()
    made.accept()
    made.step()
    return made


def running_for(stage: Stage, seconds: float) -> FakeRecord:
    """Somebody runs the first record; the heartbeat has seen it for so long."""
    item = stage.worker().start()
    assert isinstance(item, FakeRecord)
    for _ in range(int(seconds / BEAT_SECONDS)):
        stage.now += BEAT_SECONDS
        stage.step()
    return item


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "stopping:" in each.getMessage()]


def test_a_stop_that_waits_names_the_record_its_key_and_how_long(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    running_for(stage, 12.0)
    with caplog.at_level(logging.INFO):
        stop(stage.loop, 25.0, lambda: False)
    first, second, third = said(caplog)
    assert first == (
        "stopping: waiting up to 24 s for 1 running record (orders-0@0, key b'slow', 13 s so far); "
        "Ctrl-C again to hurry"
    )
    assert "up to 14 s" in second
    assert "up to 4 s" in third


def test_a_stop_and_a_flush_name_the_key_that_a_record_goes_by(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage(SubscriptionSettings(key_of=lambda _: b"of the header"))
    stage.assign(P0)
    stage.fill(record(0, "its own"))
    stage.accept()
    stage.step()
    assert stage.pool.workers["default", 0].start() is not None
    order = FlushOrder()
    stage.loop.orders.post("flush", lambda: order(stage.loop))
    stage.step(2)
    assert "(orders-0@0, key b'of the header', 0 s so far)" in order.waits_for()
    with caplog.at_level(logging.INFO):
        stop(stage.loop, 5.0, lambda: False)
    assert "1 running record (orders-0@0, key b'of the header'); Ctrl-C" in said(caplog)[0]


def test_a_stop_that_waits_says_where_the_record_stands(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    running_for(stage, 12.0)
    stage.pool.where = lambda *whose: "at app.py:14"  # type: ignore[method-assign]
    with caplog.at_level(logging.INFO):
        stop(stage.loop, 5.0, lambda: False)
    assert "(orders-0@0, key b'slow', 13 s so far, now at app.py:14); Ctrl-C" in said(caplog)[0]


def test_what_runs_for_long_is_named_with_the_line_that_it_is_in(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.pool.where = lambda *whose: "at app.py:14"  # type: ignore[method-assign]
    running_for(stage, 40.0)
    (line,) = [each for each in caplog.messages if "has been running" in each]
    assert line == (
        "orders-0@0 (key b'slow') has been running on worker-0 for 30 s; its key and the others of "
        "that worker wait; now at app.py:14"
    )


def test_a_stop_that_is_soon_over_says_nothing(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.work()
    with caplog.at_level(logging.INFO):
        assert stop(stage.loop, 25.0, lambda: False).clean
    assert said(caplog) == []


def test_the_key_is_shown_as_it_came(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    running_for(stage, 0.0).set_key({"id": 1})
    with caplog.at_level(logging.INFO):
        stop(stage.loop, 5.0, lambda: False)
    assert "1 running record (orders-0@0, key b'slow'); Ctrl-C" in said(caplog)[0]


def test_the_last_commit_is_waited_for_aloud(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.work()
    stage.step()
    stage.client.answer = lambda commit: None
    poll = stage.client.poll

    def slow_poll(timeout: float) -> Record | None:
        stage.now += timeout
        return poll(timeout)

    stage.client.poll = slow_poll  # type: ignore[method-assign]
    with caplog.at_level(logging.INFO):
        stop(stage.loop, 25.0, lambda: False)
    assert "up to 24 s for the last commit's answer; Ctrl-C again to hurry" in said(caplog)[0]
    assert len(said(caplog)) == 3


def test_a_stop_waits_for_mail_and_does_not_look_all_the_time(stage: Stage) -> None:
    running_for(stage, 0.0)
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1

    stage.on_wait = look
    began = stage.now
    report = stop(stage.loop, 10.0, lambda: False)
    assert report.running
    assert stage.now - began == pytest.approx(10.0), "and not beyond its deadline"
    assert looks <= 10.0 / AWAIT_WAIT + 10


def test_the_last_line_counts_the_keys_that_are_blocked(stage: Stage) -> None:
    assert "blocked" not in stop(stage.loop, 25.0, lambda: False).line()
    poisoned = Stage(SubscriptionSettings(retry=RetryPolicy(attempts=1)))
    poisoned.client.stored[P0] = CommittedOffset(0, None)
    poisoned.fill(record(0, "a"), record(1, "b"), record(2, "b"), record(3, "c"))
    poisoned.assign()
    poisoned.accept()
    poisoned.step()
    poisoned.work({0: ERROR, 1: ERROR})
    poisoned.step()
    report = stop(poisoned.loop, 25.0, lambda: False)
    assert report.clean, "what is blocked is no failure of the stop"
    assert report.line().endswith(
        "drained; committed; 3 records received and left undone (they run at the next start); "
        "2 keys blocked"
    )


@pytest.mark.parametrize("limit", [60, None])
def test_what_did_not_fit_in_the_commit_metadata_is_counted_and_the_stop_is_not_clean(
    limit: int | None,
) -> None:
    stage = Stage(SubscriptionSettings(retry=RetryPolicy(attempts=1)))
    stage.client.metadata_limit = limit
    stage.instance.join()
    stage.client.stored[P0] = CommittedOffset(0, None)
    stage.fill(record(0, "a"), *(record(offset, f"k{offset}") for offset in range(1, 10)))
    stage.assign()
    stage.accept()
    stage.step()
    stage.work({0: ERROR})
    stage.step()
    report = stop(stage.loop, 25.0, lambda: False)
    again = "9 settled beyond the position run again"
    assert report.clean is (limit is None), "the exit status is 1 where something runs again"
    assert (again in report.line()) is (limit is not None)


def test_a_limit_that_the_last_commit_finds_is_kept_to_in_the_same_stop() -> None:
    stage = Stage(SubscriptionSettings(retry=RetryPolicy(attempts=1)))
    stage.client.stored[P0] = CommittedOffset(0, None)
    blocked = set(range(0, 600, 7))
    stage.fill(*(record(offset, f"k{offset}") for offset in range(600)))
    stage.assign()

    def answer(commit: Commit) -> CommitAnswer:
        large = any(len(each.metadata) >= 100 for each in commit.entries.values())
        return CommitAnswer(commit, CommitResult.TOO_LARGE if large else CommitResult.ACCEPTED)

    stage.client.answer = answer
    stage.step()
    for _ in range(20):
        stage.work(dict.fromkeys(blocked, ERROR))
        stage.step()
    report = stop(stage.loop, 25.0, lambda: False)
    assert report.commit_accepted
    assert not report.clean
    stored = stage.client.commits[-1].entries[P0]
    runs = decode(stored.metadata, here(stored.position)).sections["default"]
    kept = sum(end - start for start, end in runs)
    assert report.left_out == 600 - len(blocked) - kept > 0
    assert f"; {report.left_out} settled beyond the position run again; " in report.line()


def test_one_of_a_kind_is_told_in_the_singular() -> None:
    one = StopReport(False, 0.5, 1, ("orders-0@3",), True, dead_letters=1, blocked=1)
    assert one.line() == (
        "stopped in 0.50 s: gave up on 1 running and 1 dead letter without an answer: orders-0@3; "
        "committed; 1 record received and left undone (it runs at the next start); 1 key blocked"
    )

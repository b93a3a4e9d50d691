"""What a stop in the middle of a rebalance taught, step by step and without a broker."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.runtime.shutdown import ANSWER_WAIT, HURRIED_ANSWER_WAIT, REFUSED_MOST, stop
from tests.support.loop_ports import Stage
from tests.support.records import P0, P1, record

REFUSED = "Broker: Specified group generation id is not valid"


@pytest.fixture
def stage() -> Stage:
    """Three records of P0 are settled, and not yet committed."""
    made = Stage()
    made.accept()
    made.fill(*(record(offset) for offset in range(3)))
    made.assign()
    made.step()
    assert made.work() == [0, 1, 2]
    made.client.commits.clear()
    return made


def refuse_once(stage: Stage) -> None:
    """The broker refuses the first commit as one of an old generation, and accepts the rest."""

    def answer(commit: cmd.Commit) -> ev.CommitAnswer:
        stage.accept()
        return ev.CommitAnswer(commit, ev.CommitResult.LOST, REFUSED)

    stage.client.answer = answer


def test_a_last_commit_of_the_generation_before_is_sent_again(stage: Stage) -> None:
    refuse_once(stage)
    report = stop(stage.loop, 25.0, lambda: False)
    assert stage.sent() == [3, 3]
    assert report.clean


def test_a_last_commit_that_is_refused_each_time_is_not_acknowledged(stage: Stage) -> None:
    stage.client.answer = lambda commit: ev.CommitAnswer(commit, ev.CommitResult.LOST, REFUSED)
    report = stop(stage.loop, 25.0, lambda: False)
    assert stage.sent() == [3] * REFUSED_MOST
    assert not report.clean
    assert not report.commit_accepted


@pytest.mark.parametrize("hurried", [False, True])
def test_behind_its_deadline_a_refused_commit_is_sent_again_once(
    stage: Stage, hurried: bool
) -> None:
    stage.client.answer = lambda commit: ev.CommitAnswer(commit, ev.CommitResult.LOST, REFUSED)
    report = stop(stage.loop, 25.0 if hurried else 0.0, lambda: hurried)
    assert stage.sent() == [3, 3]
    assert not report.clean


def test_a_last_commit_that_fails_again_and_again_is_sent_ever_more_slowly(stage: Stage) -> None:
    """A client that is broken for good refuses it at once, each time."""
    stage.client.answer = lambda commit: ev.CommitAnswer(commit, ev.CommitResult.RETRY, "no")
    before = stage.now
    report = stop(stage.loop, 25.0, lambda: False)
    assert 2 <= len(stage.sent()) <= 7
    assert not report.commit_accepted
    assert stage.now - before < 2.5


def test_a_last_commit_that_fails_once_is_sent_again_and_counts(stage: Stage) -> None:
    def answer(commit: cmd.Commit) -> ev.CommitAnswer:
        stage.accept()
        return ev.CommitAnswer(commit, ev.CommitResult.RETRY, "not yet")

    stage.client.answer = answer
    report = stop(stage.loop, 25.0, lambda: False)
    assert stage.sent() == [3, 3]
    assert report.clean


def test_behind_its_deadline_a_stop_waits_little_for_the_last_answer(stage: Stage) -> None:
    """The handlers had all of the time; what the stop takes in all is that and a moment."""
    stage.client.answer = lambda commit: None
    stage.fill(record(3))
    stage.step()
    for worker in stage.pool.workers.values():
        worker.start()
    before = stage.now
    report = stop(stage.loop, 3.0, lambda: False)
    assert stage.now - before < 3.0 + HURRIED_ANSWER_WAIT + 0.1
    assert not report.commit_accepted
    assert len(report.running) == 1


def test_a_broker_that_is_there_may_take_as_long_as_the_stop(stage: Stage) -> None:
    """So it does while another member of the group takes its time to join again."""

    def answer_later() -> None:
        if stage.now > 1_008.0:
            stage.on_wait = lambda: None
            (commit,) = stage.client.commits
            stage.mailbox.put(ev.CommitAnswer(commit, ev.CommitResult.ACCEPTED))

    stage.client.answer = lambda commit: None
    stage.on_wait = answer_later
    stage.now = before = 1_000.0
    report = stop(stage.loop, 25.0, lambda: False)
    assert report.clean
    assert report.heard
    assert 8.0 < stage.now - before < 8.1
    assert 5 <= len(stage.client.made("answers")) <= 8, "about once a second"


def test_what_a_broker_that_is_there_never_answers_is_given_up_at_the_deadline(
    stage: Stage,
) -> None:
    stage.client.answer = lambda commit: None
    before = stage.now
    report = stop(stage.loop, 10.0, lambda: False)
    assert 9.9 < stage.now - before < 10.2
    assert not report.commit_accepted
    assert report.heard


def test_a_broker_that_is_gone_is_not_waited_for(stage: Stage) -> None:
    stage.client.answer = lambda commit: None
    stage.client.there = False
    before = stage.now
    report = stop(stage.loop, 25.0, lambda: False)
    assert stage.now - before < ANSWER_WAIT + 0.1
    assert not report.commit_accepted
    assert not report.heard


def test_a_broker_that_goes_while_it_is_waited_for_is_given_up_soon(stage: Stage) -> None:
    stage.client.answer = lambda commit: None

    def go() -> None:
        stage.client.there = stage.now < 1_005.0

    stage.on_wait = go
    stage.now = before = 1_000.0
    report = stop(stage.loop, 25.0, lambda: False)
    assert 5.0 < stage.now - before < 5.0 + ANSWER_WAIT + 0.1
    assert not report.heard


def test_a_commit_that_fails_after_a_long_wait_is_sent_again(stage: Stage) -> None:
    answers = [ev.CommitResult.RETRY, ev.CommitResult.ACCEPTED]
    at = [1_006.0, 1_007.0]

    def answer_later() -> None:
        if at and stage.now > at[0] and stage.core.commits.in_flight:
            at.pop(0)
            stage.mailbox.put(ev.CommitAnswer(stage.client.commits[-1], answers.pop(0)))

    stage.client.answer = lambda commit: None
    stage.on_wait = answer_later
    stage.now = 1_000.0
    report = stop(stage.loop, 25.0, lambda: False)
    assert stage.sent() == [3, 3]
    assert report.clean


def test_without_a_last_commit_a_broker_is_asked_whether_it_is_there(stage: Stage) -> None:
    stage.loop.commits_stopped = True
    stage.client.there = False
    report = stop(stage.loop, 25.0, lambda: False)
    assert stage.sent() == []
    assert not report.commit_accepted
    assert not report.heard


def test_a_last_commit_for_partitions_that_were_lost_is_not_sent_again(stage: Stage) -> None:
    def lose() -> list[object]:
        stage.client.callbacks["lost"]([P0])
        return []

    def answer(commit: cmd.Commit) -> ev.CommitAnswer:
        stage.client.plans.append(lose)  # type: ignore[arg-type]
        stage.accept()
        return ev.CommitAnswer(commit, ev.CommitResult.LOST, REFUSED)

    stage.client.answer = answer
    report = stop(stage.loop, 25.0, lambda: False)
    assert stage.sent() == [3]
    assert not report.clean


@pytest.mark.parametrize("result", [ev.CommitResult.LOST, ev.CommitResult.RETRY])
def test_a_last_commit_is_not_sent_again_once_a_callback_has_raised(
    stage: Stage, result: ev.CommitResult
) -> None:
    """What the core believes can no longer be trusted: it has not heard of the loss."""

    def fail(what: str, partitions: Sequence[TopicPartition]) -> None:
        raise RuntimeError(f"on purpose, {what}: {partitions}")

    def lose() -> list[object]:
        stage.client.callbacks["lost"]([P0])
        return []

    def answer(commit: cmd.Commit) -> ev.CommitAnswer:
        stage.client.plans.append(lose)  # type: ignore[arg-type]
        stage.accept()
        return ev.CommitAnswer(commit, result, REFUSED)

    stage.rebalancer.observer = fail
    stage.client.answer = answer
    report = stop(stage.loop, 25.0, lambda: False)
    assert stage.sent() == [3]
    assert not report.clean
    assert not report.commit_accepted


def test_the_second_signal_ends_a_revoke_and_names_what_it_gave_up_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    stage = Stage(revoke_deadline=600.0)
    stage.accept()
    stage.fill(record(0), record(1, key=b"other"))
    stage.assign()
    stage.step()
    for worker in stage.pool.workers.values():
        worker.start()
    signals = 1
    stage.rebalancer.hurried = lambda: signals > 1

    def second_signal() -> None:
        nonlocal signals
        signals = 2

    stage.on_wait = second_signal
    before = stage.now
    stage.client.callbacks["revoke"]([P0])
    assert stage.now - before < 0.1
    assert "given up, may run again" in caplog.text
    report = stop(stage.loop, 25.0, lambda: signals > 1)
    assert stage.now - before < 1.0
    assert not report.clean, "a handler still runs: exit 1, and do not wait for it to close"
    assert len(report.running) >= 1
    assert report.commit_accepted


def test_what_is_assigned_while_leaving_is_not_asked_for(stage: Stage) -> None:
    asked = len(stage.client.made("committed"))
    stage.rebalancer.closing = True
    stage.assign(P1)
    assert len(stage.client.made("committed")) == asked
    assert P1 not in stage.core.partitions


def test_a_rebalance_that_brings_nothing_asks_nothing(stage: Stage) -> None:
    """A cooperative one ends so for every member that keeps what it has; no broker is needed."""
    asked = len(stage.client.made("committed"))
    stage.client.callbacks["assign"]([])
    assert len(stage.client.made("committed")) == asked
    assert stage.client.made("assign")[-1] == {}
    assert P0 in stage.core.partitions

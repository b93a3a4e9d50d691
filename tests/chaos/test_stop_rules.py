"""What a stop in the middle of a rebalance taught, step by step and without a broker."""

from __future__ import annotations

import pytest

from kafka_keyshared.core import events as ev
from kafka_keyshared.runtime.stopping import HURRIED_ANSWER_WAIT, stop
from tests.support.ports import Stage
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

    def answer(commit: ev.Commit) -> ev.CommitAnswered:
        stage.accept()
        return ev.CommitAnswered(commit, ev.CommitResult.LOST, REFUSED)

    stage.client.answer = answer


def test_a_last_commit_of_the_generation_before_is_sent_again(stage: Stage) -> None:
    refuse_once(stage)
    report = stop(stage.loop, 25.0, lambda: False)
    assert stage.sent() == [3, 3]
    assert report.clean


def test_a_last_commit_that_is_refused_twice_is_not_acknowledged(stage: Stage) -> None:
    stage.client.answer = lambda commit: ev.CommitAnswered(commit, ev.CommitResult.LOST, REFUSED)
    report = stop(stage.loop, 25.0, lambda: False)
    assert stage.sent() == [3, 3]
    assert not report.clean
    assert not report.commit_accepted


def test_a_last_commit_that_fails_again_and_again_is_sent_ever_more_slowly(stage: Stage) -> None:
    """A client that is broken for good refuses it at once, each time."""
    stage.client.answer = lambda commit: ev.CommitAnswered(commit, ev.CommitResult.RETRY, "no")
    before = stage.now
    report = stop(stage.loop, 25.0, lambda: False)
    assert 2 <= len(stage.sent()) <= 7
    assert not report.commit_accepted
    assert stage.now - before < 2.5


def test_a_last_commit_that_fails_once_is_sent_again_and_counts(stage: Stage) -> None:
    def answer(commit: ev.Commit) -> ev.CommitAnswered:
        stage.accept()
        return ev.CommitAnswered(commit, ev.CommitResult.RETRY, "not yet")

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


def test_a_last_commit_for_partitions_that_were_lost_is_not_sent_again(stage: Stage) -> None:
    def lose() -> list[object]:
        stage.client.callbacks["lost"]([P0])
        return []

    def answer(commit: ev.Commit) -> ev.CommitAnswered:
        stage.client.plans.append(lose)  # type: ignore[arg-type]
        stage.accept()
        return ev.CommitAnswered(commit, ev.CommitResult.LOST, REFUSED)

    stage.client.answer = answer
    report = stop(stage.loop, 25.0, lambda: False)
    assert stage.sent() == [3]
    assert not report.clean


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

"""Missing rights: what goes on beside them, what is logged and shown, and when they end a run."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_keyshared.client.port import RightRefusal
from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.events import Right
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.runtime.rights import ASK_EVERY, Subject, user_in
from kafka_keyshared.runtime.shutdown import stop
from kafka_keyshared.runtime.status_board import Observer, StatusBoard
from tests.support.loop_ports import Stage
from tests.support.records import P0, FakeRecord, record

Q0 = TopicPartition("payments", 0)
NOBODY = TopicPartition("", -1)
TIMEOUT = 300.0


def refused(at: TopicPartition) -> FakeRecord:
    error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed")
    return FakeRecord(at, 0, None, error=error)


class NoTopic(FakeRecord):
    """An error that is about no topic."""

    def topic(self) -> str:
        return None  # type: ignore[return-value]


def group_refused() -> FakeRecord:
    why = "JoinGroup failed: Broker: Group authorization failed"
    return NoTopic(NOBODY, 0, None, error=KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, why))


@pytest.fixture
def stage(caplog: pytest.LogCaptureFixture) -> Iterator[Stage]:
    """A member with a partition of each of two topics, of which nothing is logged yet."""
    made = Stage()
    made.loop.rights.subject = Subject(("orders", "payments"), "billing", "alice", TIMEOUT)
    made.assign(P0, Q0)
    made.accept()
    made.step(3)
    caplog.clear()
    yield made


def pass_time(stage: Stage, seconds: float, step: float = 0.5) -> None:
    """Let the loop go round for so long."""
    until = stage.now + seconds
    while stage.now < until and stage.loop.halted is None:
        stage.now += step
        stage.step()


def refuse(stage: Stage, *events: FakeRecord) -> None:
    """Have the client report these; the refused partitions deliver nothing from now on."""
    for each in events:
        stage.client.plans.append(lambda each=each: [each])  # type: ignore[misc]
        stage.client.stuck[TopicPartition(each.topic(), each.partition())] = 1_000
        stage.step()
    pass_time(stage, 1.0)


def lines(caplog: pytest.LogCaptureFixture, start: str) -> list[str]:
    """Return the warnings that begin so, and forget all that was logged."""
    found = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    caplog.clear()
    return [each for each in found if each.startswith(start)]


def test_a_topic_that_may_not_be_read_is_named_with_the_right_and_others_go_on(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    refuse(stage, refused(Q0))
    (line,) = lines(caplog, "topic payments")
    assert "READ refused (Topic authorization failed)" in line
    assert "Grant READ on topic payments to user alice" in line
    stage.fill(*(record(offset) for offset in range(10)))
    pass_time(stage, 2.0)
    assert stage.work() == list(range(10))
    pass_time(stage, 2.0)
    assert stage.sent()[-1] == 10
    assert stage.loop.halted is None


def test_a_missing_right_is_logged_once_a_minute_however_often_it_is_refused(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    refuse(stage, refused(Q0))
    for _ in range(118):
        stage.client.plans.append(lambda: [group_refused()])
        pass_time(stage, 1.0)
    logged = [each.getMessage() for each in caplog.records]
    assert sum(each.startswith("topic payments: READ refused") for each in logged) == 2
    assert sum(each.startswith("group billing: READ refused") for each in logged) == 2


def test_records_of_the_topic_show_that_it_may_be_read_again(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    refuse(stage, refused(Q0))
    lines(caplog, "topic")
    pass_time(stage, 33.0)
    stage.client.stuck.clear()
    stage.fill(FakeRecord(Q0, 0, b"key"))
    pass_time(stage, 1.0)
    assert lines(caplog, "topic") == ["topic payments: no longer refused, after 34 s"]
    assert not stage.loop.rights.unreadable


def test_a_topic_without_records_is_asked_for_until_it_may_be_read(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    refuse(stage, refused(Q0))
    lines(caplog, "topic")
    pass_time(stage, 3 * ASK_EVERY)
    asked = stage.client.made("ask_rights")
    assert asked == [{"payments"}] * len(asked)
    assert 3 <= len(asked) <= 4
    assert stage.loop.rights.unreadable == {Q0}
    stage.client.readable = frozenset({"payments"})
    pass_time(stage, 2 * ASK_EVERY)
    assert lines(caplog, "topic payments: no longer refused")
    pass_time(stage, 3 * ASK_EVERY)
    assert len(stage.client.made("ask_rights")) <= len(asked) + 2, "asked while it is refused"


def test_a_partition_that_went_and_comes_back_refused_is_still_known_as_that(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """The client reports the refusal of a partition once, also when it is assigned again."""
    refuse(stage, refused(Q0))
    stage.client.callbacks["revoke"]([Q0])
    lines(caplog, "topic")
    pass_time(stage, 120.0)
    assert lines(caplog, "topic") == [], "it is another member's"
    stage.client.callbacks["assign"]([Q0])
    pass_time(stage, 1.0)
    assert lines(caplog, "topic payments: READ refused")


def test_a_group_that_refuses_the_member_is_named_until_it_assigns(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.client.callbacks["lost"]([P0, Q0])
    stage.client.plans.append(lambda: [group_refused()])
    pass_time(stage, 2.0)
    (line,) = lines(caplog, "group billing")
    assert "READ refused (JoinGroup failed" in line
    assert "Grant READ on group billing to user alice" in line
    assert stage.loop.halted is None
    pass_time(stage, 20.0)
    stage.assign(P0, Q0)
    assert lines(caplog, "group") == ["group billing: no longer refused, after 22 s"]


def test_a_group_that_was_refused_once_and_has_nothing_to_commit_is_asked(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """A refused search for the coordinator is reported once, and its end never."""
    stage.client.plans.append(lambda: [group_refused()])
    stage.client.committed_fails = [KafkaException(KafkaError(KafkaError._TIMED_OUT))]
    pass_time(stage, 2.0)
    assert lines(caplog, "group billing: READ refused")
    pass_time(stage, ASK_EVERY)
    assert lines(caplog, "group billing") == [], "its question was not answered"
    pass_time(stage, ASK_EVERY)
    assert lines(caplog, "group billing: no longer refused")
    pass_time(stage, 2 * TIMEOUT)
    assert stage.loop.halted is None


@pytest.mark.parametrize("right", list(Right))
def test_denied_commits_are_named_and_sent_again_until_they_are_accepted(
    stage: Stage, caplog: pytest.LogCaptureFixture, right: Right
) -> None:
    error = 'KafkaError{code=DENIED,val=1,str="Broker: authorization failed"}'
    stage.client.answer = lambda commit: ev.CommitAnswer(
        commit, ev.CommitResult.DENIED, error, right
    )
    stage.fill(*(record(offset) for offset in range(10)))
    pass_time(stage, 2.0)
    stage.work()
    pass_time(stage, 30.0)
    name = "group billing" if right is Right.GROUP else "topic orders"
    (line,) = lines(caplog, f"{name}: READ refused (Broker: authorization failed)")
    assert "again" in line
    stage.accept()
    pass_time(stage, 3.0)
    assert lines(caplog, f"{name}: no longer refused")
    assert stage.core.commits.committed(P0) == 10
    assert stage.loop.halted is None


# --- the end ---


def test_the_instance_ends_when_every_topic_has_been_refused_for_the_whole_time(
    stage: Stage,
) -> None:
    stage.fill(record(0), FakeRecord(Q0, 0, b"key"))
    refuse(stage, refused(P0), refused(Q0))
    pass_time(stage, TIMEOUT - 5.0)
    assert stage.loop.halted is None
    pass_time(stage, 15.0)
    reason = stage.loop.halted or ""
    assert reason.startswith("the brokers have refused all work of this instance for 5 min")
    assert "Grant READ on topic orders to user alice" in reason
    assert "Grant READ on topic payments to user alice" in reason


def test_the_instance_ends_when_the_group_has_been_refused_for_the_whole_time(
    stage: Stage,
) -> None:
    stage.client.callbacks["lost"]([P0, Q0])
    for _ in range(int(TIMEOUT) - 5):
        stage.client.plans.append(lambda: [group_refused()])
        pass_time(stage, 1.0)
    assert stage.loop.halted is None
    pass_time(stage, 15.0)
    assert "Grant READ on group billing to user alice" in (stage.loop.halted or "")


def test_an_instance_with_one_topic_that_is_allowed_never_ends_for_the_others(
    stage: Stage,
) -> None:
    stage.fill(FakeRecord(Q0, 0, b"key"))
    refuse(stage, refused(Q0))
    pass_time(stage, 3 * TIMEOUT)
    assert stage.loop.halted is None


def test_refused_topics_in_which_there_is_nothing_to_read_end_no_instance(stage: Stage) -> None:
    """Where no rights can be asked for nothing shows that they are back."""
    refuse(stage, refused(P0), refused(Q0))
    stage.client.readable = None
    pass_time(stage, 2 * TIMEOUT)
    assert stage.loop.halted is None
    stage.fill(record(0))
    pass_time(stage, 2 * ASK_EVERY)
    assert stage.loop.halted is not None


def test_without_a_timeout_no_instance_ends_for_a_missing_right(stage: Stage) -> None:
    stage.loop.rights.subject = Subject(("orders", "payments"), "billing", "", None)
    stage.fill(record(0), FakeRecord(Q0, 0, b"key"))
    refuse(stage, refused(P0), refused(Q0))
    pass_time(stage, 3 * TIMEOUT)
    assert stage.loop.halted is None


def test_a_topic_that_is_refused_now_and_then_ends_no_instance(stage: Stage) -> None:
    """Each time the whole of the time begins again."""
    stage.fill(record(0), FakeRecord(Q0, 0, b"key"))
    refuse(stage, refused(P0), refused(Q0))
    pass_time(stage, TIMEOUT - 20.0)
    stage.client.stuck.clear()
    pass_time(stage, 1.0)
    stage.fill(record(1), FakeRecord(Q0, 1, b"key"))
    refuse(stage, refused(P0), refused(Q0))
    pass_time(stage, TIMEOUT - 20.0)
    assert stage.loop.halted is None


# --- starts and stops ---


def test_a_partition_whose_position_may_not_be_asked_waits_and_starts_by_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    stage.loop.rights.subject = Subject(("orders", "payments"), "billing", "alice", TIMEOUT)
    stage.client.refused = {Q0}
    hidden = RightRefusal(Right.TOPIC, "payments", Q0, "Topic authorization failed")
    stage.client.told_refusals = [hidden]
    stage.assign(P0, Q0)
    stage.fill(record(0), FakeRecord(Q0, 0, b"key"))
    pass_time(stage, 2.0)
    assert len(lines(caplog, "topic payments: READ refused")) == 1
    assert set(stage.core.partitions) == {P0}
    assert stage.loop.core.holds.held_back(Reason.UNSTARTED) == {Q0}
    stage.client.refused = set()
    pass_time(stage, 6.0)
    assert set(stage.core.partitions) == {P0, Q0}
    assert lines(caplog, "topic payments: no longer refused")


def test_a_topic_that_is_not_seen_at_all_is_told_with_both_rights(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.client.told_refusals = [RightRefusal(Right.TOPIC, "hidden", None, "no such right")]
    pass_time(stage, 1.0)
    (line,) = lines(caplog, "topic hidden")
    assert "Grant DESCRIBE and READ on topic hidden" in line
    stage.client.callbacks["assign"]([TopicPartition("hidden", 0)])
    assert lines(caplog, "topic hidden: no longer refused")


def test_a_stop_waits_for_a_denied_commit_while_it_has_time(stage: Stage) -> None:
    stage.fill(*(record(offset) for offset in range(5)))
    pass_time(stage, 1.0)
    stage.work()
    back = stage.now + 12.0
    stage.client.answer = lambda commit: (
        ev.CommitAnswer(commit, ev.CommitResult.DENIED, "no", Right.GROUP)
        if stage.now < back
        else ev.CommitAnswer(commit, ev.CommitResult.ACCEPTED)
    )
    report = stop(stage.loop, 25.0, lambda: False)
    assert report.clean
    assert 12.0 <= report.seconds < 14.0
    assert stage.core.commits.committed(P0) == 5


def test_a_stop_says_of_how_many_partitions_no_start_could_be_committed() -> None:
    stage = Stage()
    stage.client.answer = lambda commit: ev.CommitAnswer(
        commit, ev.CommitResult.DENIED, "no", Right.TOPIC
    )
    stage.assign(P0)
    pass_time(stage, 3.0)
    report = stop(stage.loop, 25.0, lambda: False)
    assert report.clean
    assert report.seconds < 1.0
    assert (
        "; where 1 partition began is not committed, as a right is missing: the next start follows "
        "auto.offset.reset there; 0 records received" in report.line()
    )


def test_the_stop_of_an_instance_that_ends_for_missing_rights_waits_no_longer(
    stage: Stage,
) -> None:
    stage.fill(*(record(offset) for offset in range(5)))
    pass_time(stage, 1.0)
    stage.work()
    stage.client.answer = lambda commit: ev.CommitAnswer(
        commit, ev.CommitResult.DENIED, "no", Right.GROUP
    )
    pass_time(stage, TIMEOUT + 5.0)
    assert stage.loop.halted is not None
    report = stop(stage.loop, 25.0, lambda: False)
    assert not report.commit_accepted
    assert report.seconds < 4.0


# --- what else looks at partitions that deliver nothing ---


def test_a_refused_partition_is_no_stall_and_no_reason_to_restart(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.fill(FakeRecord(Q0, 0, b"key"))
    pass_time(stage, 1.0)
    refuse(stage, refused(Q0))
    stage.fill(FakeRecord(Q0, 1, b"key"))
    pass_time(stage, 200.0)
    assert not stage.loop.watchdog.stalls
    assert stage.loop.watchdog.failing(stage.now) == ""
    assert "reading it again" not in caplog.text


@pytest.mark.parametrize("unready", [False, True])
def test_readiness_names_the_right_and_fails_for_it_when_asked_to(
    stage: Stage, unready: bool
) -> None:
    board = StatusBoard(stage.loop.ports.clock, unready_when_unauthorized=unready)
    watcher = Observer(
        stage.loop, board, group="billing", pool="thread", interval_ms=300_000, topics=["orders"]
    )
    stage.instance.watcher = watcher
    watcher.rebalanced("assigned", [P0, Q0])
    watcher.enter("running")
    pass_time(stage, 1.0)
    assert board.ready().ok
    refuse(stage, refused(Q0))
    board.ready()
    pass_time(stage, 3.0)
    health = board.ready()
    assert health.ok is not unready
    assert "Grant READ on topic payments to user alice" in health.reason
    status = board.read(0.0)
    assert status is not None
    assert [each.topic for each in status.refused] == ["payments"]
    stage.client.stuck.clear()
    stage.fill(FakeRecord(Q0, 0, b"key"))
    pass_time(stage, 2.0)
    assert board.ready().ok


@pytest.mark.parametrize(
    ("conf", "user"),
    [({"sasl.username": "alice"}, "alice"), ({"sasl.kerberos.principal": "bob"}, "bob"), ({}, "")],
)
def test_the_user_is_named_as_the_settings_have_it(conf: dict[str, object], user: str) -> None:
    assert user_in(conf) == user

"""Where partitions start: each by itself, once what that takes was answered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_keyshared.client.port import CommittedOffset, LogBounds
from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.commands import Commit
from kafka_keyshared.core.offsets import commit_metadata
from kafka_keyshared.core.offsets.metadata_sections import STARTED, LaneNotes, RunningNote
from kafka_keyshared.core.partitions.careful_starts import FIRST_RECORDS
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.runtime.rebalance import NOTHING_AFTER
from tests.support.commit_texts import here
from tests.support.loop_ports import Stage
from tests.support.records import P0, P1, record


def with_set(partition: TopicPartition, topic_id: str | None = None) -> CommittedOffset:
    """At position 17, the records at 18 and 19 are settled."""
    at = here(17, partition, topic_id)
    return CommittedOffset(17, commit_metadata.encode(at, {"default": ((18, 20),)}).text)


@pytest.fixture
def stage_with_sets() -> Stage:
    made = Stage()
    made.client.stored = {each: with_set(each) for each in (P0, P1)}
    made.fill(*(record(offset, at=at) for at in (P0, P1) for offset in range(20)))
    return made


def asked_again(stage: Stage) -> None:
    """Let time pass until it was asked again where partitions start."""
    stage.now += 5.0
    stage.step(3)


def test_a_partition_whose_log_is_not_known_waits_alone(
    stage_with_sets: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage = stage_with_sets
    stage.client.unreachable = {P1}
    stage.assign(P0, P1)
    assert stage.client.made("assign") == [{P0: 17, P1: None}]
    assert stage.client.paused == {P1}
    assert stage.core.holds.held_back(Reason.UNSTARTED) == {P1}
    stage.step()
    assert stage.work() == [17], "18 and 19 are in its set"
    assert "start offsets unknown for 1 of 2 partitions (orders-1)" in caplog.text
    asked_again(stage)
    assert stage.work() == []
    stage.client.unreachable.clear()
    asked_again(stage)
    assert stage.client.paused == set()
    assert stage.work() == [17]
    assert len(stage.client.made("committed")) == 1, "that was answered the first time"


def test_a_partition_that_the_broker_tells_nothing_of_waits_alone() -> None:
    stage = Stage()
    stage.fill(*(record(offset, at=at) for at in (P0, P1) for offset in range(4)))
    stage.client.stored = {P0: CommittedOffset(2, None), P1: CommittedOffset(3, None)}
    stage.client.refused = {P1}
    stage.assign(P0, P1)
    stage.step()
    assert stage.work() == [2, 3]
    stage.client.refused.clear()
    asked_again(stage)
    assert stage.work() == [3]
    assert stage.client.made("committed") == [[P0, P1], [P1]]


@pytest.mark.parametrize("rounds", [0, 1], ids=["in the round of the start", "a round before"])
def test_what_comes_before_the_start_is_read_again_where_nothing_is_committed(rounds: int) -> None:
    """The client has refused the pause, and delivers what nobody may run yet."""
    stage = Stage()
    stage.accept()
    stage.fill(*(record(offset) for offset in range(6)))
    stage.client.refused = {P0}
    refuse_pauses(stage)
    stage.assign()
    assert stage.core.holds.held_back(Reason.UNSTARTED) == {P0}
    stage.step(rounds)
    stage.client.refused.clear()
    stage.now += 5.0
    stage.step()
    assert list(stage.core.partitions) == [P0], "it has started"
    assert stage.client.positions() == {P0: 6}, "all of it was delivered before that"
    assert stage.work() == [], "nothing of it was to run before that"
    stage.step(3)
    assert stage.work() == [0, 1, 2, 3, 4, 5]
    stage.now += 5.0
    stage.step(2)
    assert stage.sent()[-1] == 6


def refuse_pauses(stage: Stage) -> None:
    """Let the client refuse every pause, as it does while its assignment changes under us."""

    def refuse(partitions: Iterable[TopicPartition]) -> None:
        raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))

    stage.client.pause = refuse  # type: ignore[method-assign]


def test_what_is_asked_at_a_start_does_not_grow_with_the_partitions() -> None:
    """400 of them, each with a set, behind a broker that is far away."""
    stage = Stage()
    many = [TopicPartition("orders", number) for number in range(400)]
    stage.client.stored = {each: with_set(each) for each in many}
    stage.fill(*(record(offset, at=each) for each in many for offset in range(20)))
    stage.assign(*many)
    assert [len(asked) for asked in stage.client.made("committed")] == [400]
    assert [len(asked) for asked in stage.client.made("log_bounds")] == [400]
    assert len(stage.core.partitions) == 400


def test_a_bare_position_is_started_at_without_a_look_at_the_log() -> None:
    stage = Stage()
    stage.client.stored = {P0: CommittedOffset(3, ""), P1: CommittedOffset(0, "")}
    stage.client.unreachable = {P0, P1}
    stage.assign(P0, P1)
    assert stage.client.made("log_bounds") == []
    assert stage.client.made("assign") == [{P0: 3, P1: 0}]


def test_a_set_is_not_believed_beyond_the_end_of_the_log() -> None:
    stage = Stage()
    stage.client.stored[P0] = with_set(P0)
    stage.fill(*(record(offset) for offset in range(19)))
    stage.assign()
    stage.fill(record(19))
    stage.step()
    assert stage.work() == [17, 19], "18 is settled, 19 was written after the log was cut off"


def test_it_is_asked_again_with_pauses_that_leave_the_owner_its_time(
    stage_with_sets: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = stage_with_sets
    stage.client.unreachable = {P0, P1}
    asked: list[float] = []
    timeouts: list[float] = []
    answer = stage.client.log_bounds

    def takes_all_its_time(
        partitions: Sequence[TopicPartition], timeout: float
    ) -> dict[TopicPartition, LogBounds]:
        asked.append(stage.now)
        timeouts.append(timeout)
        stage.now += timeout
        return answer(partitions, timeout)

    monkeypatch.setattr(stage.client, "log_bounds", takes_all_its_time)
    stage.assign(P0, P1)
    for _ in range(400):
        stage.now += 0.1
        stage.step()
    assert timeouts[:4] == [1.0, 2.0, 4.0, 5.0], "a broker that is far away needs more of it"
    ended = [at + took for at, took in zip(asked, timeouts, strict=True)]
    between = [later - earlier for earlier, later in zip(ended, asked[1:], strict=False)]
    assert min(between) >= 4.0


@pytest.mark.parametrize("what", ["revoke", "lost"])
def test_what_waits_may_go_and_come_back(stage_with_sets: Stage, what: str) -> None:
    stage = stage_with_sets
    stage.client.unreachable = {P1}
    stage.assign(P0, P1)
    stage.client.callbacks[what]([P1])
    assert stage.core.holds.held_back(Reason.UNSTARTED) == set()
    stage.client.unreachable.clear()
    asked_again(stage)
    assert set(stage.core.partitions) == {P0}
    stage.assign(P1)
    stage.client.paused.clear()
    stage.step(2)
    assert stage.work() == [17, 17]


def test_a_partition_without_a_position_starts_at_one_end_and_that_is_committed() -> None:
    """What is written before it delivers anything is not skipped by its next start."""
    stage = Stage()
    stage.accept()
    stage.client.starts_at_end = True
    stage.fill(*(record(offset) for offset in range(5)))
    stage.assign()
    assert stage.client.made("assign") == [{P0: 5}]
    stage.now += 1.0
    stage.step(3)
    assert stage.core.commits.committed(P0) == 5
    stage.fill(record(5))
    stage.step(2)
    assert stage.work() == [5]


def test_what_was_written_to_an_added_partition_before_it_was_seen_is_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    stage = Stage()
    stage.client.starts_at_end = True
    stage.client.added = {P1}
    stage.fill(*(record(offset, at=at) for at in (P0, P1) for offset in range(3)))
    stage.assign(P0, P1)
    assert stage.client.made("assign") == [{P0: 3, P1: 0}]
    assert "orders-1 was added to its topic while this process ran" in caplog.text


def test_a_member_that_is_given_nothing_says_so_once_and_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    stage.client.stored[P0] = CommittedOffset(0, None)
    given = stage.client.callbacks["assign"]
    given([])
    stage.step()
    given([P0])  # a join of two rounds
    stage.now += 2 * NOTHING_AFTER
    stage.step()
    assert "this member has no partition" not in caplog.text
    stage.client.callbacks["revoke"]([P0])
    given([])
    for _ in range(5):
        stage.now += NOTHING_AFTER
        stage.step()
    assert caplog.text.count("this member has no partition") == 1
    assert "more workers in each member (--workers)" in caplog.text


@pytest.mark.parametrize("at_end", [False, True], ids=["earliest", "latest"])
def test_the_start_of_an_empty_partition_is_committed_once(at_end: bool) -> None:
    """Lag tools leave out a partition without a committed offset."""
    stage = Stage(careful=True)
    stage.accept()
    stage.client.starts_at_end = at_end
    stage.fill(record(0))
    stage.assign(P0, P1)
    for _ in range(30):
        stage.now += 0.5
        stage.step()
        stage.work()
    committed = [each.entries[P1].position for each in stage.client.commits if P1 in each.entries]
    assert committed == [0]
    assert stage.core.commits.committed(P0) == 1


def test_a_partition_that_has_a_committed_offset_is_not_committed_at_its_assignment() -> None:
    stage = Stage(careful=True)
    stage.accept()
    stage.client.stored = {P0: CommittedOffset(0, "")}
    stage.assign(P0)
    for _ in range(30):
        stage.now += 0.5
        stage.step()
    assert stage.client.commits == []


def test_where_no_record_may_be_skipped_the_client_refuses_a_partition_without_a_position() -> None:
    stage = Stage(careful=True)
    stage.client.halts_out_of_range = True
    stage.assign(P0)
    assert stage.client.made("log_bounds") == []
    assert stage.client.made("assign") == [{P0: None}]


def test_the_first_records_are_named_at_once_and_start_before_the_answer() -> None:
    stage = Stage(careful=True)
    stage.client.stored = {P0: CommittedOffset(0, "")}
    stage.fill(*(record(offset) for offset in range(5)))
    stage.assign(P0)
    stage.step()
    (commit,) = stage.client.commits
    assert named(commit) == {0, 1, 2, 3, 4}
    assert stage.work() == [0, 1, 2, 3, 4], "nobody has answered it"


def named(commit: Commit) -> set[int]:
    """Return the records that a commit of P0 names as running."""
    entry = commit.entries[P0]
    return set(
        commit_metadata.decode(entry.metadata, here(entry.position)).notes["default"].running[0]
    )


def test_after_an_unclean_end_records_start_behind_the_commit_that_names_them() -> None:
    stage = Stage(careful=True)
    ran = {"default": LaneNotes(running=RunningNote({100: STARTED}))}
    stage.client.stored = {
        P0: CommittedOffset(0, commit_metadata.encode(here(0), {}, notes=ran).text)
    }
    stage.fill(*(record(offset) for offset in range(101)))
    stage.assign(P0)
    stage.step(2)
    assert stage.work() == []
    (commit,) = stage.client.commits
    assert named(commit) == {*range(FIRST_RECORDS), 100}
    stage.mailbox.put(ev.CommitAnswer(commit, ev.CommitResult.ACCEPTED))
    stage.step()
    assert stage.work() == list(range(FIRST_RECORDS))

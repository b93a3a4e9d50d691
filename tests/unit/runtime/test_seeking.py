"""Back to the received end: after a loss, and when the broker calls a place out of range."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_keyshared.client.port import CommittedOffset
from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.runtime.seeking import ASK_AGAIN_AFTER, GIVEN_BACK_WITHIN, OUT_OF_RANGE_WAIT
from kafka_keyshared.runtime.shutdown import stop
from tests.support.loop_ports import Stage
from tests.support.records import ERROR, P0, P1, FakeRecord, record

P2 = TopicPartition("orders", 2)
OUT_OF_RANGE = KafkaError(KafkaError._AUTO_OFFSET_RESET, "offset out of range")


def out_of_range(partition: TopicPartition) -> FakeRecord:
    return FakeRecord(partition, -1, None, error=OUT_OF_RANGE)


def received(count: int, *partitions: TopicPartition) -> Stage:
    """A loop that has received and settled so many records of P0."""
    stage = Stage()
    stage.assign(*partitions)
    stage.accept()
    stage.fill(*(record(offset) for offset in range(count)))
    stage.step(3)
    stage.work()
    stage.step(3)
    return stage


def told_out_of_range(stage: Stage) -> None:
    stage.client.plans.append(lambda: [out_of_range(P0)])
    stage.step()


def test_a_place_that_the_log_has_is_read_again_and_not_the_policys() -> None:
    stage = received(5)
    told_out_of_range(stage)
    stage.fill(record(5))
    stage.now += OUT_OF_RANGE_WAIT
    stage.step(2)
    assert stage.client.made("restart") == [({P0: 5}, {P0})]
    assert stage.work() == [5], "neither the five before it again, nor a gap"


def test_nothing_is_committed_until_the_place_is_found_and_no_spin_waits_for_it() -> None:
    stage = received(5)
    stage.fill(record(5))
    stage.step()
    stage.work()
    sent = stage.sent()
    stage.now += 5.0
    told_out_of_range(stage)
    stage.now += OUT_OF_RANGE_WAIT / 2
    stage.step(3)
    assert stage.core.commit_wanted(stage.now), "there is something to commit"
    assert stage.client.made("restart") == []
    assert stage.sent() == sent
    stage.now += OUT_OF_RANGE_WAIT
    stage.step(3)
    assert stage.client.made("restart") == [({P0: 6}, {P0})]
    assert stage.sent() == [*sent, 6]


def test_without_the_bounds_of_the_log_it_waits() -> None:
    stage = received(5)
    stage.client.unreachable = {P0}
    told_out_of_range(stage)
    stage.now += OUT_OF_RANGE_WAIT
    stage.step(3)
    assert stage.client.made("restart") == []
    asked = stage.client.made("log_bounds")[1:]  # the first question was at the assignment
    assert len(asked) == 1, "asking keeps everybody else waiting"
    stage.client.unreachable.clear()
    stage.now += ASK_AGAIN_AFTER
    stage.step()
    assert stage.client.made("restart") == [({P0: 5}, {P0})]


@pytest.mark.parametrize("by", ["stop", "late stop", "revoke"])
@pytest.mark.parametrize(
    ("end", "commits"),
    [(9, True), (6, True), (3, False), (None, False)],
    ids=["in the log", "at its end", "another log", "no answer"],
)
def test_what_is_given_up_out_of_range_is_committed_only_where_the_log_is_still_the_same(
    by: str, end: int | None, commits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The topic may have been made anew: what is committed of the old one it would not run."""
    stage = received(5)
    stage.fill(record(5))
    stage.step()
    stage.work()
    sent = stage.sent()
    stage.now += 5.0
    told_out_of_range(stage)
    if end is None:
        stage.client.unreachable = {P0}
    else:
        stage.client.logs[P0] = [record(offset) for offset in range(end)]
    if by != "revoke":
        clean = stop(stage.loop, 25.0 if by == "stop" else 0.0, lambda: False).clean
        assert clean is commits, "who is told that all is well need not look"
    else:
        stage.client.callbacks["revoke"]([P0])
    assert stage.sent() == ([*sent, 6] if commits else sent)
    assert (
        "may be another log; the partition is not committed any more" in caplog.text
    ) is not commits


def test_a_user_who_wants_an_error_gets_one() -> None:
    stage = received(5)
    stage.client.halts_out_of_range = True
    told_out_of_range(stage)
    assert stage.loop.halted == "offset out of range"


def test_partitions_are_sought_in_their_order_and_not_in_that_of_their_hashes() -> None:
    stage = Stage()
    those = [TopicPartition("orders", number) for number in range(30)]
    stage.assign(*those)
    stage.accept()
    stage.loop.reseek.again(those)
    stage.step()
    assert [partition for partition, _ in stage.client.made("seek")] == those


def test_a_partition_that_went_meanwhile_is_not_sought() -> None:
    stage = received(5)
    told_out_of_range(stage)
    stage.client.callbacks["revoke"]([P0])
    stage.now += OUT_OF_RANGE_WAIT
    stage.step(2)
    assert stage.client.made("restart") == []
    assert not stage.loop.reseek


def test_what_is_not_out_of_range_is_read_on_where_it_is() -> None:
    """Also a partition that has delivered nothing yet: the client shows no position of it."""
    stage = Stage()
    stage.client.stored = {P1: CommittedOffset(5, None), P2: CommittedOffset(3, None)}
    stage.assign(P0, P1, P2)
    stage.fill(*(record(offset) for offset in range(5)))
    stage.step(2)
    stage.client.plans.append(lambda: [out_of_range(P0), out_of_range(P2)])
    stage.step()
    stage.fill(*(record(offset, at=P2) for offset in range(9)))
    stage.now += OUT_OF_RANGE_WAIT
    stage.step()
    assert stage.client.made("restart") == [({P0: 5, P1: 5, P2: 3}, {P0, P2})]
    assert not stage.loop.reseek


def test_a_broker_that_says_nothing_of_its_log_stops_no_commits_of_other_partitions() -> None:
    stage = received(5, P0, P1)
    stage.client.unreachable = {P0}
    told_out_of_range(stage)
    stage.fill(record(7, at=P1))
    stage.now += 1.0
    stage.step(2)
    stage.work()
    stage.now += 1.0
    stage.step(3)
    assert stage.core.commits.committed(P1) == 8
    assert stage.client.made("restart") == []


# --- another log ---


def made_anew(stage: Stage, count: int, *, epoch: int = 0) -> None:
    """The log of P0 now has so many records, and its leader this epoch."""
    stage.client.logs[P0] = [record(offset, f"new-{offset % 3}") for offset in range(count)]
    stage.client.epochs[P0] = epoch
    told_out_of_range(stage)
    stage.now += OUT_OF_RANGE_WAIT


def test_a_topic_that_was_made_anew_is_read_from_its_start_and_committed() -> None:
    stage = received(9)
    stage.now += 1.0
    stage.step(2)
    assert stage.core.commits.committed(P0) == 9
    made_anew(stage, 4)
    stage.step(4)
    assert stage.work() == [0, 1, 2, 3]
    stage.now += 1.0
    stage.step(3)
    assert stage.sent()[-1] == 4
    assert stage.core.commits.committed(P0) == 4


@pytest.mark.parametrize("answers", [True, False])
def test_what_has_not_started_of_the_old_log_is_awaited_before_the_new_one_is_read(
    answers: bool,
) -> None:
    """Found by the simulation: without a key it ran beside what was read again, or behind that.

    From a worker that does not answer it is awaited for a second.
    """
    stage = received(9)
    stage.fill(*(record(offset, None) for offset in range(9, 12)))
    stage.step()
    assert stage.worker().start() is not None
    stage.pool.answers_later = stage.pool.hesitates = lambda: True

    def answer() -> None:
        if answers:
            stage.pool.hesitates = lambda: False
            stage.worker().step()

    stage.on_wait = answer
    made_anew(stage, 4)
    before = stage.now
    stage.step()
    assert stage.now - before < GIVEN_BACK_WITHIN + 0.1
    assert bool(stage.worker().asked) is not answers
    assert stage.core.partitions[P0].received_end == 0
    stage.worker().finish()
    stage.pool.answers_later = stage.pool.hesitates = lambda: False
    ran = stage.work()
    stage.step(3)
    assert [*ran, *stage.work()] == [0, 1, 2, 3]


def test_a_log_is_not_begun_anew_of_what_is_given_up_when_a_callback_has_failed() -> None:
    """Found by the simulation: the run ended by that, and not by what the callback had raised."""
    stage = received(9)
    made_anew(stage, 4)

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    stage.instance.rebalancer.observer = broken
    stage.client.plans.append(lambda: stage.client.callbacks["lost"]([P0]) or [])
    with pytest.raises(ZeroDivisionError):
        stage.instance.step()


def test_until_the_client_reads_the_new_log_no_position_of_the_old_one_counts() -> None:
    """The old one's end would count as received of the new one: what is before it never came."""
    stage = received(9, P0, P1)
    restart = stage.client.restart

    def refused(*_: object) -> None:
        stage.client.restart = restart  # type: ignore[method-assign]
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    stage.client.restart = refused  # type: ignore[method-assign, assignment]
    made_anew(stage, 4)
    stage.step()
    assert stage.core.partitions[P0].received_end == 0
    stage.client.plans.append(lambda: [FakeRecord(P1, 0, b"other")])
    stage.step()
    stage.step(4)
    assert sorted(stage.work()) == [0, 0, 1, 2, 3]


def test_what_is_held_of_the_old_log_settles_nothing_in_the_new_one() -> None:
    stage = received(5)
    stage.fill(*(record(offset, "slow") for offset in range(5, 9)))
    stage.step(2)
    worker = stage.worker()
    old = worker.start()
    assert old is not None
    assert stage.core.unsettled_count() == 4
    made_anew(stage, 3)
    stage.step(4)
    assert stage.core.unsettled_count() == 4, "three of the new log, and the one that runs"
    worker.finish()
    stage.step()
    stage.now += 1.0
    stage.step(2)
    assert stage.core.commits.committed(P0) == 0, "what ran of the old log counts for nothing"
    assert sorted(stage.work()) == [0, 1, 2]
    stage.now += 1.0
    stage.step(3)
    assert stage.core.commits.committed(P0) == 3


def test_a_log_that_was_cut_off_is_not_read_from_its_start() -> None:
    stage = received(9)
    made_anew(stage, 4, epoch=1)
    stage.step(4)
    assert stage.work() == []
    stage.client.logs[P0] += [record(offset, "after") for offset in (4, 5)]
    stage.step(3)
    assert stage.work() == [4, 5]
    stage.now += 1.0
    stage.step(3)
    assert stage.core.commits.committed(P0) == 6


def test_what_was_settled_below_the_cut_stays_so_and_what_was_not_runs() -> None:
    stage = received(2)
    stage.fill(*(record(offset, f"key-{offset}") for offset in range(2, 9)))
    stage.step(3)
    assert sorted(stage.work({3: ERROR})) == [2, 3, 4, 5, 6, 7, 8]
    stage.step(2)
    made_anew(stage, 6, epoch=1)
    stage.step(4)
    assert stage.work() == [3], "2, 4 and 5 are done, and the rest is gone"
    stage.now += 1.0
    stage.step(3)
    assert stage.core.commits.committed(P0) == 6


def test_what_was_settled_below_the_first_cut_does_not_stay_so_below_a_second_one() -> None:
    """Cut off before it was read again: what is written there next is none of what had settled."""
    stage = received(2)
    stage.fill(*(record(offset, f"key-{offset}") for offset in range(2, 9)))
    stage.step(3)
    stage.work({2: ERROR})
    stage.step(2)
    made_anew(stage, 6, epoch=1)
    stage.step()
    assert stage.core.partitions[P0].received_end == 2
    assert stage.core.partitions[P0].settled_end == 6
    made_anew(stage, 2, epoch=2)
    stage.step(4)
    assert stage.core.partitions[P0].settled_end == 2
    stage.fill(*(record(offset, f"key-{offset}") for offset in range(2, 5)))
    stage.step(3)
    ran = stage.work()
    stage.step(3)
    assert sorted(ran + stage.work()) == [2, 3, 4]


def test_a_partition_that_was_held_back_is_fetched_from_again_when_its_log_is_another() -> None:
    stage = received(9)
    stage.client.pause([P0])
    stage.core.holds.hold_back(Reason.BLOCKED, [P0])
    made_anew(stage, 4)
    stage.step(4)
    assert stage.client.paused == set()
    assert stage.work() == [0, 1, 2, 3]

"""The checker of what travels besides the set passes what is right and finds what is not."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.offsets.commit_metadata import encode
from kafka_keyshared.core.offsets.metadata_sections import LaneNotes, Tried, hash_of
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.model import TopicPartition
from tests.simulation.told import SUB, T0, T1, Told
from tests.simulation.watched import assert_found, assert_right, begun, settings
from tests.support.commit_texts import here

KEY_A = hash_of((T0.topic, -1, b"a", -1))
OTHER = hash_of((T0.topic, -1, b"b", -1))
DIVERTS = settings(on_exhausted="divert", dlq=True, retry=RetryPolicy(attempts=1))
ARCHIVES = settings(on_exhausted="block_and_dlq", dlq=True, retry=RetryPolicy(attempts=1))
FIVE = settings(retry=RetryPolicy(attempts=5, backoff=0.0))


def words(position: int, notes: LaneNotes, *runs: tuple[int, int], at: TopicPartition = T0) -> str:
    return encode(here(position, at), {SUB: runs}, notes={SUB: notes}).text


def fails(told: Told, offset: int, times: int = 1, member: int = 1) -> None:
    for _ in range(times):
        told.hand(member, offset)
        told.begin(member, offset)
        told.end(member, offset, "failed")


def stored(told: Told, member: int, position: int, text: str) -> None:
    number = told.send(member, position, words=text)
    told.store(member, number, told.sent)


# --- attempts ---


def tried_twice(told: Told, says: Tried | None) -> None:
    begun(told).deliver(1, 0, 1)
    fails(told, 0, times=3)
    told.send(1, 0, words=words(0, LaneNotes(tried={} if says is None else {0: says})))


@pytest.mark.parametrize("times", [2, 3])
def test_a_commit_that_says_how_often_a_record_was_tried_is_right(times: int) -> None:
    assert_right(lambda told: tried_twice(told, Tried(times)), FIVE)  # the last may not be told


def test_a_commit_that_says_more_attempts_or_fewer_is_found() -> None:
    def more(told: Told) -> None:
        tried_twice(told, Tried(4))

    def fewer(told: Told) -> None:
        tried_twice(told, Tried(1))

    def none(told: Told) -> None:
        tried_twice(told, None)

    assert_found("TrueNotes", "says 4 attempts of t-0@0 .*: 3 at most", more, FIVE)
    assert_found("TrueNotes", "does not say 3 attempts of t-0@0", fewer, FIVE)
    assert_found("TrueNotes", "does not say 3 attempts of t-0@0", none, FIVE)


def test_attempts_go_on_behind_a_restart_and_what_has_used_them_up_is_not_retried() -> None:
    def story(told: Told) -> None:
        begun(told).deliver(1, 0, 1)
        fails(told, 0, times=4)
        stored(told, 1, 0, words(0, LaneNotes(tried={0: Tried(4)})))
        told.kill(1)
        told.assign(2)
        told.deliver(2, 0, 1)
        fails(told, 0, member=2)
        told.hand(2, 0)
        told.begin(2, 0)

    assert_found("OrderChecker", "t-0@0 .* although it is blocked", story, FIVE)


def test_attempts_of_records_that_the_log_has_not_got_are_of_another_log() -> None:
    """A member that is gone committed for the old topic when the new one was made."""

    def story(told: Told) -> None:
        begun(told).deliver(1, 0, 1)
        fails(told, 0, times=4)
        told.tell(happened.Remade(T0))
        stored(told, 1, 0, words(0, LaneNotes(tried={0: Tried(4)})))
        told.kill(1)
        told.assign(2)
        told.write("a", "a", "a")
        told.deliver(2, 0, 1)
        fails(told, 0, member=2)
        told.run(2, 0, 1)

    assert_right(story, FIVE)


# --- copies ---


def archived(told: Told) -> None:
    begun(told).deliver(1, 0, 1)
    fails(told, 0)
    told.letter(1, 0)


def test_a_copy_blocks_and_is_said_and_is_not_written_again() -> None:
    def story(told: Told) -> None:
        archived(told)
        stored(told, 1, 0, words(0, LaneNotes(tried={0: Tried(1, archived=True)})))
        told.kill(1)
        told.assign(2)
        told.deliver(2, 0, 1)
        told.run(2, 0, 1)

    assert_right(story, ARCHIVES)


def test_a_second_copy_is_found() -> None:
    def story(told: Told) -> None:
        archived(told)
        stored(told, 1, 0, words(0, LaneNotes(tried={0: Tried(1, archived=True)})))
        told.kill(1)
        told.assign(2)
        told.deliver(2, 0, 1)
        fails(told, 0, member=2)
        told.letter(2, 0)

    assert_found(
        "TrueNotes", "t-0@0 .* although it is blocked, and archived already", story, ARCHIVES
    )


def test_a_copy_that_is_said_and_not_there_is_found_and_one_settles_nothing() -> None:
    def said(told: Told) -> None:
        begun(told).deliver(1, 0, 1)
        fails(told, 0)
        told.send(1, 0, words=words(0, LaneNotes(tried={0: Tried(1, archived=True)})))

    def settles(told: Told) -> None:
        archived(told)
        told.send(1, 1)

    assert_found(
        "TrueNotes", "says that t-0@0 .* is archived, and no copy is there", said, ARCHIVES
    )
    assert_found("SafeCommit", "covers t-0@0 .*it is blocked", settles, ARCHIVES)


# --- diverted lanes ---


def diverted(told: Told) -> None:
    begun(told, 4).deliver(1, 0, 1)
    fails(told, 0)
    told.letter(1, 0)
    told.letter(1, 1)


def test_a_diverted_lane_is_said_and_goes_on_at_the_next_member() -> None:
    def story(told: Told) -> None:
        diverted(told)
        stored(told, 1, 2, words(2, LaneNotes(frozenset({KEY_A}))))
        told.kill(1)
        told.assign(2, position=2)
        told.deliver(2, 2, 3)
        told.letter(2, 2)
        told.letter(2, 3)
        told.send(2, 4, words=words(4, LaneNotes(frozenset({KEY_A}))))

    assert_right(story, DIVERTS)


def test_a_commit_that_forgets_a_diverted_lane_or_names_another_is_found() -> None:
    def forgets(told: Told) -> None:
        diverted(told)
        told.send(1, 2)

    def another(told: Told) -> None:
        diverted(told)
        told.send(1, 2, words=words(2, LaneNotes(frozenset({KEY_A, OTHER}))))

    assert_found("TrueNotes", "does not name 1 diverted lanes", forgets, DIVERTS)
    assert_found("TrueNotes", "names lanes that are not diverted", another, DIVERTS)


def test_a_record_of_a_diverted_lane_that_runs_is_found() -> None:
    def story(told: Told) -> None:
        diverted(told)
        stored(told, 1, 2, words(2, LaneNotes(frozenset({KEY_A}))))
        told.kill(1)
        told.assign(2, position=2)
        told.deliver(2, 2)
        told.hand(2, 2)
        told.begin(2, 2)

    assert_found("OrderChecker", "t-0@2 .* although its lane is diverted", story, DIVERTS)


def test_a_record_that_is_dead_lettered_and_never_ran_is_found() -> None:
    def story(told: Told) -> None:
        begun(told).deliver(1, 0)
        told.letter(1, 0)

    assert_found("TrueNotes", "is dead-lettered, and no handler has had it", story, DIVERTS)


def test_a_lane_that_is_released_runs_and_is_not_said_any_more() -> None:
    def story(told: Told) -> None:
        diverted(told)
        told.tell(happened.LaneOrdered(1, SUB, "unblock", T0, -1, b"a"))
        told.deliver(1, 2)
        told.run(1, 2)
        told.send(1, 3)

    assert_right(story, DIVERTS)


def test_what_its_member_had_settled_once_and_does_not_know_is_diverted_with_its_lane() -> None:
    """Its partition was lost and came back; who still knows of it sends no letter."""

    def story(told: Told) -> None:
        begun(told, 4)
        told.write("a", at=T1)
        told.assign(1, T1)
        told.deliver(1, 0, at=T1)
        told.run(1, 0, at=T1)
        told.released(1, T1, lost=True)
        told.deliver(1, 0)
        fails(told, 0)
        told.letter(1, 0)
        told.assign(1, T1)
        told.deliver(1, 0, at=T1)
        told.letter(1, 0, at=T1)
        told.send(1, 1, at=T1, words=words(1, LaneNotes(frozenset({KEY_A})), at=T1))

    assert_right(story, DIVERTS)


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_key_that_is_released_may_be_any_of_its_lanes(lanes: int) -> None:
    """It has one lane for each partition, and the order names the key alone."""

    def story(told: Told) -> None:
        diverted(told)
        if lanes == 2:
            told.assign(1, T0._replace(partition=1))
        told.tell(happened.LaneOrdered(1, SUB, "unblock", T0._replace(topic=""), -1, b"a"))
        told.deliver(1, 2)
        told.letter(1, 2)

    each = settings(on_exhausted="divert", dlq=True, retry=DIVERTS.retry, order_scope="partition")
    if lanes == 2:
        assert_right(story, each)
    else:
        assert_found("TrueNotes", "is dead-lettered, and no handler has had it", story, each)


def test_a_lane_that_is_released_while_its_letter_is_on_its_way_is_not_diverted_again() -> None:
    def story(told: Told) -> None:
        begun(told, 4).deliver(1, 0, 1)
        fails(told, 0)
        told.letter(1, 0, stored=False, error="no answer in time")
        told.tell(happened.LaneOrdered(1, SUB, "unblock", T0, 0, None))
        told.letter(1, 0)
        told.run(1, 1)
        told.send(1, 2)

    assert_right(story, DIVERTS)


@pytest.mark.parametrize("between", ["another member", "nothing", "one that it did not begin"])
def test_what_a_member_knows_of_a_partition_it_may_say_whoever_had_it_since(between: str) -> None:
    """It remembers what it has lost, until it is back with nobody's commit."""

    def story(told: Told) -> None:
        diverted(told)
        told.send(1, 0, words=words(0, LaneNotes(frozenset({KEY_A}))))
        told.released(1, lost=True)
        if between == "another member":
            told.assign(2)
            told.revoke(2)
        elif between == "one that it did not begin":
            told.assign(1, position=None)
            told.released(1, lost=True)
        told.assign(1)
        told.deliver(1, 2)
        told.send(1, 0, words=words(0, LaneNotes(frozenset({KEY_A}))))

    assert_right(story, DIVERTS)


def test_attempts_that_a_member_knows_of_count_although_it_has_read_nothing_since() -> None:
    def story(told: Told, says: int) -> None:
        begun(told, 4).deliver(1, 0, 1)
        fails(told, 0, times=2)
        for _ in range(2):
            told.released(1, lost=True)
            told.assign(1)
        told.deliver(1, 0, 1)
        told.send(1, 0, words=words(0, LaneNotes(tried={0: Tried(says)})))

    assert_right(lambda told: story(told, 2), FIVE)
    said = "says 3 attempts of t-0@0 .*: 2 at most"
    assert_found("TrueNotes", said, lambda told: story(told, 3), FIVE)


# --- orders ---


def test_what_is_ordered_of_a_blocked_record_is_what_happens_to_it() -> None:
    def released(told: Told) -> None:
        archived(told)
        told.tell(happened.LaneOrdered(1, SUB, "unblock", T0, 0, None))
        told.run(1, 0, 1)
        told.send(1, 2)

    def dropped(told: Told) -> None:
        archived(told)
        told.tell(happened.LaneOrdered(1, SUB, "drop", T0, 0, None))
        told.run(1, 1)
        told.send(1, 2)

    def lettered(told: Told) -> None:
        archived(told)
        told.tell(happened.LaneOrdered(1, SUB, "dead_letter", T0, 0, None))
        told.send(1, 1)

    for story in (released, dropped, lettered):
        assert_right(story, ARCHIVES)


@pytest.mark.parametrize("worker", [0, 1])
def test_what_waits_for_its_next_attempt_keeps_its_count_when_its_lane_is_released(
    worker: int,
) -> None:
    """Also where a worker had it for that attempt already, and gave it back."""

    def story(told: Told, says: int) -> None:
        begun(told).deliver(1, 0, 1)
        fails(told, 0, times=2)
        told.hand(1, 0, worker=worker)
        told.take_back(1, 0, worker=worker)
        told.tell(happened.LaneOrdered(1, SUB, "unblock", T0, 0, None))
        told.send(1, 0, words=words(0, LaneNotes(tried={0: Tried(says)})))

    assert_right(lambda told: story(told, 2), FIVE)
    said = "says 3 attempts of t-0@0 .*: 2 at most"
    assert_found("TrueNotes", said, lambda told: story(told, 3), FIVE)


def test_what_blocks_and_runs_without_an_order_is_found() -> None:
    def story(told: Told) -> None:
        archived(told)
        told.hand(1, 0)
        told.begin(1, 0)

    assert_found("OrderChecker", "t-0@0 .* although it is blocked", story, ARCHIVES)

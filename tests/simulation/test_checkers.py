"""Each checker passes what is right and finds what is not: loss, overlaps, order, owners."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers import every_checker
from kafka_keyshared.lab.simulator.checkers.checker import Violation
from kafka_keyshared.lab.simulator.checkers.logs import HistoryError
from tests.simulation.told import SUB, T0, T1, Told
from tests.simulation.watched import assert_found, assert_right, begun, settings
from tests.tidy.layers import imports
from tests.tidy.sources import modules

ONE = RetryPolicy(attempts=1)
# --- a whole run ---


def whole(told: Told) -> None:
    """Two members, retries, letters, a rebalance, a stop: all as it should be."""
    begun(told, 4)
    told.write("b", None, "b", at=T1)
    told.assign(1, T1)
    told.deliver(1, 0, 1, 2, 3)
    told.deliver(1, 0, 1, 2, at=T1)
    told.hand(1, 0, 1, 2)
    told.begin(1, 0)
    told.end(1, 0, "failed")
    told.take_back(1, 1, 2)
    told.later(0.1)
    told.run(1, 0, 1)
    told.run(1, 0, 1, worker=1, at=T1)
    told.commit(1, 2)
    told.hand(1, 2, 3)
    told.begin(1, 2)
    told.revoking(1)
    told.take_back(1, 3)
    told.later(0.5)
    told.end(1, 2)
    told.commit(1, 3)
    told.released(1)
    told.assign(2, position=3)
    told.deliver(2, 3)
    told.run(2, 3)
    told.commit(2, 4)
    told.run(1, 2, worker=1, at=T1)
    told.commit(1, 3, at=T1)
    told.stop(1)
    told.tell(happened.Healed())
    told.later(1.0)
    told.finish()


def test_a_run_as_it_should_be_is_right() -> None:
    checkers = assert_right(whole)
    assert len(checkers) == 15
    assert not any(each.violations for each in checkers.values())


def test_a_run_goes_on_beyond_the_first_violation_where_that_is_asked_for() -> None:
    told = Told()
    found = every_checker(told.history, [settings()], go_on=True)
    begun(told, 2)
    told.deliver(1, 0, 1)
    told.run(1, 1)
    told.commit(1, 1, (1, 2))
    told.finish()
    said = {type(each).__name__: [v.words for v in each.violations] for each in found}
    assert [name for name, words in said.items() if words] == [
        *("OrderChecker", "SafeCommit", "CommitSequence", "NoLoss")
    ]
    violation = next(each for each in found if each.violations).violations[0]
    assert isinstance(violation, Violation)
    assert (violation.member, violation.time, violation.invariant) == (1, 1_000.0, "I3 order")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("unknown member 9", happened.StopRequested(9)),
        ("unknown assignment 9", happened.Began(1, SUB, 0, T0, 0, 9)),
        ("never written", happened.Began(1, SUB, 0, T0, 77, 1)),
        ("never written", happened.Delivered(1, T0, [77], 1)),
        ("not read in that assignment", happened.Delivered(1, T1, [0], 1)),
        ("does not run", happened.HandlerEnded(1, SUB, 0, T0, 0, 1, "done")),
        ("the log is at 2 already", happened.Appended(T0, 2, b"a")),
    ],
)
def test_a_history_that_cannot_be_is_the_simulations_fault(words: str, what: object) -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0)
        with pytest.raises(HistoryError, match=words):
            told.tell(what)

    checkers = assert_right(story)
    assert not any(each.violations for each in checkers.values())


def test_an_outcome_that_nobody_knows_is_the_simulations_fault() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0)
        told.hand(1, 0)
        told.begin(1, 0)
        with pytest.raises(HistoryError, match="no such outcome"):
            told.end(1, 0, "lost interest")

    assert assert_right(story)


def test_keys_that_nobody_can_work_out_are_refused() -> None:
    derived = settings(key_of=lambda record: record.key())
    with pytest.raises(HistoryError, match="'default' has keys that checkers cannot work out"):
        every_checker(Told().history, [derived])


def test_checkers_know_nothing_of_what_the_core_believes() -> None:
    known = {module.name for module in modules("kafka_keyshared")}
    parts = {
        name
        for module in modules("kafka_keyshared/lab/simulator/checkers")
        for _, name in imports(module, known)
        if name.startswith("kafka_keyshared.") and ".lab.simulator." not in name
    }
    assert parts == {
        *("kafka_keyshared.core.contract.events", "kafka_keyshared.core.subscription.settings"),
        *("kafka_keyshared.hashing", "kafka_keyshared.model"),
    }


# --- I1 ---


def test_what_is_done_dropped_dead_lettered_or_removed_unread_is_not_lost() -> None:
    def story(told: Told) -> None:
        told.write("a", "b", "c", "d")
        told.join(1)
        told.tell(happened.Removed(T0, [3]))
        told.assign(1)
        told.deliver(1, 0, 1, 2)
        told.run(1, 0)
        told.hand(1, 1, 2)
        told.begin(1, 1)
        told.end(1, 1, "dropped")
        told.begin(1, 2)
        told.end(1, 2, "failed")
        told.letter(1, 2, error=None)
        told.finish()

    assert_right(story, settings(retry=ONE, on_exhausted="dead_letter", dlq=True))


def test_no_handler_sees_a_record_without_a_key_where_these_are_refused() -> None:
    def story(told: Told) -> None:
        told.write(None, "a")
        told.join(1)
        told.assign(1)
        told.deliver(1, 0, 1)
        told.run(1, 1)

    def settled(told: Told) -> None:
        story(told)
        told.commit(1, 2)
        told.finish()

    def archived(told: Told) -> None:
        story(told)
        told.letter(1, 0)
        told.commit(1, 2)
        told.finish()

    def blocked(told: Told) -> None:
        story(told)
        told.commit(1, 0, (1, 2))
        told.finish()

    assert_right(settled, settings(null_keys="reject", undecodable="drop"))
    assert_right(archived, settings(null_keys="reject", undecodable="dead_letter", dlq=True))
    words = "@0; t-0@0 .no key.: delivered 1 times, not settled; .* it is blocked"
    assert_found("NoLoss", words, blocked, settings(null_keys="reject", undecodable="block"))


def test_a_record_that_nobody_read_is_lost() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0)
        told.run(1, 0)
        told.finish()

    words = "2 of t-0 were not settled by 'default': @1, @2; t-0@1 .*never read.*which began at 0"
    assert_found("NoLoss", words, story)


def test_a_failed_record_whose_letter_was_not_stored_is_lost() -> None:
    def story(told: Told) -> None:
        begun(told, 1)
        told.deliver(1, 0)
        told.hand(1, 0)
        told.begin(1, 0)
        told.end(1, 0, "failed")
        told.letter(1, 0, stored=False, error="too large")
        told.finish()

    policy = settings(retry=ONE, on_exhausted="dead_letter", dlq=True)
    assert_found("NoLoss", "@0.*it waits for its dead letter", story, policy)


def test_a_removed_record_that_its_member_still_has_is_owed() -> None:
    def story(told: Told) -> None:
        begun(told, 1)
        told.deliver(1, 0)
        told.tell(happened.Removed(T0, [0]))
        told.finish()

    assert_found("NoLoss", "@0.*it is to run", story)


def test_each_subscription_owes_each_record() -> None:
    def story(told: Told) -> None:
        begun(told, 1)
        told.deliver(1, 0)
        told.run(1, 0)
        told.finish()

    assert_found("NoLoss", "by 'audit'", story, settings(), settings(name="audit"))


def test_of_a_log_that_was_made_anew_nothing_is_owed() -> None:
    def story(told: Told) -> None:
        begun(told, 3)
        told.tell(happened.Remade(T0))
        told.write("a")
        told.read(1)
        told.deliver(1, 0)
        told.run(1, 0)
        told.commit(1, 1)
        told.finish()

    assert_right(story)


# --- I2 ---


def test_two_records_of_a_lane_at_once_in_one_process_overlap() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.write("a", at=T1)
        told.assign(1, T1)
        told.deliver(1, 0)
        told.deliver(1, 0, at=T1)
        told.hand(1, 0)
        told.hand(1, 0, at=T1)
        told.begin(1, 0)
        told.begin(1, 0, at=T1)

    assert_found(
        "SerialChecker", "t-1@0 .* began at worker 0 .* while t-0@0 .* runs at worker 0", story
    )
    assert_right(story, settings(order_scope="partition"))


def test_keys_of_several_topics_are_one_lane_where_the_subscription_is_the_scope() -> None:
    def story(told: Told) -> None:
        begun(told, 1)
        other = T0._replace(topic="u")
        told.write("a", at=other)
        told.assign(1, other)
        for at in (T0, other):
            told.deliver(1, 0, at=at)
            told.hand(1, 0, at=at)
            told.begin(1, 0, at=at)

    assert_right(story)
    assert_found(
        "SerialChecker", "u-0@0 .* while t-0@0", story, settings(order_scope="subscription")
    )


def test_two_processes_do_not_run_a_lane_of_a_partition_at_once() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0)
        told.hand(1, 0)
        told.begin(1, 0)
        told.revoking(1)
        told.later(1.0)
        told.released(1)

    assert_found("SerialChecker", r"t-0 was let go after 1.000 s of 5.000 while t-0@0", story)


@pytest.mark.parametrize("how", ["lost", "killed", "late", "stolen"])
def test_what_another_process_cannot_know_of_may_overlap(how: str) -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0)
        told.hand(1, 0)
        told.begin(1, 0)
        if how == "killed":
            told.kill(1)
        elif how == "late":
            told.revoking(1)
            told.later(5.0)
            told.released(1)
        elif how == "lost":
            told.released(1, lost=True)
        told.assign(2)
        told.deliver(2, 0)
        told.run(2, 0)
        if how != "killed":
            told.end(1, 0)

    assert_right(story)


@pytest.mark.parametrize("how", ["stolen", "let go"])
def test_who_has_not_heard_of_its_loss_may_go_on_beside_the_next_one_and_nobody_else(
    how: str,
) -> None:
    def story(told: Told) -> None:
        told.write("a", "a")
        told.join(1, 2)
        told.assign(1)
        told.deliver(1, 0, 1)
        told.run(1, 0)
        told.commit(1, 1)
        told.hand(1, 1)
        if how == "let go":
            told.revoke(1)
        told.assign(2, position=1)
        told.deliver(2, 1)
        told.hand(2, 1)
        told.begin(2, 1)
        told.begin(1, 1)

    if how == "stolen":
        assert_right(story)
    else:
        assert_found(
            "SerialChecker", "t-0@1 .* in assignment 1 of member 1 while t-0@1 .* runs", story
        )


@pytest.mark.parametrize("how", ["while it began", "before it was told", "never"])
def test_who_begins_what_is_another_members_by_then_may_go_on_beside_that(how: str) -> None:
    """It was given the partition, expelled, and has heard of the first alone."""

    def story(told: Told) -> None:
        told.write("a")
        told.join(1, 2)
        if how != "before it was told":
            told.assign(1, read=False)
        if how != "never":
            told.assign(2)
        if how == "before it was told":
            told.assign(1, read=False, too_late=True)
        told.read(1)
        for member in (1, 2):
            if how == "never" and member == 2:
                told.tell(happened.ReadingFrom(2, T0, 0, 99))
                told.assigned[2, T0] = 99
            told.deliver(member, 0)
            told.hand(member, 0)
            told.begin(member, 0)

    if how == "never":
        assert_found(
            "SerialChecker", "t-0@0 .* in assignment 99 of member 2 while t-0@0 .* runs", story
        )
    else:
        assert_right(story)


@pytest.mark.parametrize("done", [True, False])
def test_what_ends_after_its_partition_has_gone_is_in_nobodys_way(done: bool) -> None:
    """Its worker has not answered yet that it gives back the rest, and goes on with it."""

    def story(told: Told) -> None:
        begun(told, 2)
        told.deliver(1, 0, 1)
        told.hand(1, 0, 1)
        told.begin(1, 0)
        told.tell(happened.Recalling(1, SUB, 0))
        told.released(1, lost=True)
        told.end(1, 0, "done" if done else "failed")
        told.begin(1, 1)

    if done:
        assert_right(story)
    else:
        assert_found("OrderChecker", "t-0@1 .* before t-0@0 .* of its lane: it is to run", story)


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("how", ["lost", "revoked too late", "revoked in time", "not asked"])
def test_a_worker_may_start_what_has_gone_until_it_has_given_that_back(
    how: str, ended: bool
) -> None:
    """Nobody waits for it: the partition is lost, or the deadline of its revoke is over."""

    def story(told: Told) -> None:
        told.write("a")
        told.join(1, 2)
        told.assign(1)
        told.deliver(1, 0)
        told.hand(1, 0)
        told.tell(happened.Recalling(1, SUB, 0))
        if how.startswith("revoked"):
            told.revoking(1)
            told.later(5.0 if how == "revoked too late" else 4.9)
        told.released(1, lost=not how.startswith("revoked"))
        if how == "not asked":
            told.tell(happened.RecallAnswered(1, SUB, 0))
        told.assign(2)
        told.deliver(2, 0)
        told.hand(2, 0)
        told.begin(2, 0)
        if ended:
            told.end(2, 0)
        told.begin(1, 0, number=1)

    if how in ("lost", "revoked too late"):
        assert_right(story)
    elif how == "not asked" and ended:
        assert_found("OrderChecker", "t-0@0 .* although its partition has gone: lost", story)
    elif ended:
        assert_found("NoRepeats", "t-0@0 .* began again at worker 0 in assignment 1", story)
    else:
        assert_found(
            "SerialChecker", "t-0@0 .* in assignment 1 of member 1 while t-0@0 .* runs", story
        )


def test_a_record_without_a_key_may_meet_itself_after_its_partition_was_away() -> None:
    def story(told: Told) -> None:
        told.write(None)
        told.join(1)
        told.assign(1)
        told.deliver(1, 0)
        told.hand(1, 0)
        told.begin(1, 0)
        told.released(1, lost=True)
        told.assign(1)
        told.deliver(1, 0)
        told.hand(1, 0)
        told.begin(1, 0)

    assert_right(story)
    words = "t-0@0 .no key. .* began at worker 0 .* while t-0@0"
    assert_found("SerialChecker", words, story, settings(null_keys="one-lane"))


def test_a_stop_is_not_clean_while_something_runs() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0)
        told.hand(1, 0)
        told.begin(1, 0)
        told.stop(1)

    assert_found("SerialChecker", "a stop counts as clean and t-0@0 .* still ran", story)


# --- I3 ---


def test_a_record_that_starts_before_the_one_ahead_is_out_of_order() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0, 1)
        told.run(1, 1)

    assert_found(
        "OrderChecker", "t-0@1 .* began .* before t-0@0 .* of its lane: it is to run", story
    )


def test_a_record_that_overtakes_a_retry_is_out_of_order() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0, 1)
        told.hand(1, 0, 1)
        told.begin(1, 0)
        told.end(1, 0, "failed")
        told.begin(1, 1)

    assert_found("OrderChecker", "before t-0@0 .*: it waits for its next attempt", story)


def test_a_record_that_overtakes_a_letter_nobody_has_answered_is_out_of_order() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0, 1)
        told.hand(1, 0, 1)
        told.begin(1, 0)
        told.end(1, 0, "dead_letter")
        told.letter(1, 0, error=None)
        told.begin(1, 1)

    assert_found(
        "OrderChecker", "before t-0@0 .*: it waits for its dead letter", story, settings(dlq=True)
    )


def test_a_blocked_record_does_not_start() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0)
        told.hand(1, 0)
        told.begin(1, 0)
        told.end(1, 0, "failed")
        told.run(1, 0)

    assert_found(
        "OrderChecker", "although it is blocked", story, settings(retry=ONE, on_exhausted="block")
    )


def test_dropped_by_the_policy_it_opens_its_lane() -> None:
    def story(told: Told) -> None:
        begun(told, 2)
        told.deliver(1, 0, 1)
        told.hand(1, 0)
        told.begin(1, 0)
        told.end(1, 0, "failed")
        told.run(1, 1)
        told.commit(1, 2)
        told.finish()

    assert_right(story, settings(retry=ONE, on_exhausted="drop"))


def test_what_was_given_back_untried_was_no_attempt() -> None:
    def story(told: Told) -> None:
        begun(told, 1)
        told.deliver(1, 0)
        told.hand(1, 0)
        told.begin(1, 0)
        told.end(1, 0, "given_back")
        told.run(1, 0)

    assert_right(story, settings(retry=ONE, on_exhausted="block"))


def test_nothing_starts_that_was_not_delivered() -> None:
    assert_found("OrderChecker", "was never delivered there", lambda told: begun(told).run(1, 0))


@pytest.mark.parametrize("gone", [False, True], ids=["revoked", "gone"])
def test_nothing_starts_of_a_partition_that_goes(gone: bool) -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0)
        told.hand(1, 0)
        told.revoking(1)
        if gone:
            told.released(1)
        told.begin(1, 0)

    words = "its partition has gone: revoked at 1000.000" if gone else "revoked since 1000.000"
    assert_found("OrderChecker", words, story)


def test_a_worker_that_is_to_answer_a_recall_may_start_what_it_has() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0, 1)
        told.hand(1, 0, 1)
        told.revoking(1)
        told.tell(happened.Recalling(1, SUB, 0))
        told.begin(1, 0)
        told.take_back(1, 1)
        told.tell(happened.RecallAnswered(1, SUB, 0))
        told.end(1, 0)

    assert_right(story)
    words = "revoked since"

    def and_again(told: Told) -> None:
        story(told)
        told.hand(1, 1)
        told.begin(1, 1)

    assert_found("OrderChecker", words, and_again)


def test_nothing_starts_once_an_owner_has_had_time_to_hear_of_the_stop() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0, 1)
        told.hand(1, 0, 1)
        told.tell(happened.StopRequested(1))
        told.begin(1, 0)
        told.end(1, 0)
        told.later(1.5)
        told.begin(1, 1)

    assert_found("OrderChecker", "although its member stops since 1000.000", story)
    assert_right(story, free_since=lambda member: float("inf"))


def test_an_assignment_begins_where_the_broker_says() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0, 1)
        told.run(1, 0, 1)
        told.commit(1, 2)
        told.revoke(1)
        told.assign(2, position=1)

    assert_found(
        "OrderChecker", "t-0 begins at 1 in assignment 2 of member 2, below the position 2", story
    )


@pytest.mark.parametrize("sought", [False, True])
def test_nothing_is_skipped_by_a_start_or_a_seek(sought: bool) -> None:
    def story(told: Told) -> None:
        told.write("a", "b")
        told.join(1)
        told.assign(1, position=0 if sought else 2)
        told.seek(1, 2)

    assert_found("OrderChecker", "t-0 is read from 2 .* beyond t-0@0 .*never read", story)


def test_a_seek_goes_back_to_what_was_not_used_and_no_further() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0, 1, 2)
        told.run(1, 0)
        told.seek(1, 1)
        told.deliver(1, 1, 2)
        told.run(1, 1, 2)
        told.commit(1, 3)
        told.finish()

    assert_right(story)

    def further(told: Told) -> None:
        told.write("a", "b")
        told.join(1)
        told.tell(happened.Removed(T0, [0]))
        told.assign(1, position=1)
        told.seek(1, 0)

    assert_found("OrderChecker", "read again from 0; .* begun at 1", further)


def test_an_answer_that_comes_while_a_member_asks_may_be_the_one_it_begins_with() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0)
        told.run(1, 0)
        number = told.send(1, 1)
        told.revoke(1)
        told.assign(2, read=False)
        told.store(1, number, {T0: (1, "")})
        told.read(2, position=1)
        told.deliver(2, 1, 2)
        told.run(2, 1, 2)

    assert_right(story)


def test_a_partition_that_was_withheld_begins_where_the_answer_says() -> None:
    def story(told: Told, position: int) -> None:
        begun(told)
        told.deliver(1, 0, 1)
        told.run(1, 0, 1)
        number = told.send(1, 2)
        told.revoke(1)
        told.assign(2, position=None)
        told.store(1, number, {T0: (2, "")})
        told.seek(2, position)
        told.deliver(2, *range(position, 3))
        told.run(2, 2)

    assert_right(lambda told: story(told, 2))
    assert_found("OrderChecker", "is read from 3 .* beyond t-0@2", lambda told: story(told, 3))


@pytest.mark.parametrize("place", [2, None])
def test_what_comes_before_it_is_said_where_to_begin_is_used_by_nobody(place: int | None) -> None:
    """The client may have refused the pause of a partition that waits for its start."""

    def story(told: Told, *used: int) -> None:
        told.write(*"abcdefg")
        told.join(1, 2)
        if place is not None:
            told.assign(2)
            told.deliver(2, *range(place))
            told.run(2, *range(place))
            told.commit(2, place)
            told.revoke(2)
        told.assign(1, position=None)
        told.deliver(1, 0, 1, 2)
        told.deliver(1, 3, 4, 5)
        told.run(1, *used)
        told.later(5.0)
        told.seek(1, place)
        rest = range(place or 0, 7)
        told.deliver(1, *rest)
        told.run(1, *rest)
        told.commit(1, 7)
        told.finish()

    bound = settings(window_records=6)
    assert_right(story, bound)
    if place is not None:
        words = "t-0 begins at 0 in assignment 2 of member 1, below the position 2"
        assert_found("OrderChecker", words, lambda told: story(told, 0), bound)


def test_who_reads_on_behind_what_came_first_has_taken_it_in() -> None:
    """Nothing was stored, and no worker was free before the client had failed."""

    def story(told: Told, position: int, *, runs: bool = True) -> None:
        told.write(*"abcdef")
        told.join(1)
        told.assign(1, position=None)
        told.deliver(1, 0, 1)
        told.deliver(1, 2)
        told.tell(happened.Misplaced(1, [T0]))
        told.seek(1, position)
        told.deliver(1, *range(position, 6))
        told.run(1, *range(3 if runs else 1), *range(position, 6))
        told.commit(1, 6)
        told.finish()

    assert_right(lambda told: story(told, 3))
    assert_found("OrderChecker", "is read from 4 .*beyond t-0@3", lambda told: story(told, 4))
    words = "covers t-0@1 .* which is not settled there"
    assert_found("SafeCommit", words, lambda told: story(told, 3, runs=False))


@pytest.mark.parametrize("runs", [True, False])
def test_what_came_before_and_was_dropped_is_lost_if_it_is_not_read_again(runs: bool) -> None:
    def story(told: Told) -> None:
        told.write("a", "b", "c")
        told.join(1)
        told.assign(1, position=None)
        told.deliver(1, 0, 1)
        if runs:
            told.deliver(1, 2)
            told.run(1, 2)
        told.commit(1, 3)

    words = "covers t-0@0 .*, which is not settled there" if runs else "is beyond 2, which was not"
    assert_found("SafeCommit", words, story)


@pytest.mark.parametrize("has_it", [True, False])
def test_what_a_client_has_lost_may_be_gone_from_the_log_by_then(has_it: bool) -> None:
    """It was delivered by a call that raised; or before it, and its member has it still."""

    def story(told: Told, *, fails: bool = True) -> None:
        told.write(*"abcd")
        told.join(1)
        told.assign(1)
        told.deliver(1, 0, 1)
        told.run(1, 0)
        if fails:
            told.tell(happened.Misplaced(1, [T0]))
        told.tell(happened.Removed(T0, (0, 1, 2)))
        told.seek(1, 3)
        told.deliver(1, 3)
        told.run(1, *([1] if has_it else []), 3)
        told.commit(1, 4)
        told.finish()

    assert_right(story)
    if not has_it:
        words = "covers t-0@1 .* which is not settled there"
        assert_found("SafeCommit", words, lambda told: story(told, fails=False))


def test_a_place_that_a_log_made_anew_never_had_is_left_for_its_start() -> None:
    def story(told: Told) -> None:
        told.write("a")
        told.join(1)
        told.stored[T0] = 9, ""
        told.assign(1, position=9)
        told.seek(1, 0)
        told.deliver(1, 0)
        told.run(1, 0)
        told.commit(1, 1)
        told.finish()

    assert_right(story)


# --- I6 ---


def test_a_slot_is_at_one_worker() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0, 1, 2)
        told.hand(1, 0)
        told.hand(1, 1, worker=1)

    assert_found("OneOwner", r"t-0@1 .*slot \d+. was given to worker 1 while worker 0 has 1", story)


def test_a_slot_goes_to_another_worker_when_the_last_of_it_has_ended_or_come_back() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0, 1, 2)
        told.hand(1, 0, 1)
        told.begin(1, 0)
        told.take_back(1, 1)
        told.end(1, 0)
        told.run(1, 1, 2, worker=1)

    assert_right(story)


def test_a_record_is_given_out_once() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0)
        told.hand(1, 0)
        told.hand(1, 0)

    assert_found("OneOwner", "t-0@0 .* was given to worker 0; worker 0 has it", story)


def test_what_comes_back_was_there() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0)
        told.hand(1, 0)
        told.take_back(1, 0)
        told.take_back(1, 0)

    assert_found("OneOwner", "came from worker 0, which has none of its slot", story)


def test_what_begins_was_given_to_that_worker() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0)
        told.hand(1, 0)
        told.begin(1, 0, worker=1)

    assert_found("OneOwner", "began at worker 1; worker 0 has it", story)


# --- I10 ---


def test_what_comes_when_its_assignment_is_over_is_in_no_window_and_may_not_start() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.revoke(1)
        told.deliver(1, 0, 1, 2)
        told.assign(1)
        told.deliver(1, 0, 1)

    assert_right(story, settings(window_records=2))

    def used(told: Told) -> None:
        begun(told)
        told.revoke(1)
        told.deliver(1, 0)
        told.run(1, 0)

    assert_found("OrderChecker", "although it was never delivered there", used)


def test_a_worker_has_no_more_leases_than_it_may() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0, 1, 2)
        told.hand(1, 0, 1, 2)

    assert_right(story, settings(prefetch_records=3))
    words = "worker 0 of 'default' has 3 leases of 2"
    assert_found("Bounded", words, story, settings(prefetch_records=2))


def test_a_worker_has_no_more_bytes_than_it_may_or_one_record() -> None:
    def story(told: Told) -> None:
        told.write("a", "b", "c", size=10)
        told.join(1, 2)
        told.assign(1)
        told.deliver(1, 0, 1, 2)
        told.hand(1, 0)
        told.hand(1, 1)
        told.take_back(1, 1)
        told.hand(1, 2)

    assert_right(story, settings(prefetch_bytes=20))
    words = "worker 0 of 'default' has 20 bytes of 19"
    assert_found("Bounded", words, story, settings(prefetch_bytes=19))

    def large(told: Told) -> None:
        told.write("a", size=1_000)
        told.join(1, 2)
        told.assign(1)
        told.deliver(1, 0)
        told.hand(1, 0)

    assert_right(large, settings(prefetch_bytes=1))


def test_a_window_is_kept_in_bytes() -> None:
    def story(told: Told, count: int) -> None:
        told.write(*["a"] * 9, size=100)
        told.join(1, 2)
        told.assign(1)
        told.deliver(1, *range(count))
        told.later(0.001)
        told.write("x", at=T1, size=100)

    small = settings(window_bytes=300)
    assert_right(lambda told: story(told, 5), small)
    words = "6 received records are not settled in 'default', its window holds 300 bytes, of which"
    assert_found("Bounded", words, lambda told: story(told, 6), small)


def test_a_record_without_a_key_may_be_out_while_it_still_runs_of_before() -> None:
    def story(told: Told) -> None:
        told.write(None)
        told.join(1)
        told.assign(1)
        told.deliver(1, 0)
        told.hand(1, 0)
        told.begin(1, 0)
        told.released(1, lost=True)
        told.assign(1)
        told.deliver(1, 0)
        told.hand(1, 0, worker=1)

    assert_right(story, settings(one_in_flight_per_key=True))


def test_a_lane_has_no_more_leases_than_it_may() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0, 1)
        told.run(1, 0)
        told.hand(1, 1)

    assert_right(story, settings(one_in_flight_per_key=True))
    words = "t-0@1 .* was given out while another one of its lane is"

    def at_once(told: Told) -> None:
        begun(told)
        told.deliver(1, 0, 1)
        told.hand(1, 0, 1)

    assert_found("Bounded", words, at_once, settings(one_in_flight_per_key=True))


def test_a_window_is_kept() -> None:
    def story(told: Told) -> None:
        begun(told, 5)
        told.deliver(1, 0, 1)
        told.run(1, 0)
        told.deliver(1, 2)

    assert_right(story, settings(window_records=2))
    words = "3 received records are not settled in 'default', its window holds 2"

    def and_one_more(told: Told, *, given_back: bool = False) -> None:
        story(told)
        told.deliver(1, 3)
        if given_back:
            told.seek(1, 3)
        passing(told, 0.001)

    assert_found("Bounded", words, and_one_more, settings(window_records=2))
    assert_right(lambda told: and_one_more(told, given_back=True), settings(window_records=2))

    def and_cannot_be_given_back_yet(told: Told, position: int, seconds: float) -> None:
        story(told)
        told.deliver(1, 3)
        told.tell(happened.Misplaced(1, [T0]))
        passing(told, 0.001)
        told.seek(1, position)
        told.deliver(1, 4)
        told.seek(1, position)
        told.send(1, 0)
        told.later(seconds)
        told.send(1, 0)

    def and_goes_before_it_is_given_back(told: Told) -> None:
        story(told)
        told.tell(happened.Misplaced(1, [T0]))
        told.seek(1, 3)
        told.deliver(1, 3)
        told.released(1, lost=True)
        told.later(10.001)
        told.assign(1)

    refused = settings(window_records=2)
    assert_right(and_goes_before_it_is_given_back, refused)
    assert_right(lambda told: and_cannot_be_given_back_yet(told, 3, 0.5), refused)
    words = "4 received records are not settled in 'default', its window holds 2"
    assert_found(
        "Bounded", words, lambda told: and_cannot_be_given_back_yet(told, 4, 10.001), refused
    )


def test_what_an_assignment_as_a_whole_tells_of_a_place_still_lost_is_in_no_window() -> None:
    def story(told: Told, *, given_back: bool) -> None:
        told.write("a", "b", "c")
        told.write("d", at=T1)
        told.join(1)
        told.assign(1)
        told.assign(1, T1)
        told.tell(happened.Misplaced(1, [T0, T1]))
        # T1 is found, and an eager group is told of all; what comes of T0 is not used.
        told.seek(1, 0)
        told.seek(1, 0, T1)
        told.deliver(1, 0, 1, 2)
        told.deliver(1, 0, at=T1)
        told.run(1, 0, at=T1)
        told.later(0.5)
        told.send(1, 0)
        if given_back:
            told.seek(1, 0)
            told.deliver(1, 0, 1)
        told.run(1, 0, 1)
        told.later(10.001)
        told.send(1, 2)

    refused = settings(window_records=2)
    words = "4 received records are not settled in 'default', its window holds 2"
    assert_found("Bounded", words, lambda told: story(told, given_back=False), refused)
    assert_right(lambda told: story(told, given_back=True), refused)


@pytest.mark.parametrize("policy", ["dead_letter", "block"])
def test_what_is_given_back_whose_key_cannot_be_read_is_in_no_window(policy: str) -> None:
    refuses = settings(window_records=2, null_keys="reject", undecodable=policy, dlq=True)

    def story(told: Told, *, given_back: bool) -> None:
        told.write("a", "b", None)
        told.join(1)
        told.assign(1)
        told.deliver(1, 0, 1)
        told.deliver(1, 2)
        if given_back:
            told.seek(1, 2)
        passing(told, 0.001)

    words = "3 received records are not settled in 'default', its window holds 2"
    assert_found("Bounded", words, lambda told: story(told, given_back=False), refuses)
    assert_right(lambda told: story(told, given_back=True), refuses)


def test_what_a_stop_polls_is_in_no_window() -> None:
    def story(told: Told) -> None:
        begun(told, 4)
        told.tell(happened.StopRequested(1))
        told.deliver(1, 0, 1, 2)

    assert_right(story, settings(window_records=2))


def test_what_comes_while_a_place_is_lost_is_in_no_window_until_it_is_used() -> None:
    window = settings(window_records=2)

    def story(told: Told) -> None:
        begun(told, 6)
        told.deliver(1, 0, 1)
        told.tell(happened.Misplaced(1, [T0]))
        told.deliver(1, 2, 3)

    assert_right(story, window)

    def and_reads_on(told: Told, position: int) -> None:
        story(told)
        told.seek(1, position)
        told.deliver(1, position)
        passing(told, 10.001)

    words = "3 received records are not settled in 'default', its window holds 2"
    assert_found("Bounded", words, lambda told: and_reads_on(told, 2), window)
    words = "5 received records are not settled in 'default', its window holds 2"
    assert_found("Bounded", words, lambda told: and_reads_on(told, 4), window)

    def and_uses_it(told: Told) -> None:
        story(told)
        told.hand(1, 2)
        told.deliver(1, 4)
        passing(told, 10.001)

    words = "3 received records are not settled in 'default', its window holds 2"
    assert_found("Bounded", words, and_uses_it, window)


# --- I9 ---


def ready(told: Told) -> None:
    """Records of two keys are there, the first in the hands of worker 0."""
    told.write("a", "a", "b")
    told.join(1, 2)
    told.assign(1)
    told.deliver(1, 0, 1, 2)
    told.hand(1, 0)


def passing(told: Told, seconds: float) -> None:
    """Let time pass, and something happen that concerns nobody."""
    told.later(seconds)
    told.send(2, 0, at=T1) if (2, T1) in told.assigned else told.write("x", at=T1, start=99)


def test_a_record_that_an_idle_worker_has_starts_within_a_second() -> None:
    def story(told: Told, seconds: float) -> None:
        ready(told)
        passing(told, seconds)
        told.run(1, 2, worker=1)

    assert_right(lambda told: story(told, 0.9))
    words = "t-0@0 .* could run since 1000.000 .*: worker 0 has it, and runs nothing"
    assert_found("Liveness", words, lambda told: story(told, 1.1))


def test_a_record_that_no_worker_has_starts_within_a_second_of_their_last() -> None:
    def story(told: Told, seconds: float) -> None:
        ready(told)
        told.begin(1, 0)
        told.later(30.0)
        told.end(1, 0)
        told.later(0.4)
        told.write("x", at=T1)
        told.later(seconds)
        told.hand(1, 1, 2)

    assert_right(lambda told: story(told, 0.5))
    words = "t-0@2 .* could run since 1030.000 .*: no worker has it, and none has anything"
    assert_found("Liveness", words, lambda told: story(told, 0.7))


@pytest.mark.parametrize(
    "why", ["revoked", "stops", "asks", "is held up", "worker died", "owns", "seeks"]
)
def test_a_record_may_wait_for_what_can_be_seen(why: str) -> None:
    free = {"since": float("-inf")}

    def story(told: Told) -> None:
        ready(told)
        match why:
            case "revoked":
                told.revoking(1)
            case "stops":
                told.tell(happened.StopRequested(1))
            case "asks":
                told.tell(happened.OwnerWaits(1))
            case "is held up":
                free["since"] = float("inf")
            case "worker died":
                told.tell(happened.WorkerDied(1, SUB, 0))
            case "seeks":
                told.tell(happened.Misplaced(1, [T0]))
            case "owns":
                told.tell(happened.Owned(1, [T1], {}))
        for _ in range(3):
            told.later(1.0)
            told.write("x", at=T1, start=int(told.timeline.now))

    assert_right(story, free_since=lambda member: free["since"])
    if why in ("asks", "is held up"):

        def and_no_more(told: Told) -> None:
            story(told)
            free["since"] = told.timeline.now
            told.tell(happened.OwnerResumed(1)) if why == "asks" else None
            told.later(0.9)
            told.write("x", at=T1, start=5_000)
            told.later(2.0)
            told.write("x", at=T1, start=6_000)

        words = "t-0@0 .* could run since 1003.000"
        assert_found("Liveness", words, and_no_more, free_since=lambda member: free["since"])


def test_an_owner_that_is_kept_counts_no_beats_of_a_dead_worker() -> None:
    """It gives a worker up after six of them; until then what the worker has waits for that."""

    def story(told: Told, seconds: float) -> None:
        ready(told)
        told.tell(happened.WorkerDied(1, SUB, 0), happened.OwnerWaits(1))
        told.later(3.9)
        told.tell(happened.OwnerResumed(1))
        passing(told, seconds)
        told.run(1, 2, worker=1)

    assert_right(lambda told: story(told, 4.9))
    words = "t-0@0 .* could run since 1007.900 .*: worker 0 has it, and runs nothing"
    assert_found("Liveness", words, lambda told: story(told, 5.1))


def test_a_dead_worker_is_dead_although_what_it_had_was_taken_back() -> None:
    """A revoke takes everything back from it before anybody has noticed; it may get more."""

    def story(told: Told, seconds: float) -> None:
        ready(told)
        told.tell(happened.WorkerDied(1, SUB, 0), happened.OwnerWaits(1))
        told.take_back(1, 0)
        told.later(3.0)
        told.tell(happened.OwnerResumed(1))
        told.hand(1, 0)
        passing(told, seconds)
        told.run(1, 2, worker=1)

    assert_right(lambda told: story(told, 4.9))
    words = "t-0@0 .* could run since 1007.000 .*: worker 0 has it, and runs nothing"
    assert_found("Liveness", words, lambda told: story(told, 5.1))


def test_what_comes_again_has_to_start_and_what_came_first_has_not() -> None:
    def story(told: Told) -> None:
        begun(told, 1)
        told.deliver(1, 0)
        told.tell(happened.Misplaced(1, [T0]))
        told.seek(1, 0)
        told.deliver(1, 0)

    def and_runs(told: Told) -> None:
        story(told)
        told.run(1, 0)
        passing(told, 2.0)

    assert_right(and_runs)

    def and_does_not(told: Told) -> None:
        story(told)
        passing(told, 1.1)

    words = "t-0@0 .* could run since 1000.000 .*: no worker has it"
    assert_found("Liveness", words, and_does_not)


def test_a_lane_that_runs_elsewhere_in_the_process_is_waited_for() -> None:
    def story(told: Told) -> None:
        begun(told, 1)
        told.deliver(1, 0)
        told.hand(1, 0)
        told.begin(1, 0)
        told.released(1, lost=True)
        told.assign(1)
        told.deliver(1, 0)
        told.hand(1, 0)
        for _ in range(3):
            told.later(2.0)
            told.write("x", at=T1, start=int(told.timeline.now))

    assert_right(story)


def test_a_retry_starts_within_a_second_of_its_delay() -> None:
    policy = settings(retry=RetryPolicy(attempts=9, backoff=2.0, jitter=0.5))

    def story(told: Told, seconds: float) -> None:
        begun(told, 1)
        told.deliver(1, 0)
        told.hand(1, 0)
        told.begin(1, 0)
        told.end(1, 0, "failed")
        told.later(seconds)
        told.write("x", at=T1)

    assert_right(lambda told: story(told, 3.9), policy)
    words = "t-0@0 .* could run since 1003.000 .*: no worker has it"
    assert_found("Liveness", words, lambda told: story(told, 4.1), policy)


def test_a_record_far_ahead_of_the_position_may_be_parked() -> None:
    def story(told: Told) -> None:
        told.write("a")
        told.write("b", start=500)
        told.join(1)
        told.assign(1)
        told.deliver(1, 0, 500)
        told.hand(1, 0)
        told.begin(1, 0)
        told.end(1, 0, "retry")
        told.later(5.0)
        told.write("x", at=T1)

    assert_right(story, span=400)
    assert_found("Liveness", "t-0@500 .* could run since", story)


def test_a_revoke_ends_with_its_deadline() -> None:
    def story(told: Told, seconds: float) -> None:
        begun(told, 1)
        told.deliver(1, 0)
        told.hand(1, 0)
        told.begin(1, 0)
        told.revoking(1)
        told.later(seconds)

    def released(told: Told) -> None:
        story(told, 7.0)
        told.released(1)

    def never(told: Told) -> None:
        story(told, 7.0)
        told.end(1, 0)
        told.finish()

    assert_found("Liveness", "the revoke of t-0 took 7.000 s, begun at 1000.000", released)
    assert_found("Liveness", "the revoke of t-0, begun at 1000.000, never ends", never)
    assert_right(released, revoke_deadline=7.0)


def healed(told: Told, position: int) -> None:
    begun(told, 2)
    told.deliver(1, 0, 1)
    told.tell(happened.Healed())
    told.run(1, 0, 1)
    told.commit(1, position)


def test_after_the_faults_everything_is_settled_and_committed_in_time() -> None:
    def story(told: Told, position: int) -> None:
        healed(told, position)
        told.later(10.0)
        told.commit(1, position)

    assert_right(lambda told: story(told, 2), bound=10.0)
    words = "the faults are over and t-0 is committed up to 1, its last record is 1"
    assert_found("Liveness", words, lambda told: story(told, 1), bound=10.0)
    assert_right(lambda told: story(told, 1), bound=11.0)


def test_what_is_not_settled_after_the_faults_is_named() -> None:
    def story(told: Told) -> None:
        begun(told, 2)
        told.deliver(1, 0, 1)
        told.tell(happened.Healed())
        told.hand(1, 0)
        told.begin(1, 0)
        told.end(1, 0, "failed")
        told.later(9.0)
        told.write("b", start=2)
        told.later(9.0)
        told.deliver(1, 2)
        told.run(1, 2)
        told.later(2.0)
        told.commit(1, 0, (2, 3))

    words = "the faults are over and 2 of t-0 are not settled by 'default': t-0@0 .*it is blocked"
    assert_found("Liveness", words, story, settings(retry=ONE, on_exhausted="block"), bound=10.0)

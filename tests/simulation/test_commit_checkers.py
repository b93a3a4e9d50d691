"""Each checker passes what is right and finds what is not: commits, and what runs again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kafka_keyshared.core.contract.events import CommitResult
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers.no_repeats import NoRepeats
from kafka_keyshared.lab.simulator.member_events import CallbackRaised, LogsAsked
from tests.simulation.told import SUB, T0, T1, Told, text
from tests.simulation.watched import assert_found, assert_right, begun, settings

Runs = Sequence[tuple[int, int]]


def done(told: Told, *offsets: int, count: int = 4) -> Told:
    """Four records of four keys at member 1, of which these are done."""
    told.write(*"abcdefgh"[:count])
    told.join(1, 2)
    told.assign(1)
    told.deliver(1, *range(count))
    told.run(1, *offsets)
    return told


# --- I4 ---


@pytest.mark.parametrize(("position", "runs"), [(0, [(1, 3)]), (1, [(2, 4)]), (4, [])])
def test_a_commit_covers_what_is_settled(position: int, runs: Runs) -> None:
    settled = [*range(position), *(offset for run in runs for offset in range(*run))]
    assert_right(lambda told: done(told, *settled).commit(1, position, *runs))


@pytest.mark.parametrize(
    ("position", "runs", "offset"), [(2, [], 1), (1, [(2, 3)], 2), (1, [(3, 4)], 3)]
)
def test_a_commit_that_covers_what_is_not_settled_is_found(
    position: int, runs: Runs, offset: int
) -> None:
    words = f"covers t-0@{offset} .*not settled there: it is to run; delivered 1 times, not settled"
    assert_found("SafeCommit", words, lambda told: done(told, 0).send(1, position, *runs))


def test_a_commit_that_covers_what_failed_is_found() -> None:
    def story(told: Told) -> None:
        done(told)
        told.hand(1, 0)
        told.begin(1, 0)
        told.end(1, 0, "failed")
        told.send(1, 1)

    assert_found("SafeCommit", "covers t-0@0 .*it waits for its next attempt", story)


def test_a_letter_counts_when_the_member_has_heard_of_it() -> None:
    def story(told: Told, error: str | None = "") -> None:
        done(told)
        told.hand(1, 0)
        told.begin(1, 0)
        told.end(1, 0, "failed")
        told.letter(1, 0, error=error)
        told.send(1, 1)

    policy = settings(retry=RetryPolicy(attempts=1), on_exhausted="dead_letter", dlq=True)
    assert_right(story, policy)
    words = "covers t-0@0 .*it waits for its dead letter"
    assert_found("SafeCommit", words, lambda told: story(told, None), policy)
    assert_found("SafeCommit", words, lambda told: story(told, "too large"), policy)


def test_each_subscription_has_to_have_settled_it() -> None:
    subs = settings(), settings(name="audit")
    assert_found("SafeCommit", "of 'audit'", lambda told: done(told, 0).send(1, 1), *subs)
    assert_right(lambda told: done(told, 0).send(1, 0), *subs)


def test_a_commit_crosses_gaps_and_what_was_removed_unread() -> None:
    def story(told: Told) -> None:
        told.write("a")
        told.write("b", start=7)
        told.write("c", start=9)
        told.join(1)
        told.assign(1)
        told.deliver(1, 0)
        told.run(1, 0)
        told.send(1, 5)
        told.tell(happened.Removed(T0, [7]))
        told.send(1, 9)
        told.deliver(1, 9)
        told.run(1, 9)
        told.send(1, 12)

    assert_right(story)


def test_a_commit_beyond_what_was_delivered_is_found() -> None:
    def story(told: Told) -> None:
        begun(told)
        told.deliver(1, 0)
        told.run(1, 0)
        told.send(1, 2)

    assert_found(
        "SafeCommit", "at 2 .*is beyond 1, which was not delivered; received up to 1", story
    )


def test_a_record_where_a_set_has_covered_what_was_a_marker_is_found() -> None:
    def story(told: Told) -> None:
        done(told, 0).send(1, 1, (9, 10))
        told.write("e", start=9)

    assert_found("SafeCommit", "t-0@9 was written where a commit had covered it", story)
    assert_right(lambda told: done(told, 0).send(1, 1, (9, 10)))


def test_a_set_with_a_record_that_was_not_delivered_is_found() -> None:
    def story(told: Told) -> None:
        told.write(*"abcd")
        told.join(1)
        told.assign(1)
        told.deliver(1, 0, 1)
        told.run(1, 0)
        told.send(1, 1, (3, 4))

    words = "covers t-0@3 .key b'd'. of 'default', not delivered: never read"
    assert_found("SafeCommit", words, story)


def test_what_settled_elsewhere_is_not_known_here() -> None:
    def story(told: Told) -> None:
        done(told, 0)
        told.kill(1)
        told.assign(2)
        told.deliver(2, 0)
        told.send(2, 1)

    assert_found(
        "SafeCommit", "covers t-0@0 .*it is to run; done at 1000.000 in assignment 1", story
    )


def test_what_ends_too_late_settles_nothing_in_the_next_assignment() -> None:
    def story(told: Told) -> None:
        done(told)
        told.hand(1, 0)
        told.begin(1, 0)
        told.released(1, lost=True)
        told.assign(1)
        told.deliver(1, 0)
        told.end(1, 0, number=1)
        told.send(1, 1)

    assert_found("SafeCommit", "done at 1000.000 .*, too late for its assignment", story)


def test_what_a_commit_covers_the_next_one_may_cover_unread() -> None:
    def story(told: Told) -> None:
        done(told, 1, 2)
        told.commit(1, 0, (1, 3))
        told.kill(1)
        told.assign(2, position=0)
        told.deliver(2, 0)
        told.run(2, 0)
        told.send(2, 1, (1, 3))
        told.deliver(2, 1, 2, 3)
        told.run(2, 3)
        told.commit(2, 4)
        told.finish()

    assert_right(story)


@pytest.mark.parametrize("end", [5, 6])
def test_a_member_commits_what_it_began_with_before_it_reads_anything(end: int) -> None:
    """It stops while it waits for a seek; retention has gone beyond the position meanwhile."""

    def story(told: Told) -> None:
        done(told, 0, 1, 4, count=6)
        told.commit(1, 2, (4, 5))
        told.revoke(1)
        told.assign(2, position=None)
        told.tell(happened.Removed(T0, [0, 1, 2]))
        told.send(2, 3, (4, end))

    if end == 5:
        assert_right(story)
    else:
        assert_found("SafeCommit", "covers t-0@5 .*not delivered: delivered 1 times", story)


def test_a_lost_partition_that_comes_back_goes_on_where_it_was() -> None:
    def story(told: Told) -> None:
        done(told, 0, 2)
        told.commit(1, 0, (2, 3))
        told.run(1, 1)
        told.released(1, lost=True)
        told.assign(1, position=3)
        told.deliver(1, 3)
        told.commit(1, 3)
        told.run(1, 3)
        told.commit(1, 4)
        told.finish()

    assert_right(story)


def test_what_a_member_has_settled_it_knows_though_another_has_settled_it_since() -> None:
    """Both were lost, and of the other one no commit has arrived."""

    def story(told: Told, *elsewhere: int) -> None:
        done(told, 0, 2)
        told.commit(1, 0)
        told.released(1, lost=True)
        told.assign(2)
        told.deliver(2, 0, 1, 2, 3)
        told.run(2, *elsewhere)
        told.released(2, lost=True)
        told.assign(1, position=1)
        told.send(1, 1, *((each, each + 1) for each in elsewhere))

    def and_goes_on(told: Told) -> None:
        story(told, 2)
        told.deliver(1, 1, 2, 3)
        told.run(1, 1, 3)
        for seconds in (1.0, 2.0):
            told.later(seconds)
            told.write("x", at=T1, start=int(seconds))

    assert_right(and_goes_on)
    words = "covers t-0@3 .*not delivered: done at 1000.000 in assignment 2 of member 2"
    assert_found("SafeCommit", words, lambda told: story(told, 3))


def test_a_text_that_nobody_can_read_is_found() -> None:
    words = "has a text that cannot be read: 'KS2"
    assert_found("SafeCommit", words, lambda told: done(told, 0).send(1, 1, words="KS2junk"))


def test_the_text_of_another_program_settles_nothing() -> None:
    def story(told: Told) -> None:
        told.stored[T0] = 0, "not ours"
        done(told, 0, 1, 2, 3)
        told.commit(1, 4)
        told.finish()

    assert_right(story)


# --- I5 ---


def test_a_position_that_falls_is_found() -> None:
    def story(told: Told) -> None:
        done(told, 0, 1)
        told.send(1, 2)
        told.send(1, 1)

    assert_found("CommitSequence", "commit 2 of t-0 at 1 .* falls below 2, commit 1", story)


def test_a_position_below_the_start_is_found() -> None:
    def story(told: Told) -> None:
        done(told, 0, 1)
        told.commit(1, 2)
        told.revoke(1)
        told.assign(2, position=2)
        told.send(2, 1)

    assert_found("CommitSequence", "at 1 .* falls below 2, where it began", story)


@pytest.mark.parametrize("stored", [0, 2])
def test_who_was_left_to_begin_may_have_stood_before_what_is_gone_since(stored: int) -> None:
    """Retention came by before anything was delivered; the log begins where it is told to go."""

    def story(told: Told) -> None:
        done(told, 0, 1)
        if stored:
            told.commit(1, stored)
        told.revoke(1)
        told.assign(2, position=None)
        told.tell(happened.Removed(T0, [0, 1, 2]), happened.Misplaced(2, [T0]))
        told.seek(2, 3)
        told.send(2, 0)

    if stored:
        assert_found("CommitSequence", "at 0 .* falls below 2, where it began", story)
    else:
        assert_right(story)


@pytest.mark.parametrize("lost", [False, True])
def test_a_commit_of_a_partition_that_has_gone_is_found(lost: bool) -> None:
    def story(told: Told) -> None:
        done(told, 0)
        told.released(1, lost=lost)
        told.send(1, 1)

    words = "a member that does not have the partition; it was last read in assignment 1"
    assert_found("CommitSequence", words, story)


def test_a_commit_of_somebody_elses_partition_is_found() -> None:
    words = "at 0 is sent by a member that does not have"
    assert_found("CommitSequence", words, lambda told: done(told, 0).send(2, 0))


def test_a_commit_while_the_partition_goes_is_right() -> None:
    def story(told: Told) -> None:
        done(told, 0)
        told.revoking(1)
        told.commit(1, 1)
        told.released(1)

    assert_right(story)


def test_position_and_set_of_two_moments_are_found() -> None:
    words = "has the very record at its position in its set"
    assert_found("CommitSequence", words, lambda told: done(told, 0, 1).send(1, 1, (1, 2)))


def test_a_set_that_has_lost_something_is_found() -> None:
    def story(told: Told) -> None:
        done(told, 1, 3)
        told.send(1, 0, (1, 2), (3, 4))
        told.send(1, 0, (1, 2))

    words = "has lost 3 of 'default' from its set, which commit 1 had"
    assert_found("CommitSequence", words, story)


def test_a_first_set_has_what_the_assignment_began_with() -> None:
    def story(told: Told) -> None:
        done(told, 1, 3)
        told.commit(1, 0, (1, 2), (3, 4))
        told.revoke(1)
        told.assign(2)
        told.send(2, 0, (1, 2))

    words = "has lost 3 of 'default' from its set, which it began with"
    assert_found("CommitSequence", words, story)


def test_a_set_that_was_refused_may_be_left_out() -> None:
    def story(told: Told) -> None:
        done(told, 1, 3)
        number = told.send(1, 0, (1, 2), (3, 4))
        told.tell(happened.CommitTold(1, number, CommitResult.TOO_LARGE.value))
        told.send(1, 0)

    assert_right(story)


def stored_late(told: Told) -> None:
    done(told, 0, 1)
    first = told.send(1, 1)
    second = told.send(1, 2)
    told.store(1, second, {T0: (2, "")})
    told.store(1, first, {T0: (1, "")})


def test_a_commit_that_is_stored_late_is_followed_by_the_later_one_again() -> None:
    def story(told: Told) -> None:
        stored_late(told)
        told.later(0.5)
        told.commit(1, 2)
        told.later(100.0)

    def left(told: Told) -> None:
        stored_late(told)
        told.run(1, 2, 3)
        told.later(20.0)
        told.finish()

    assert_right(story)
    words = "an earlier commit was stored over commit 2 at 1000.000 .*, and that was never sent"
    assert_found("CommitSequence", words, left)


def test_nobody_can_follow_it_whose_assignment_is_over() -> None:
    def story(told: Told) -> None:
        stored_late(told)
        told.revoke(1)
        told.later(20.0)
        told.assign(2, position=1)
        told.deliver(2, 1, 2, 3)
        told.run(2, 1, 2, 3)
        told.finish()

    found = assert_right(story)["NoRepeats"]
    assert isinstance(found, NoRepeats)
    assert found.repeats == {"its commit was not stored, or written over": 1}


# --- I7 ---


def again(told: Told, member: int = 2, position: int = 0) -> None:
    """The partition comes to a member, which runs its first record."""
    told.assign(member, position=position)
    told.deliver(member, 0, 1, 2, 3)
    told.run(member, 0)


@pytest.mark.parametrize("how", ["killed", "halted", "lost", "late", "stolen"])
def test_what_could_not_be_known_may_run_again_and_is_counted(how: str) -> None:
    def story(told: Told) -> None:
        if how != "late":
            done(told, 0)
        match how:
            case "killed" | "halted":
                told.tell(happened.Gone(1, how, False))
            case "lost":
                told.released(1, lost=True)
            case "late":
                done(told)
                told.hand(1, 0)
                told.begin(1, 0)
                told.revoking(1)
                told.later(5.0)
                told.released(1)
                told.end(1, 0)
        again(told)

    found = assert_right(story)["NoRepeats"]
    assert isinstance(found, NoRepeats)
    why = {
        "killed": "its process was killed",
        "halted": "its process halted",
        "late": "it ended too late",
    }.get(how, "its partition was lost")
    assert found.repeats == {why: 1}


@pytest.mark.parametrize("stolen", [True, False])
def test_who_has_not_heard_of_its_loss_may_repeat_what_settled_at_the_next_one(
    stolen: bool,
) -> None:
    def story(told: Told) -> None:
        told.write("a")
        told.join(1, 2)
        told.assign(1)
        told.deliver(1, 0)
        told.hand(1, 0)
        if not stolen:
            told.revoke(1)
        told.assign(2)
        told.deliver(2, 0)
        told.run(2, 0)
        told.begin(1, 0)

    if stolen:
        found = assert_right(story)["NoRepeats"]
        assert isinstance(found, NoRepeats)
        assert found.repeats == {"its partition was lost": 1}
    else:
        assert_found("OrderChecker", "although its partition has gone: revoked", story)


def test_who_is_told_too_late_may_repeat_what_settles_at_the_one_who_has_it() -> None:
    def story(told: Told) -> None:
        told.write("a")
        told.join(1, 2)
        told.assign(1)
        told.deliver(1, 0)
        told.assign(2, too_late=True)
        told.deliver(2, 0)
        told.run(1, 0)
        told.hand(2, 0)
        told.begin(2, 0)

    found = assert_right(story)["NoRepeats"]
    assert isinstance(found, NoRepeats)
    assert found.repeats == {"its partition was lost": 1}


def test_a_loss_that_comes_later_excuses_no_repeat_of_what_settled_before() -> None:
    def story(told: Told) -> None:
        done(told, 0)
        told.revoke(1)
        told.assign(2)
        told.deliver(2, 0)
        told.hand(2, 0)
        told.assign(1)
        told.begin(2, 0)

    assert_found("NoRepeats", "t-0@0 .* began again .* its last commit leaves it out", story)


@pytest.mark.parametrize("ends", ["stop", "revoke"])
def test_what_settled_since_the_last_commit_is_unknown_where_a_callback_has_raised(
    ends: str,
) -> None:
    """A member that stops goes on till its deadline, and what it gives up it commits no more."""

    def story(told: Told, raises: int, *, clean: bool = False) -> None:
        done(told, 0)
        told.later(0.1)
        told.tell(CallbackRaised(raises))
        told.later(0.1)
        if ends == "stop":
            told.stop(1, clean=clean)
        else:
            told.revoke(1)
        again(told)

    found = assert_right(lambda told: story(told, 1))["NoRepeats"]
    assert isinstance(found, NoRepeats)
    assert found.repeats == {"a callback had raised": 1}
    words = "t-0@0 .* began again .* its last commit leaves it out"
    assert_found("NoRepeats", words, lambda told: story(told, 2))
    if ends == "stop":
        words = "a stop counts as clean; t-0@0 .* is not in what the broker has"
        assert_found("NoRepeats", words, lambda told: story(told, 1, clean=True))


def test_a_callback_that_raises_behind_the_commit_of_its_revoke_is_no_excuse_for_that() -> None:
    def story(told: Told) -> None:
        done(told, 0)
        told.revoke(1)
        told.tell(CallbackRaised(1))
        again(told)

    words = "revoked at 1000.000, its last commit leaves it out: none was sent"
    assert_found("NoRepeats", words, story)


@pytest.mark.parametrize("asked", ["not at all", "answered", "silent", "silent, then answered"])
def test_what_settled_runs_again_where_nobody_could_say_whether_its_log_is_the_same(
    asked: str,
) -> None:
    """Its place was out of range; what is committed of an old log would be skipped of the new."""

    def story(told: Told) -> None:
        done(told, 0)
        told.tell(happened.Misplaced(1, [T0]))
        if asked.startswith("silent"):
            told.tell(LogsAsked(1, [T0], []))
        if asked.endswith("answered"):
            told.tell(LogsAsked(1, [T0], [T0]))
        told.revoke(1)
        again(told)

    if asked == "silent":
        assert_right(story)
    else:
        assert_found("NoRepeats", "its last commit leaves it out: none was sent", story)


def test_what_a_lost_partition_had_settled_does_not_run_again_where_nobody_else_was() -> None:
    def story(told: Told, offset: int, *, heard: bool = True, others: bool = False) -> None:
        done(told, 1)
        told.commit(1, 0, (1, 2))
        told.run(1, 2, 3)
        told.revoking(1, lost=heard)
        told.released(1, lost=True)
        if others:
            told.assign(2)
            told.deliver(2, 0)
            told.run(2, 0)
            told.commit(2, 1, (1, 2))
            told.revoke(2)
        told.assign(1, position=int(others))
        told.deliver(1, *range(int(others), 4))
        told.run(1, offset)

    words = "t-0@2 .*that was lost at 1000.000, and came back with no commit but its own"
    assert_found("NoRepeats", words, lambda told: story(told, 2))
    assert_right(lambda told: story(told, 3))  # nobody had asked its worker for more yet
    assert_right(lambda told: story(told, 2, others=True))
    # It was giving them back when the group gave it up, and has committed as far as that went.
    assert_right(lambda told: story(told, 2, heard=False))


def test_a_record_that_runs_twice_in_an_assignment_is_found() -> None:
    words = "t-0@0 .* began again at worker 0 .*: done at 1000.000 .*; in the same assignment"
    assert_found("NoRepeats", words, lambda told: done(told, 0).run(1, 0))


def test_a_record_that_a_clean_revoke_has_left_out_is_found() -> None:
    def story(told: Told, *covered: tuple[int, int]) -> None:
        done(told, 0, 2)
        told.commit(1, 1, *covered)
        told.revoke(1)
        told.assign(2, position=1)
        told.deliver(2, 1, 2, 3)
        told.run(2, 2)

    words = "t-0@2 .*that was revoked at 1000.000, its last commit leaves it out: number 1 at 1, ''"
    assert_found("NoRepeats", words, story)
    words = "the stored commit at 1 covers it with which that began"
    assert_found("NoRepeats", words, lambda told: story(told, (2, 3)))


def test_a_worker_that_dies_behind_a_record_cannot_say_that_it_has_ended() -> None:
    def story(told: Told, *, dies: bool, goes_on: bool = False) -> None:
        done(told, 0)
        if dies:
            told.tell(happened.WorkerDied(1, SUB, 0))
        if goes_on:
            told.run(1, 1)
        told.revoke(1)
        again(told)

    found = assert_right(lambda told: story(told, dies=True))["NoRepeats"]
    assert isinstance(found, NoRepeats)
    assert found.repeats == {"its worker had not gone on": 1}
    words = "its last commit leaves it out: none was sent"
    assert_found("NoRepeats", words, lambda told: story(told, dies=False))
    assert_found("NoRepeats", words, lambda told: story(told, dies=True, goes_on=True))


def test_a_worker_that_dies_in_several_records_cannot_say_of_any_that_it_has_ended() -> None:
    individually = settings(individually=True, on_exhausted="drop", retry=RetryPolicy(attempts=1))

    def story(told: Told, *, dies: bool) -> None:
        told.write("a", "b")
        told.join(1, 2)
        told.assign(1)
        told.deliver(1, 0, 1)
        told.hand(1, 0, 1)
        told.begin(1, 0)
        told.begin(1, 1)
        for offset in (0, 1):
            told.end(1, offset, "died" if dies else "failed")
        if dies:
            told.tell(happened.WorkerDied(1, SUB, 0))
        told.revoke(1)
        told.assign(2)
        told.deliver(2, 0, 1)
        told.hand(2, 0, 1)
        told.begin(2, 0)

    found = assert_right(lambda told: story(told, dies=True), individually)["NoRepeats"]
    assert isinstance(found, NoRepeats)
    assert found.repeats == {"its worker had not gone on": 1}
    words = "its last commit leaves it out: none was sent"
    assert_found("NoRepeats", words, lambda told: story(told, dies=False), individually)


def test_what_ends_beside_a_dead_worker_tells_nothing_of_what_it_was_in_last() -> None:
    def story(told: Told) -> None:
        done(told)
        told.hand(1, 1)
        told.begin(1, 1)
        told.tell(happened.WentOn(1, SUB, 0, T0, 1, told.assigned[1, T0]))
        told.run(1, 0)
        told.tell(happened.WorkerDied(1, SUB, 0))
        told.end(1, 1)
        told.revoke(1)
        again(told)

    found = assert_right(story)["NoRepeats"]
    assert isinstance(found, NoRepeats)
    assert found.repeats == {"its worker had not gone on": 1}


def test_a_revoke_without_any_commit_is_found() -> None:
    def story(told: Told) -> None:
        done(told, 0)
        told.revoke(1)
        again(told)

    assert_found("NoRepeats", "its last commit leaves it out: none was sent", story)


def test_not_even_a_kill_excuses_what_a_stored_commit_covers() -> None:
    def story(told: Told) -> None:
        done(told, 0, 1)
        told.commit(1, 0, (1, 2))
        told.kill(1)
        told.assign(2)
        told.deliver(2, 0, 1, 2, 3)
        told.run(2, 0)
        told.run(2, 1)

    assert_found("NoRepeats", "t-0@1 .*the stored commit at 0 covers it", story)


def test_a_commit_that_was_not_stored_excuses_what_it_covers() -> None:
    def story(told: Told) -> None:
        done(told, 0)
        told.send(1, 1)
        told.revoke(1)
        again(told)

    found = assert_right(story)["NoRepeats"]
    assert isinstance(found, NoRepeats)
    assert found.repeats == {"its commit was not stored, or written over": 1}


def test_a_set_that_was_refused_excuses_what_it_had() -> None:
    def story(told: Told) -> None:
        done(told, 1)
        number = told.send(1, 0, (1, 2))
        told.tell(happened.CommitTold(1, number, CommitResult.TOO_LARGE.value))
        told.commit(1, 0)
        told.revoke(1)
        told.assign(2)
        told.deliver(2, 0, 1, 2, 3)
        told.run(2, 1)

    found = assert_right(story)["NoRepeats"]
    assert isinstance(found, NoRepeats)
    assert found.repeats == {"its set was refused": 1}


def test_who_took_over_what_was_settled_vouches_for_it() -> None:
    def story(told: Told) -> None:
        done(told, 1)
        told.commit(1, 0, (1, 2))
        told.revoke(1)
        told.assign(2)
        told.deliver(2, 0, 1, 2, 3)
        told.tell(happened.CommitRequested(2, 77, {T0: (0, "")}))

    assert_found("CommitSequence", "has lost 1 of 'default'", story)

    def unlooked_at(told: Told) -> None:
        story(told)
        told.store(2, 77, {T0: (0, "")})
        told.revoke(2)
        told.assign(1)
        told.deliver(1, 0, 1, 2, 3)
        told.run(1, 1)

    told = Told()
    found = NoRepeats(told.history, [settings()], go_on=True)
    unlooked_at(told)
    (violation,) = found.violations
    assert "in assignment 2 of member 2" in violation.words
    assert "its last commit leaves it out: number 77 at 0" in violation.words


def test_a_letter_that_nobody_heard_of_is_counted() -> None:
    def story(told: Told) -> None:
        done(told)
        told.hand(1, 0)
        told.begin(1, 0)
        told.end(1, 0, "failed")
        told.letter(1, 0, error=None)
        told.revoking(1)
        told.later(5.0)
        told.released(1)
        again(told)

    policy = settings(retry=RetryPolicy(attempts=1), on_exhausted="dead_letter", dlq=True)
    found = assert_right(story, policy)["NoRepeats"]
    assert isinstance(found, NoRepeats)
    assert found.repeats == {"its letter was not heard of": 1}


def test_a_clean_stop_has_left_all_with_the_broker() -> None:
    def story(told: Told, *covered: tuple[int, int]) -> None:
        done(told, 0, 2)
        told.commit(1, 1, *covered)
        told.stop(1)

    assert_right(lambda told: story(told, (2, 3)))
    words = "a stop counts as clean; t-0@2 .* is not in what the broker has .1, ''.: done at"
    assert_found("NoRepeats", words, story)


def test_a_stop_that_is_not_clean_has_left_what_had_settled_by_then() -> None:
    def story(told: Told, *offsets: int) -> None:
        done(told, 0, 2)
        told.hand(1, 1)
        told.begin(1, 1)
        told.later(0.1)
        told.tell(happened.StopRequested(1))
        told.commit(1, 1)
        told.later(0.1)
        told.end(1, 1)
        told.tell(happened.Gone(1, "stopped", False))
        told.assign(2, position=1)
        told.deliver(2, 1, 2, 3)
        told.run(2, *offsets)

    assert_right(lambda told: story(told, 1))
    assert_found("NoRepeats", "t-0@2 .*that was stopped at", lambda told: story(told, 2))


def test_a_partition_made_anew_begins_anew() -> None:
    def story(told: Told) -> None:
        done(told, 0, 1)
        told.commit(1, 2)
        told.tell(happened.Remade(T0))
        told.write("a", "b")
        told.read(1)
        told.deliver(1, 0, 1)
        told.run(1, 0, 1)
        told.commit(1, 2)
        told.write("a", at=T1)
        told.assign(1, T1)
        told.deliver(1, 0, at=T1)
        told.run(1, 0, at=T1)
        told.commit(1, 1, at=T1)
        told.finish()

    assert_right(story)


def test_the_text_that_tests_write_says_what_they_mean() -> None:
    assert text(3) == ""
    assert text(3, (5, 7)).startswith("KS2")


@pytest.mark.parametrize("again", [False, True])
def test_a_clean_stop_may_have_forgotten_what_it_settled_before_a_loss(again: bool) -> None:
    """Somebody else's commit has come between; what runs again counts as settled once more."""

    def story(told: Told) -> None:
        done(told, 0, 2)
        told.commit(1, 0)
        told.released(1, lost=True)
        told.assign(2)
        told.deliver(2, 0)
        told.run(2, 0)
        told.commit(2, 1)
        told.revoke(2)
        told.assign(1, position=1)
        told.deliver(1, 1, 2, 3)
        if again:
            told.run(1, 2)
        told.commit(1, 1)
        told.stop(1)

    if again:
        assert_found("NoRepeats", "a stop counts as clean; t-0@2 .* is not in what", story)
    else:
        assert_right(story)

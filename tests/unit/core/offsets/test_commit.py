"""When commits are sent, and that the broker's sequence never falls whatever it answers."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.contract.commands import Commit, CommitEntry, Notice
from kafka_keyshared.core.contract.events import CommitAnswer, CommitResult, Right
from kafka_keyshared.core.offsets.commit import DOUBT, UNANSWERED_MOST, CommitPolicy, Commits
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.executors.notice_text import line_of
from kafka_keyshared.model import TopicPartition
from tests.support.core_harness import Harness
from tests.support.records import P0, P1, record

ACCEPTED, RETRY = CommitResult.ACCEPTED, CommitResult.RETRY
Q0 = TopicPartition("payments", 0)


def entry(position: int, metadata: str = "") -> CommitEntry:
    return CommitEntry(position, metadata)


@pytest.fixture
def commits() -> Commits:
    made = Commits(CommitPolicy())
    made.restart({P0: entry(0), P1: entry(0)})
    return made


def sent(found: list[Commit]) -> list[dict[TopicPartition, CommitEntry]]:
    return [dict(commit.entries) for commit in found]


# --- when ---


def test_a_commit_is_due_every_second_while_there_is_work(commits: Commits) -> None:
    (first,) = commits.plan({P0: entry(1)}, 10.0)
    commits.answered(CommitAnswer(first, ACCEPTED), 10.1)
    assert not commits.due(10.9, changed=True, idle_since=None)
    assert commits.due(11.0, changed=True, idle_since=None)
    assert not commits.due(99.0, changed=False, idle_since=None)


def test_a_commit_is_due_100_ms_after_the_last_work_but_at_most_five_times_a_second(
    commits: Commits,
) -> None:
    commits.plan({}, 10.0)
    assert not commits.due(10.19, changed=True, idle_since=10.0)
    assert commits.due(10.21, changed=True, idle_since=10.0)
    assert not commits.due(10.25, changed=True, idle_since=10.2)
    assert commits.due(10.31, changed=True, idle_since=10.2)


def test_one_commit_is_in_flight_at_a_time_but_for_a_final_one(commits: Commits) -> None:
    (first,) = commits.plan({P0: entry(1)}, 10.0)
    assert not commits.due(20.0, changed=True, idle_since=None)
    (final,) = commits.plan({P0: entry(2)}, 10.1)
    commits.answered(CommitAnswer(first, ACCEPTED), 10.2)
    assert commits.committed(P0) == 1
    commits.answered(CommitAnswer(final, ACCEPTED), 10.3)
    assert commits.committed(P0) == 2
    assert commits.plan({P0: entry(2)}, 12.0) == []


@pytest.mark.parametrize(
    "policy", [CommitPolicy(interval=0), CommitPolicy(idle=-1), CommitPolicy(spacing=-0.1)]
)
def test_times_that_make_no_sense_are_refused(policy: CommitPolicy) -> None:
    with pytest.raises(ConfigError, match="give seconds"):
        Commits(policy)


# --- what ---


def test_what_the_broker_has_is_not_sent_again(commits: Commits) -> None:
    assert commits.plan({P0: entry(0)}, 1.0) == []
    assert sent(commits.plan({P0: entry(0, "set"), P1: entry(0)}, 2.0)) == [{P0: entry(0, "set")}]


def test_position_and_set_of_a_commit_are_of_one_reading(commits: Commits) -> None:
    (first,) = commits.plan({P0: entry(1, "settled 5")}, 10.0)
    commits.answered(CommitAnswer(first, ACCEPTED), 10.1)
    (second,) = commits.plan({P0: entry(3, "settled 7")}, 11.0)
    assert sent([second]) == [{P0: entry(3, "settled 7")}]


def test_a_position_below_one_that_was_sent_is_never_sent(commits: Commits) -> None:
    commits.plan({P0: entry(5)}, 1.0)
    assert commits.behind() == []
    assert commits.plan({P0: entry(4)}, 2.0) == []
    assert commits.behind() == [P0], "and it is known that it was not"
    commits.restart({P0: None})
    assert commits.behind() == []
    assert sent(commits.plan({P0: entry(4)}, 3.0)) == [{P0: entry(4)}]


def test_a_position_below_one_that_failed_is_never_sent_because_it_may_be_stored(
    commits: Commits,
) -> None:
    (first,) = commits.plan({P0: entry(5)}, 1.0)
    commits.answered(CommitAnswer(first, RETRY, "timed out"), 2.0)
    assert commits.plan({P0: entry(4)}, 9.0) == []
    assert sent(commits.plan({P0: entry(6)}, 9.0)) == [{P0: entry(6)}]


# --- failures ---


def test_after_a_long_outage_what_was_sent_first_and_last_may_be_stored(commits: Commits) -> None:
    for position in range(1, 301):
        commits.retry_now()
        for commit in commits.plan({P0: entry(position)}, 100.0 * position):
            commits.answered(CommitAnswer(commit, RETRY, "timed out"), 100.0 * position + 1.0)
    ours = [each.position for each in commits.ours([P0])[P0]]
    assert ours[:3] == [1, 2, 3], "a broker may have stored it as it went away"
    assert ours[-4:] == [298, 299, 300, 0], "or as it came back; and the last that was accepted"
    assert len(ours) == UNANSWERED_MOST + 1


def test_a_failed_commit_is_not_committed_and_each_partition_is_sent_again_alone(
    commits: Commits,
) -> None:
    (both,) = commits.plan({P0: entry(1), P1: entry(2)}, 10.0)
    (notice,) = commits.answered(CommitAnswer(both, RETRY, "no coordinator"), 10.5)
    assert isinstance(notice, Notice)
    assert "orders-0, orders-1 failed: no coordinator" in line_of(notice).text
    assert (commits.committed(P0), commits.committed(P1)) == (0, 0)
    assert not commits.due(11.4, changed=True, idle_since=0.0)
    assert commits.due(11.5, changed=False, idle_since=None)
    alone = commits.plan({P0: entry(1), P1: entry(2)}, 11.5)
    assert sent(alone) == [{P0: entry(1)}, {P1: entry(2)}]
    for commit in alone:
        commits.answered(CommitAnswer(commit, ACCEPTED), 11.6)
    assert (commits.committed(P0), commits.committed(P1)) == (1, 2)
    assert len(commits.plan({P0: entry(3), P1: entry(3)}, 13.0)) == 1


def test_a_commit_of_some_partitions_leaves_it_wanted_that_others_are_sent_again(
    commits: Commits,
) -> None:
    """P1 is revoked while the commit of P0 has failed and nothing of it has settled since."""
    (first,) = commits.plan({P0: entry(3), P1: entry(5)}, 10.0)
    commits.answered(CommitAnswer(first, RETRY), 10.1)
    (alone,) = commits.plan({P1: entry(5)}, 10.2, final=True)
    commits.answered(CommitAnswer(alone, ACCEPTED), 10.3)
    commits.forget([P1])
    assert commits.retry_now()
    assert commits.due(12.0, changed=False, idle_since=None)
    assert sent(commits.plan({P0: entry(3)}, 12.0)) == [{P0: entry(3)}]
    assert not commits.retry_now()


def test_what_is_accepted_after_a_failure_is_sent_once_more_when_nothing_can_come_late(
    commits: Commits,
) -> None:
    (failed,) = commits.plan({P0: entry(5), P1: entry(5)}, 10.0)
    commits.answered(CommitAnswer(failed, RETRY, "timed out"), 12.0)
    for commit in commits.plan({P0: entry(6), P1: entry(5)}, 13.0):
        commits.answered(CommitAnswer(commit, ACCEPTED), 13.1)
    assert commits.plan({P0: entry(6), P1: entry(5)}, 14.0) == []
    assert not commits.due(12.0 + DOUBT - 0.1, changed=False, idle_since=0.0)
    assert commits.due(12.0 + DOUBT, changed=False, idle_since=0.0)
    (again,) = commits.plan({P0: entry(6), P1: entry(5)}, 12.0 + DOUBT)
    assert dict(again.entries) == {P0: entry(6), P1: entry(5)}
    commits.answered(CommitAnswer(again, ACCEPTED), 30.0)
    assert not commits.due(99.0, changed=False, idle_since=0.0), "once is enough"
    assert commits.plan({P0: entry(6), P1: entry(5)}, 99.0, final=True) == []


def test_what_moves_on_needs_no_confirmation(commits: Commits) -> None:
    (failed,) = commits.plan({P0: entry(5)}, 10.0)
    commits.answered(CommitAnswer(failed, RETRY, "timed out"), 12.0)
    (first,) = commits.plan({P0: entry(6)}, 13.0)
    commits.answered(CommitAnswer(first, ACCEPTED), 13.1)
    (later,) = commits.plan({P0: entry(7)}, 12.0 + DOUBT + 1.0)
    commits.answered(CommitAnswer(later, ACCEPTED), 12.0 + DOUBT + 1.1)
    assert not commits.due(99.0, changed=False, idle_since=0.0)
    assert commits.plan({P0: entry(7)}, 99.0, final=True) == []


def test_the_last_commit_leaves_nothing_in_doubt(commits: Commits) -> None:
    (failed,) = commits.plan({P0: entry(5)}, 10.0)
    commits.answered(CommitAnswer(failed, RETRY, "timed out"), 12.0)
    (first,) = commits.plan({P0: entry(6)}, 13.0)
    commits.answered(CommitAnswer(first, ACCEPTED), 13.1)
    assert sent(commits.plan({P0: entry(6)}, 13.5, final=True)) == [{P0: entry(6)}]


def test_a_confirmation_that_is_refused_leaves_the_doubt(commits: Commits) -> None:
    """It was sent behind a JoinGroup, say, and is of the generation before."""
    (failed,) = commits.plan({P0: entry(5)}, 10.0)
    commits.answered(CommitAnswer(failed, RETRY, "timed out"), 12.0)
    (first,) = commits.plan({P0: entry(6)}, 13.0)
    commits.answered(CommitAnswer(first, ACCEPTED), 13.1)
    (again,) = commits.plan({P0: entry(6)}, 12.0 + DOUBT)
    commits.answered(CommitAnswer(again, CommitResult.LOST, "old generation"), 12.1 + DOUBT)
    assert not commits.due(12.2 + DOUBT, changed=False, idle_since=0.0), "not in every turn"
    assert commits.due(13.1 + DOUBT, changed=False, idle_since=0.0)
    (last,) = commits.plan({P0: entry(6)}, 12.2 + DOUBT, final=True)
    assert sent([last]) == [{P0: entry(6)}], "the last one waits for nothing"
    commits.answered(CommitAnswer(last, ACCEPTED), 12.3 + DOUBT)
    assert commits.plan({P0: entry(6)}, 99.0, final=True) == []


def test_doubt_about_a_position_that_cannot_be_told_asks_for_nothing(commits: Commits) -> None:
    (failed,) = commits.plan({P0: entry(5)}, 10.0)
    commits.answered(CommitAnswer(failed, RETRY, "timed out"), 12.0)
    commits.plan({P0: entry(4)}, 13.0)
    assert commits.due(12.0 + DOUBT, changed=False, idle_since=0.0)
    assert commits.plan({P0: entry(4)}, 12.0 + DOUBT) == []
    assert not commits.due(99.0, changed=False, idle_since=0.0)


def test_a_commit_of_some_partitions_leaves_the_doubt_about_others(commits: Commits) -> None:
    """P1 is revoked when nothing can come late any more, and nothing of P0 settles after it."""
    (failed,) = commits.plan({P0: entry(5), P1: entry(5)}, 10.0)
    commits.answered(CommitAnswer(failed, RETRY, "timed out"), 12.0)
    for commit in commits.plan({P0: entry(6), P1: entry(6)}, 13.0):
        commits.answered(CommitAnswer(commit, ACCEPTED), 13.1)
    for commit in commits.plan({P1: entry(7)}, 13.0 + DOUBT, final=True):
        commits.answered(CommitAnswer(commit, ACCEPTED), 13.1 + DOUBT)
    commits.forget([P1])
    assert not commits.due(13.1 + DOUBT, changed=False, idle_since=0.0), "not in every turn"
    assert commits.due(14.0 + DOUBT, changed=False, idle_since=0.0)
    assert sent(commits.plan({P0: entry(6)}, 14.0 + DOUBT)) == [{P0: entry(6)}]
    assert not commits.retry_now()


def test_after_too_large_each_is_sent_alone_and_at_once_with_what_is_wanted_then(
    commits: Commits,
) -> None:
    wanted = {P0: entry(1, "large"), P1: entry(2, "small")}
    (both,) = commits.plan(wanted, 10.0)
    commits.answered(CommitAnswer(both, CommitResult.TOO_LARGE, "too large"), 10.5)
    assert commits.due(10.5, changed=False, idle_since=None)
    large, small = commits.plan(wanted, 10.5)
    assert commits.answered(CommitAnswer(large, CommitResult.TOO_LARGE, "too large"), 10.6) == []
    commits.answered(CommitAnswer(small, ACCEPTED), 10.6)
    assert commits.retry_now()
    (shorter,) = commits.plan({P0: entry(1, "larg"), P1: entry(2, "small")}, 10.7)
    assert sent([shorter]) == [{P0: entry(1, "larg")}]
    commits.answered(CommitAnswer(shorter, ACCEPTED), 10.8)
    assert commits.committed(P0) == 1
    assert sent(commits.plan({P0: entry(2, "fits")}, 12.0)) == [{P0: entry(2, "fits")}]


def test_a_lost_commit_does_not_count_and_is_not_sent_again_by_itself(commits: Commits) -> None:
    (first,) = commits.plan({P0: entry(1)}, 10.0)
    (notice,) = commits.answered(CommitAnswer(first, CommitResult.LOST, "unknown member"), 10.1)
    assert isinstance(notice, Notice)
    assert "unknown member" in line_of(notice).text
    assert commits.committed(P0) == 0
    assert not commits.due(99.0, changed=False, idle_since=None)


def denied(commit: Commit, right: Right) -> CommitAnswer:
    return CommitAnswer(commit, CommitResult.DENIED, "not authorized", right)


def test_a_denied_commit_is_sent_again_and_does_not_count(commits: Commits) -> None:
    (first,) = commits.plan({P0: entry(1)}, 10.0)
    (notice,) = commits.answered(denied(first, Right.GROUP), 10.1)
    assert isinstance(notice, Notice)
    assert "not authorized; its positions are sent again" in line_of(notice).text
    assert commits.committed(P0) == 0
    assert commits.due(11.2, changed=False, idle_since=None)
    (second,) = commits.plan({P0: entry(1)}, 11.2)
    assert commits.answered(denied(second, Right.GROUP), 11.3) == [], "one line, not one a second"
    assert commits.denials.partitions[P0] == (Right.GROUP, 10.1, "not authorized")
    (third,) = commits.plan({P0: entry(1)}, 12.4)
    assert commits.answered(CommitAnswer(third, ACCEPTED), 12.5) == []
    assert commits.committed(P0) == 1
    assert not commits.denials.partitions


def test_a_topic_whose_commits_are_denied_fails_until_it_is_accepted_whatever_others_are(
    commits: Commits,
) -> None:
    """The broker denies the one topic; each partition is sent again alone, and the other passes."""
    wanted = {P0: entry(1), Q0: entry(1)}
    (both,) = commits.plan(wanted, 10.0)
    commits.answered(denied(both, Right.TOPIC), 10.1)
    assert not commits.denials.partitions, "which of the two topics it is nobody knows yet"
    for at in (11.2, 12.4, 13.6):
        for commit in commits.plan(wanted, at):
            passes = Q0 in commit.entries
            answer = CommitAnswer(commit, ACCEPTED) if passes else denied(commit, Right.TOPIC)
            commits.answered(answer, at + 0.1)
        assert list(commits.denials.partitions) == [P0]
        assert (commits.committed(P0), commits.committed(Q0)) == (0, 1)
    assert commits.failing.since == 10.1
    assert commits.failing.in_a_row == 4
    (last,) = commits.plan(wanted, 15.0)
    commits.answered(CommitAnswer(last, ACCEPTED), 15.1)
    assert commits.failing.since is None
    assert not commits.denials.partitions


@pytest.mark.parametrize(
    ("last", "owed"),
    [(entry(3), False), (entry(4), True), (CommitEntry(3, "a set"), True)],
    ids=["where it began", "a later position", "a set at that position"],
)
def test_a_denied_commit_is_owed_unless_it_says_only_where_its_partition_began(
    commits: Commits, last: CommitEntry, owed: bool
) -> None:
    """A pattern may match a topic that this user may not read: nothing of it can be repeated."""
    commits.restart({Q0: None}, {Q0: 3})
    wanted = {P0: entry(1), Q0: last}
    (both,) = commits.plan(wanted, 10.0)
    commits.answered(denied(both, Right.TOPIC), 10.1)
    assert commits.owed(), "which of the two was denied is not known yet"
    for commit in commits.plan(wanted, 11.2):
        passes = P0 in commit.entries
        answer = CommitAnswer(commit, ACCEPTED) if passes else denied(commit, Right.TOPIC)
        commits.answered(answer, 11.3)
    assert commits.owed() is owed
    assert commits.unbegun() == (not owed)
    assert (commits.failing.since is not None) is owed
    assert commits.retrying, "the right may come back"


def test_a_denied_commit_of_a_partition_that_has_gone_is_told_and_counts_for_nothing(
    commits: Commits,
) -> None:
    (first,) = commits.plan({P0: entry(1)}, 10.0)
    commits.forget([P0])
    (notice,) = commits.answered(denied(first, Right.TOPIC), 10.1)
    assert isinstance(notice, Notice)
    assert commits.failing.since is None
    assert not commits.denials.partitions


@pytest.mark.parametrize(("older", "newer"), [(entry(3), entry(5)), (entry(3), entry(3, "set"))])
def test_a_commit_that_is_stored_over_a_later_one_is_followed_by_that_once_more(
    commits: Commits, older: CommitEntry, newer: CommitEntry
) -> None:
    """The client sends one again by itself whose coordinator has moved."""
    (first,) = commits.plan({P0: older}, 1.0)
    (last,) = commits.plan({P0: newer}, 1.1)
    commits.answered(CommitAnswer(last, ACCEPTED), 1.2)
    commits.answered(CommitAnswer(first, ACCEPTED), 1.3)
    assert commits.retry_now()
    assert commits.due(1.3, changed=False, idle_since=None)
    (again,) = commits.plan({P0: newer}, 1.3)
    assert again.entries == {P0: newer}
    commits.answered(CommitAnswer(again, ACCEPTED), 1.4)
    assert not commits.due(9.0, changed=False, idle_since=None)


def test_an_answer_for_an_earlier_epoch_changes_nothing_of_the_next(commits: Commits) -> None:
    (old,) = commits.plan({P0: entry(5, "set")}, 10.0)
    commits.forget([P0])
    commits.restart({P0: entry(3)})
    commits.answered(CommitAnswer(old, CommitResult.TOO_LARGE, "too large"), 10.1)
    assert not commits.retrying
    assert sent(commits.plan({P0: entry(4, "set")}, 10.2)) == [{P0: entry(4, "set")}]
    commits.forget([P0, P1])
    commits.restart({P0: entry(3)})
    commits.answered(CommitAnswer(old, ACCEPTED), 10.3)
    assert commits.committed(P0) == 3


def test_a_commit_that_nobody_knows_is_answered_in_vain(commits: Commits) -> None:
    commits.answered(CommitAnswer(Commit({P1: entry(9)}), ACCEPTED), 1.0)
    assert commits.committed(P1) == 0


# --- through the dispatcher ---


def test_the_dispatcher_asks_for_a_commit_when_something_settled() -> None:
    harness = Harness()
    harness.assign()
    assert not harness.core.commit_wanted(harness.now)
    harness.fetch(record(0))
    harness.work()
    harness.now += 0.1
    assert harness.core.commit_wanted(harness.now)
    (commit,) = harness.commit()
    assert commit.entries[P0] == entry(1)
    assert not harness.core.commit_wanted(harness.now + 60)
    harness.answer(commit)
    assert not harness.core.commit_wanted(harness.now + 60)


@pytest.mark.parametrize(("interval", "after"), [(0.2, 0.2), (1.0, 1.0), (60.0, 1.0)])
def test_a_failed_commit_is_sent_again_after_a_second_at_most(
    interval: float, after: float
) -> None:
    """A right or a coordinator may be missing for a moment; the interval may be a minute."""
    commits = Commits(CommitPolicy(interval=interval))
    (failed,) = commits.plan({P0: entry(5)}, 10.0)
    commits.answered(CommitAnswer(failed, RETRY, "timed out"), 10.0)
    assert not commits.due(10.0 + after - 0.01, changed=True, idle_since=None, hurried=True)
    assert commits.due(10.0 + after, changed=False, idle_since=None)


def test_a_failed_commit_is_wanted_again_though_nothing_happens() -> None:
    harness = Harness()
    harness.assign()
    harness.fetch(record(0))
    harness.work()
    (commit,) = harness.commit()
    harness.answer(commit, RETRY)
    assert not harness.core.commit_wanted(harness.now + 0.9)
    assert harness.core.commit_wanted(harness.now + 1.1)
    (again,) = harness.commit()
    assert dict(again.entries) == dict(commit.entries)


def test_a_commit_of_one_partition_says_nothing_of_the_others() -> None:
    harness = Harness()
    harness.assign(P0, P1)
    harness.fetch(record(0), record(0, at=P1))
    harness.work()
    (commit,) = harness.commit([P1], final=True)
    assert set(commit.entries) == {P1}
    assert harness.core.commit_wanted(harness.now + 5) is False  # one is in flight
    harness.answer(commit)
    assert harness.core.commit_wanted(harness.now + 5)


def test_what_the_group_refused_is_committed_again_although_nothing_more_happens() -> None:
    """A member that keeps its partition over a rebalance may never get another record."""
    harness = Harness()
    harness.assign(P0)
    harness.fetch(record(0))
    harness.work()
    (refused,) = harness.commit()
    harness.now += 1.0
    assert not harness.core.commit_wanted(harness.now), "one is on its way"
    harness.answer(refused, CommitResult.LOST)
    assert harness.core.commit_wanted(harness.now)
    (again,) = harness.commit()
    assert again.entries == refused.entries
    harness.answer(again)
    harness.now += 60.0
    assert not harness.core.commit_wanted(harness.now)


def test_what_has_ended_in_a_slice_that_goes_on_is_committed_although_nothing_is_reported() -> None:
    """A record that runs for long must not hold back what ended before it, until it ends itself."""
    harness = Harness()
    harness.assign()
    harness.fetch(record(0), record(1), record(2))
    for commit in harness.commit():
        harness.answer(commit)
    worker = harness.owner_of(record(0))
    assert worker.start() is not None
    harness.beat(4)
    assert harness.committed() == (0, [])
    worker.finish()
    assert worker.start() is not None
    assert not harness.mailbox
    harness.beat(4)
    assert harness.core.commit_wanted(harness.now)
    assert harness.committed() == (1, [])
    harness.beat(4)
    assert not harness.core.commit_wanted(harness.now), "and nothing has moved since"

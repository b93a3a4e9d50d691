"""Careful starts: what a partition starts first, and what of it a commit has named by then."""

from __future__ import annotations

from collections.abc import Callable

from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.commands import Commit
from kafka_keyshared.core.contract.events import CommitResult
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.offsets.commit_metadata import decode, encode
from kafka_keyshared.core.offsets.metadata_sections import STARTED, WAITING, LaneNotes, RunningNote
from kafka_keyshared.core.partitions.careful_starts import (
    ALONE_SECONDS,
    CAREFUL_SECONDS,
    FIRST_RECORDS,
    LOOK_EVERY,
    PATIENCE,
)
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.executors.notice_text import Level
from kafka_keyshared.model import Record, TopicPartition
from tests.support.commit_texts import here
from tests.support.core_harness import Harness
from tests.support.records import P0, P1, failure, record

UNCLEAN = RunningNote({5_000: STARTED})
"""What an owner that ended without a clean stop has left, of a record that has not come yet."""


def member(workers: int = 4, **settings: object) -> Harness:
    chosen = SubscriptionSettings(workers=worker_names(workers), **settings)  # type: ignore[arg-type]
    return Harness(chosen, careful=True)


def assign(
    member: Harness,
    *,
    running: RunningNote | None = None,
    at: TopicPartition = P0,
    position: int = 0,
) -> None:
    """Assign a partition; ``running`` is what the last owner's commit names."""
    notes = {"default": LaneNotes(running=running)} if running else {}
    text = encode(here(position), {}, notes=notes).text
    point = ev.StartPoint(position, text, 0, 10_000)
    member.tell(ev.Assigned({at: point}))


def keyed(offsets: range, at: TopicPartition = P0) -> list[Record]:
    return [record(offset, b"key-%d" % offset, at=at) for offset in offsets]


def turn(member: Harness, result: CommitResult = CommitResult.ACCEPTED) -> list[Commit]:
    """Commit if it is time to, as the loop does, and answer."""
    sent = member.commit() if member.core.commit_wanted(member.now) else []
    for commit in sent:
        member.answer(commit, result)
    return sent


def named(commit: Commit, at: TopicPartition = P0) -> dict[int, int]:
    entry = commit.entries[at]
    return dict(decode(entry.metadata, here(entry.position)).notes["default"].running.numbers)


def until(member: Harness, met: Callable[[], bool]) -> None:
    """Let time pass, with commits and mail and without work, until something is so."""
    for _ in range(round(4 * CAREFUL_SECONDS / LOOK_EVERY)):
        if met():
            return
        lived(member, LOOK_EVERY, worked=False)
    raise AssertionError("it never was")


def lived(
    member: Harness,
    seconds: float,
    deadly: frozenset[int] = frozenset(),
    *,
    worked: bool = True,
) -> list[int]:
    """Let time pass, and work meanwhile; return what started. A deadly record ends all of it."""
    started: list[int] = []
    for _ in range(round(seconds / LOOK_EVERY)):
        turn(member)
        for worker in member.pool.workers.values() if worked else ():
            if (each := worker.start()) is not None:
                started.append(each.offset())
                if each.offset() in deadly:
                    return started
                worker.finish(None)
        member.deliver()
        member.later(LOOK_EVERY)
    return started


# --- the write-ahead commit ---


def test_the_first_records_are_committed_by_name_at_once_and_wait_for_nothing() -> None:
    one = member()
    assign(one)
    one.fetch(*keyed(range(100)))
    assert one.core.commit_wanted(one.now), "it waits for no interval"
    (commit,) = one.commit()
    assert list(named(commit))[:4] == [0, 1, 2, 3]
    assert sorted(one.work()) == list(range(100)), "after a clean stop that is all"
    one.answer(commit)
    one.later(LOOK_EVERY)
    one.fetch(*keyed(range(100, 200)))
    assert one.work()
    assert not one.core.commit_wanted(one.now), "the next commit waits for its interval"
    assign(one, at=P1)
    one.fetch(*keyed(range(10), P1))
    assert one.core.commit_wanted(one.now), "another partition begins"


def test_after_an_unclean_end_nothing_starts_before_a_commit_has_named_it() -> None:
    one = member()
    assign(one, running=UNCLEAN)
    one.fetch(*keyed(range(100)))
    assert one.work() == []
    assert one.core.commit_wanted(one.now), "it waits for no interval"
    (commit,) = one.commit()
    assert one.work() == [], "it is not answered"
    assert list(named(commit))[:4] == [0, 1, 2, 3]
    one.answer(commit)
    assert sorted(one.work()) == list(range(FIRST_RECORDS))


def test_a_commit_that_fails_delays_the_first_records_by_a_second_at_most() -> None:
    one = member()
    assign(one, running=UNCLEAN)
    one.fetch(*keyed(range(10)))
    turn(one, CommitResult.RETRY)
    one.later(PATIENCE / 2)
    assert one.work() == []
    one.later(PATIENCE)
    assert len(one.work()) == FIRST_RECORDS


def test_a_partition_without_records_commits_nothing_again() -> None:
    one = member()
    assign(one)
    for _ in range(100):
        one.later(LOOK_EVERY)
        assert turn(one) == []


def test_the_commits_of_a_running_partition_are_no_more_for_the_names() -> None:
    one = member()
    assign(one)
    one.fetch(record(0, b"a"))
    turn(one)
    one.owner_of(record(0, b"a")).start()
    one.later(5.0)
    one.fetch(record(1, b"b"))
    one.owner_of(record(1, b"b")).start()
    assert one.commit() == [], "that another record runs is not committed for its own sake"


def test_a_clean_stop_names_no_record() -> None:
    one = member()
    assign(one)
    one.fetch(*keyed(range(10)))
    turn(one)
    one.work()
    (last,) = one.commit(final=True)
    assert last.entries[P0].metadata == ""


def test_a_clean_stop_names_no_record_that_has_not_started() -> None:
    one = member()
    assign(one, running=RunningNote({2: STARTED}))
    one.fetch(*keyed(range(20)))
    lived(one, 2 * LOOK_EVERY)
    one.tell(ev.Stopping())
    one.work()
    (last,) = one.commit(final=True)
    assert not decode(last.entries[P0].metadata, here(last.entries[P0].position)).notes


def test_what_still_runs_when_a_partition_goes_is_named() -> None:
    one = member()
    assign(one)
    one.fetch(record(0, b"a"))
    turn(one)
    one.owner_of(record(0, b"a")).start()
    (last,) = one.revoke(P0)
    assert named(last) == {0: STARTED}


# --- small batches ---


def test_after_an_unclean_end_a_partition_begins_with_few_records() -> None:
    one = member()
    assign(one, running=UNCLEAN)
    one.fetch(*keyed(range(1_000)))
    (commit,) = turn(one)
    assert set(named(commit)) == {*range(FIRST_RECORDS), 5_000}, "all of them are named"
    assert sorted(one.work()) == list(range(FIRST_RECORDS))
    one.later(LOOK_EVERY)
    (commit,) = turn(one)
    assert commit.entries[P0].position == FIRST_RECORDS, "what has settled is committed at once"
    assert sorted(one.work()) == list(range(FIRST_RECORDS, 3 * FIRST_RECORDS))


def test_looks_that_lead_to_no_commit_let_no_more_records_start() -> None:
    """A commit that would say what the broker has already is not sent: the next turn looks anew."""
    one = member()
    assign(one, running=UNCLEAN)
    one.fetch(*keyed(range(100)))
    for _ in range(10):
        one.core.snapshots.entries(one.pool.progress(), None, one.now, final=False)
    turn(one)
    assert sorted(one.work()) == list(range(FIRST_RECORDS))


def test_a_partition_is_back_at_full_speed_soon() -> None:
    one = member(prefetch_records=1_000)
    assign(one, running=UNCLEAN)
    one.fetch(*keyed(range(3_000)))
    for _ in range(10):
        turn(one)
        one.work()
        one.later(LOOK_EVERY)
    assert one.core.snapshots.take({}, one.now)[P0].position == 3_000


def test_slow_handlers_get_more_records_although_nothing_settles() -> None:
    one = member(workers=50, prefetch_records=1)
    assign(one, running=UNCLEAN)
    one.fetch(*keyed(range(200)))
    running = []
    for _ in range(40):
        turn(one)
        running += [each for worker in one.pool.workers.values() if (each := worker.start())]
        one.later(LOOK_EVERY)
    assert len(running) > 4 * FIRST_RECORDS


# --- suspects ---


def test_the_log_names_once_what_ran_when_the_last_owner_ended() -> None:
    one = member()
    assign(one, running=RunningNote({7: STARTED, 12: WAITING}, 3))
    (notice,) = [each for each in one.notices if each.level is Level.WARNING]
    assert notice.text == (
        "orders-0: the last owner ended without a clean stop; records that were likely running: "
        "orders-0@7, orders-0@12 (+3 more); starting with small batches, these records last"
    )


def test_suspects_start_when_the_others_are_done_and_named_by_a_commit() -> None:
    one = member()
    assign(one, running=RunningNote({2: STARTED}))
    one.fetch(*keyed(range(20)))
    assert 2 not in lived(one, ALONE_SECONDS)
    (position, runs) = one.committed()
    assert position == 2
    assert runs == [(3, 20)]
    assert lived(one, 2 * ALONE_SECONDS) == [2]


def test_a_suspect_is_named_alone_before_it_starts() -> None:
    one = member()
    assign(one, running=RunningNote({2: STARTED, 3: STARTED}))
    one.fetch(*keyed(range(8)))
    assert lived(one, 5.0, frozenset({2}))[-1] == 2
    names = [named(commit) for commit in one.commits]
    assert names[-1] == {2: STARTED + 1, 3: STARTED}, "one that waits keeps its number"


def test_what_follows_a_suspect_in_its_lane_waits_behind_it() -> None:
    one = member()
    assign(one, running=RunningNote({2: STARTED}))
    one.fetch(*(record(offset, b"same") for offset in range(6)))
    assert lived(one, ALONE_SECONDS) == [0, 1], "what is ahead of it runs"
    assert lived(one, 8.0) == [2, 3, 4, 5]


def test_a_suspect_waits_for_one_ahead_of_it_that_was_taken_back() -> None:
    """What is given back goes before all that waits at a worker: that was 0, so 1 ran before it."""
    one = member(workers=1)
    one.pool.answers_later = lambda: True
    assign(one, running=RunningNote({0: STARTED, 1: STARTED}))
    one.fetch(record(0, b"same"), record(1, b"same"))
    until(one, lambda: one.core.outstanding() == 1)
    one.recall()
    one.recall()
    # The first answer: 0 waits at its worker, which is given nothing before the second.
    one.worker().step()
    until(one, lambda: one.core.outstanding() == 0)
    lived(one, 2 * CAREFUL_SECONDS, worked=False)
    one.worker().step()
    one.deliver()
    assert lived(one, 2 * CAREFUL_SECONDS) == [0, 1]


def test_a_suspect_behind_a_lane_that_is_closed_costs_no_commits() -> None:
    one = member(workers=1, retry=RetryPolicy(attempts=9, backoff=100.0, backoff_max=100.0))
    assign(one, running=RunningNote({1: STARTED}))
    one.fetch(*(record(offset, b"same") for offset in range(3)))
    until(one, lambda: one.core.outstanding() == 1)
    assert one.work({0: [failure()]}) == [0]
    lived(one, 2 * CAREFUL_SECONDS)
    sent = len(one.commits)
    assert lived(one, CAREFUL_SECONDS) == []
    assert len(one.commits) == sent
    due = one.core.next_due()
    assert due is not None and due > one.now + CAREFUL_SECONDS, "nobody wakes for it"
    one.later(100.0)
    assert one.work() == [0]
    assert lived(one, 2 * CAREFUL_SECONDS) == [1, 2]


def test_suspects_start_after_some_seconds_although_others_go_on_coming() -> None:
    one = member()
    assign(one, running=RunningNote({0: STARTED}))
    end = 0
    started: list[int] = []
    for _ in range(round(2 * CAREFUL_SECONDS / LOOK_EVERY)):
        one.fetch(*keyed(range(end, end + 5)))
        end += 5
        started += lived(one, LOOK_EVERY)
    assert 0 in started
    assert started.index(0) > 100


def test_suspects_start_although_no_commit_can_be_made() -> None:
    one = member()
    assign(one, running=RunningNote({0: STARTED, 5: STARTED}))
    one.fetch(*keyed(range(5)), record(5, b"key-4"))
    started = []
    for _ in range(round(20.0 / LOOK_EVERY)):
        one.later(LOOK_EVERY)
        started += one.work()
    assert sorted(started) == [0, 1, 2, 3, 4, 5]


def test_a_record_that_ends_each_process_lets_all_others_be_done_in_six_lives() -> None:
    """At once, when it starts: its process can send nothing any more."""
    deadly = frozenset({70})
    position, text, done = 0, "", set()
    for life in range(6):
        one = member()
        point = ev.StartPoint(position, text, 0, 200, stored=life > 0)
        one.tell(ev.Assigned({P0: point}))
        one.fetch(*keyed(range(position, 200)))
        before = one.core.snapshots.take({}, one.now)[P0]
        done.update(lived(one, 30.0, deadly))
        entry = one.commits[-1].entries[P0]
        assert (entry.position, entry.metadata) != (position, text), "each life leaves something"
        assert before.position == position
        position, text = entry.position, entry.metadata
        if done >= set(range(200)):
            break
    assert done == set(range(200))
    ran = decode(text, here(position)).notes["default"].running.numbers
    assert ran[70] == max(ran.values()) > STARTED, "it counts the owners that have run it"


def test_two_records_that_end_each_process_are_both_found() -> None:
    """Neither of them comes before an innocent record that fewer owners have run."""
    deadly = frozenset({20, 30})
    position, text, done = 0, "", set()
    for life in range(8):
        one = member()
        point = ev.StartPoint(position, text, 0, 60, stored=life > 0)
        one.tell(ev.Assigned({P0: point}))
        one.fetch(*keyed(range(position, 60)))
        done.update(lived(one, 30.0, deadly))
        entry = one.commits[-1].entries[P0]
        position, text = entry.position, entry.metadata
    assert done >= set(range(60)) - deadly, "all others are done in eight lives"
    assert set(decode(text, here(position)).notes["default"].running.numbers) == deadly


def test_a_partition_that_comes_with_suspects_goes_with_them() -> None:
    one = member()
    assign(one, running=RunningNote({0: STARTED}))
    one.fetch(*keyed(range(5)))
    lived(one, 2 * LOOK_EVERY)
    for commit in one.revoke(P0):
        one.answer(commit)
    assert not one.core.careful.starts
    assert one.sub().suspects.empty()
    assign(one, at=P1)
    one.fetch(*keyed(range(5), P1))
    turn(one)
    assert len(one.work()) == 5

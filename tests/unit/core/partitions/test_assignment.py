"""Partitions come and go: revoke and forget, epochs, and what reports late."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.offsets import commit_metadata
from kafka_keyshared.core.offsets.metadata_sections import STARTED, LaneNotes, RunningNote, Tried
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import TopicPartition
from tests.support.commit_texts import here
from tests.support.core_harness import Harness
from tests.support.records import ERROR, GIVE_UP, P0, P1, record


def started_with(*offsets: int, key: str | None = "k") -> Harness:
    """A member whose worker runs the first of these records of P0."""
    harness = Harness()
    harness.assign(P0, P1)
    harness.fetch(*[record(offset, key) for offset in offsets])
    harness.worker().start()
    return harness


# --- revoke ---


def test_revoking_takes_back_what_has_not_started_and_starts_nothing_more() -> None:
    harness = started_with(0, 1, 2)
    harness.tell(ev.Revoking([P0]))
    running, dead_letters = harness.core.under_way([P0], harness.pool.progress())
    assert ([each.offset() for each in running], dead_letters) == ([0], 0)
    harness.worker().finish()
    assert harness.work() == []
    assert harness.core.under_way([P0], harness.pool.progress()) == ([], 0)


def test_other_partitions_go_on_during_a_revoke() -> None:
    harness = started_with(0, 1)
    harness.fetch(record(50, "other", P1))
    harness.tell(ev.Revoking([P0]))
    harness.worker().finish()
    assert harness.work() == [50]


def test_the_last_commit_of_a_revoke_has_what_settled_meanwhile_and_nothing_else() -> None:
    harness = started_with(0, 1, 2)
    harness.tell(ev.Revoking([P0]))
    harness.worker().finish()
    harness.work()
    (commit,) = harness.commit([P0], final=True)
    assert {p: e.position for p, e in commit.entries.items()} == {P0: 1}


def test_a_last_commit_goes_out_although_another_is_in_flight() -> None:
    harness = started_with(0, 1)
    harness.worker().finish()
    harness.worker().start()
    (first,) = harness.commit()
    harness.worker().finish()
    harness.work()
    (last,) = harness.commit([P0], final=True)
    assert (first.entries[P0].position, last.entries[P0].position) == (1, 2)


def test_a_dead_letter_on_its_way_is_waited_for() -> None:
    harness = Harness(SubscriptionSettings(dlq=True))
    harness.assign(P0, P1)
    harness.fetch(record(0))
    harness.work({0: [GIVE_UP]})
    harness.tell(ev.Revoking([P0]))
    assert harness.core.under_way([P0], {}) == ([], 1)
    assert harness.core.under_way([P1], {}) == ([], 0)
    harness.dead_letter()
    assert harness.core.under_way(None, {}) == ([], 0)
    (commit,) = harness.commit([P0], final=True)
    assert commit.entries[P0].position == 1


# --- forget ---


def test_forgotten_records_are_neither_settled_nor_committed_and_leave_the_window() -> None:
    harness = Harness(SubscriptionSettings(prefetch_records=2))
    harness.assign(P0, P1)
    harness.fetch(
        *[record(offset, key) for offset, key in enumerate(["bad", "bad", None, "x", "y"])],
        record(7, "z", P1),
    )
    harness.work({0: [ERROR], 2: [ERROR]}, rounds=1_000)
    harness.fetch(record(9, "bad"), record(10, None))
    commits = harness.revoke(P0)
    assert [c.entries[P0].position for c in commits] == [0]
    assert harness.core.unsettled_count() == 0
    assert P0 not in harness.core.partitions
    assert len(harness.sub().closed) == 0
    assert harness.core.next_due() is None
    harness.later(60.0)
    assert harness.work() == []


def test_lost_partitions_are_forgotten_without_a_commit() -> None:
    harness = started_with(0, 1)
    harness.worker().finish()
    harness.work()
    assert harness.revoke(P0, commit=False) == []
    assert P0 not in harness.core.snapshots.take({}, harness.now)


def test_a_lane_that_a_revoked_record_closed_opens_when_the_record_is_forgotten() -> None:
    harness = Harness()
    harness.assign(P0, P1)
    harness.fetch(record(0, "k", P0), record(0, "k", P1), record(1, "k", P1), record(1, "k", P0))
    harness.worker().start()
    harness.worker().finish(ERROR)
    harness.work()
    harness.fetch(record(2, "k", P1))
    assert harness.work() == []
    harness.revoke(P0)
    assert harness.work() == [0, 1, 2]
    assert harness.core.snapshots.take({}, harness.now)[P1].position == 3


def test_a_lane_blocked_by_a_revoked_record_opens_too() -> None:
    harness = Harness(SubscriptionSettings(retry=RetryPolicy(attempts=1)))
    harness.assign(P0, P1)
    harness.fetch(record(0, "k", P0), record(5, "k", P1))
    harness.work({0: [ERROR]})
    harness.revoke(P0)
    assert harness.work() == [5]
    assert not harness.sub().closed.lanes


def test_a_retry_that_runs_when_its_partition_goes_holds_its_lane_until_it_ends() -> None:
    harness = Harness()
    harness.assign(P0, P1)
    harness.fetch(record(0, "k", P0), record(5, "k", P1))
    harness.work({0: [ERROR]})
    harness.later(0.2)
    harness.worker().start()
    harness.revoke(P0)
    harness.deliver()
    assert [r.offset() for slice_ in harness.worker().slices() for r in slice_.records] == [0]
    harness.worker().finish(ERROR)
    assert harness.work() == [5]


def test_assigning_what_is_assigned_already_is_refused() -> None:
    harness = Harness()
    harness.assign(P0)
    with pytest.raises(InvariantError, match="orders-0 assigned twice without being revoked"):
        harness.assign(P0)


def test_a_partition_is_given_up_once_is_announced_before_and_delivers_nothing_meanwhile() -> None:
    harness = Harness()
    harness.assign(P0)
    with pytest.raises(InvariantError, match=r"orders-0 forgotten .* before it is given up"):
        harness.tell(ev.Forget([P0]))
    harness.fetch(record(0))
    harness.tell(ev.Revoking([P0]))
    with pytest.raises(InvariantError, match=r"orders-0 delivered .* while it is given up"):
        harness.tell(ev.Fetched([], {P0: 2}))
    with pytest.raises(InvariantError, match=r"orders-0 about to be given up .* or twice"):
        harness.tell(ev.Revoking([P0]))
    harness.tell(ev.Forget([P0]))
    assert not harness.core.partitions


# --- the partition returns ---


def test_a_partition_returns_with_a_new_epoch_and_its_records_run_afresh() -> None:
    harness = started_with(0, 1)
    before = harness.core.partitions[P0]
    harness.revoke(P0)
    harness.assign(P0)
    assert harness.core.partitions[P0] is not before
    harness.fetch(record(0), record(1))
    harness.worker().finish()
    assert harness.work() == [0, 1]
    assert harness.committed() == (2, [])


def test_a_key_still_running_from_before_is_waited_for_and_its_end_settles_nothing_new() -> None:
    harness = started_with(0)
    harness.revoke(P0)
    harness.assign(P0)
    harness.fetch(record(0))
    assert harness.worker().start() is None
    assert harness.committed() == (0, [])
    harness.worker().finish()
    harness.deliver()
    assert harness.committed() == (0, [])
    assert harness.work() == [0]
    assert harness.committed() == (1, [])


def test_a_failure_of_the_old_epoch_is_no_attempt_of_the_new_record_and_keeps_its_order() -> None:
    harness = Harness(SubscriptionSettings(retry=RetryPolicy(attempts=1)))
    harness.assign(P0)
    harness.fetch(record(0))
    harness.worker().start()
    harness.revoke(P0)
    harness.assign(P0)
    harness.fetch(record(0), record(1))
    harness.worker().finish(ERROR)
    assert harness.work() == [0, 1]
    assert harness.sub().counts.failed == 0
    assert harness.committed() == (2, [])


def test_what_is_set_aside_of_the_old_epoch_is_dropped_and_of_the_new_one_kept() -> None:
    harness = Harness()
    harness.assign(P0)
    harness.fetch(record(0), record(1))
    worker = harness.worker()
    worker.start()
    worker.finish(ERROR)
    worker.step()  # 1 is set aside; none of it has been reported yet
    harness.tell(ev.Revoking([P0]))
    harness.tell(ev.Forget([P0], lost=True))
    harness.assign(P0)
    harness.fetch(record(0), record(1))
    assert harness.work() == [0, 1]
    assert harness.core.unsettled_count() == 0
    assert harness.committed() == (2, [])


def test_a_keyless_failure_of_the_old_epoch_replaces_nothing() -> None:
    harness = started_with(0, key=None)
    harness.revoke(P0)
    harness.assign(P0)
    harness.fetch(record(0, None))
    harness.worker().finish(ERROR)
    assert harness.work() == [0]
    assert harness.committed() == (1, [])


def test_with_one_lease_per_key_the_returned_partition_waits_for_the_old_record() -> None:
    harness = Harness(SubscriptionSettings(one_in_flight_per_key=True))
    harness.assign(P0)
    harness.fetch(record(0), record(1))
    harness.worker().start()
    harness.revoke(P0)
    harness.assign(P0)
    harness.fetch(record(0), record(1))
    assert len(harness.pool.progress()) == 1
    harness.worker().finish()
    assert harness.work() == [0, 1]


# --- stopping, and the rest of the funnel ---


def test_after_stopping_nothing_starts_and_everything_unstarted_is_taken_back() -> None:
    harness = started_with(0, 1)
    harness.tell(ev.Stopping())
    harness.worker().finish(ERROR)
    harness.fetch(record(0, "other", P1))
    harness.later(60.0)
    harness.beat()
    assert harness.work() == []
    harness.revoke(P0, P1)
    assert harness.core.unsettled_count() == 0


def test_what_is_no_record_is_handed_back_and_not_counted() -> None:
    harness = Harness()
    harness.assign(P0)
    event = record(0, None)
    event._error = "a notice"
    harness.fetch(record(0, "k"), event, record(1, None))
    assert harness.client_events == [event]
    assert harness.core.unsettled_count() == 2
    assert sorted(harness.work()) == [0, 1]


def test_the_owner_can_ask_what_is_outstanding_and_what_is_due() -> None:
    harness = Harness()
    harness.assign(P0)
    harness.fetch(record(0), record(1, "other"))
    assert harness.core.outstanding() == 2
    harness.work({0: [ERROR]})
    assert harness.core.outstanding() == 0
    assert harness.core.next_due() == pytest.approx(harness.now + 0.1)
    assert harness.core.unsettled_count() == 1


def test_one_key_stays_with_its_worker_whatever_the_partition() -> None:
    harness = Harness(SubscriptionSettings(workers=("worker-0", "worker-1", "worker-2")))
    elsewhere = TopicPartition("payments", 3)
    for key in map(str, range(50)):
        owners = {harness.owner_of(record(0, key, at)).index for at in (P0, P1, elsewhere)}
        assert len(owners) == 1


def test_a_keyless_retry_that_outlives_its_epoch_is_in_nobodys_way_when_the_record_returns() -> (
    None
):
    """Found by the adversary: the next epoch's failure met its lane and ended the instance."""
    harness = Harness(SubscriptionSettings(workers=("worker-0", "worker-1")))
    harness.assign()
    harness.fetch(record(0, None))
    old = next(each for each in harness.pool.workers.values() if each.start())
    old.finish(ERROR)
    harness.deliver()
    harness.later(1.0)
    old = next(each for each in harness.pool.workers.values() if each.start())
    harness.revoke(P0)
    harness.assign(position=0)
    harness.fetch(record(0, None))
    new = next(each for each in harness.pool.workers.values() if each.running is None)
    assert new.start() is not None
    new.finish(ERROR)
    harness.deliver()
    old.finish(ERROR)
    harness.deliver()
    harness.later(1.0)
    assert harness.work() == [0]
    assert harness.committed() == (1, [])


def test_a_start_that_the_broker_does_not_have_is_committed_although_nothing_happens() -> None:
    harness = Harness()
    harness.tell(ev.Assigned({P0: ev.StartPoint(7, None, 0, 7, stored=False)}))
    assert harness.core.commits.committed(P0) is None
    harness.now += 1.0
    assert harness.core.commit_wanted(harness.now)
    (commit,) = harness.commit()
    assert commit.entries[P0].position == 7
    harness.answer(commit)
    assert harness.core.commits.committed(P0) == 7


@pytest.mark.parametrize("log_end", [5, 8, 9])
def test_a_set_that_the_log_has_no_longer_is_committed_anew_although_nothing_happens(
    log_end: int,
) -> None:
    """Found by the property of positions: once the log has grown, the next owner believes it."""
    harness = Harness()
    text = commit_metadata.encode(here(5), {"default": ((6, 7), (8, 10))}).text
    harness.tell(ev.Assigned({P0: ev.StartPoint(5, text, 0, log_end)}))
    harness.now += 1.0
    assert harness.core.commit_wanted(harness.now)
    (commit,) = harness.commit()
    assert commit.entries[P0].position == 5
    kept = commit_metadata.decode(commit.entries[P0].metadata, here(5)).sections
    assert kept.get("default", ()) == {5: (), 8: ((6, 7),), 9: ((6, 7), (8, 9))}[log_end]


@pytest.mark.parametrize(
    "note", [LaneNotes(tried={9: Tried(2)}), LaneNotes(running=RunningNote({9: STARTED}))]
)
def test_a_note_of_an_offset_that_the_log_has_no_longer_is_committed_away(note: LaneNotes) -> None:
    """Else a new record there would be taken for one that has failed, or ended its process."""
    harness = Harness()
    text = commit_metadata.encode(here(5), {}, notes={"default": note}).text
    harness.tell(ev.Assigned({P0: ev.StartPoint(5, text, 0, 9)}))
    harness.now += 1.0
    assert harness.core.commit_wanted(harness.now)
    (commit,) = harness.commit()
    assert (commit.entries[P0].position, commit.entries[P0].metadata) == (5, "")


@pytest.mark.parametrize("log_end", [10, 11, None])
def test_a_set_that_the_log_has_is_not_committed_again(log_end: int | None) -> None:
    harness = Harness()
    text = commit_metadata.encode(here(5), {"default": ((6, 7), (8, 10))}).text
    harness.tell(ev.Assigned({P0: ev.StartPoint(5, text, 0, log_end)}))
    harness.now += 1.0
    assert not harness.core.commit_wanted(harness.now)


def test_a_partition_that_comes_back_is_no_longer_stopped_for_what_was_blocked_in_it() -> None:
    settings = SubscriptionSettings(window_records=16, retry=RetryPolicy(attempts=1))
    harness = Harness(settings)
    for at in (0, 100):
        harness.assign(P0, position=at)
        harness.fetch(record(at + 50, "healthy"))
        harness.work()
        assert not harness.paused, "stopped for what it was stopped for before"
        harness.fetch(*[record(at + 51 + offset) for offset in range(6)])
        harness.work({at + 51: [ERROR]})
        assert harness.paused == {P0}, "a quarter of the window is blocked, and nothing was stopped"
        harness.revoke(P0)


def test_no_retry_of_a_partition_that_is_being_revoked_starts() -> None:
    harness = Harness()
    harness.assign(P0, P1)
    harness.fetch(record(0, "a"), record(1, "b", P1))
    assert sorted(harness.work({0: [ERROR]})) == [0, 1]
    harness.tell(ev.Revoking([P0]))
    harness.later(60.0)
    assert harness.work() == []
    assert [each.offset() for each in harness.sub().unsettled.waiting()] == [0]

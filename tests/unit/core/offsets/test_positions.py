"""Safe positions and settled sets, and what becomes of them at the next assignment."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.contract.events import Fetched
from kafka_keyshared.core.offsets.commit_metadata import encode
from kafka_keyshared.core.offsets.positions import OffsetSnapshot, PartitionState, collect, derive
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.errors import InvariantError
from tests.support.commit_texts import here
from tests.support.core_harness import Harness
from tests.support.records import ERROR, P0, P1, FakeRecord, record


def test_of_10_to_13_all_but_11_settled_are_safe_up_to_11_and_then_up_to_14() -> None:
    held = {11: FakeRecord(P0, 11, b"k", epoch=3)}
    assert derive(14, {"default": held}, {}, {}) == OffsetSnapshot(11, {"default": ((12, 14),)}, 3)
    assert derive(14, {"default": {}}, {}, {}) == OffsetSnapshot(14, {})


def test_the_same_through_the_dispatcher() -> None:
    harness = Harness()
    harness.assign(position=10)
    harness.fetch(*[record(offset, str(offset)) for offset in (10, 11, 12, 13)])
    harness.work({11: [ERROR]})
    assert harness.committed() == (11, [(12, 14)])
    harness.later(0.2)
    harness.work()
    assert harness.committed() == (14, [])


def test_offsets_that_were_never_received_hold_nothing_up() -> None:
    harness = Harness()
    harness.assign()
    harness.fetch(record(0), record(7), record(40), ends={P0: 45})
    harness.work()
    assert harness.committed() == (45, [])


def test_an_end_of_the_log_behind_transaction_markers_moves_the_position() -> None:
    harness = Harness()
    harness.assign()
    harness.fetch(record(0))
    harness.work()
    harness.tell(Fetched([], {P0: 3}))
    assert harness.committed() == (3, [])


def test_a_received_end_never_goes_back() -> None:
    harness = Harness()
    harness.assign()
    harness.fetch(record(0), ends={P0: 9})
    harness.fetch(record(9), ends={P0: 5})
    assert harness.core.partitions[P0].received_end == 9


def test_records_of_a_partition_that_is_not_assigned_are_refused() -> None:
    harness = Harness()
    harness.assign(P0)
    with pytest.raises(InvariantError, match="orders-1 delivered records without being assigned"):
        harness.fetch(record(0, at=P1))


def test_a_running_record_is_unsettled_and_those_before_it_in_its_slice_are_settled() -> None:
    harness = Harness()
    harness.assign()
    harness.fetch(*[record(offset) for offset in range(4)])
    worker = harness.worker()
    for _ in range(2):
        worker.start()
        worker.finish()
    worker.start()
    assert harness.committed() == (2, [])


def test_progress_that_was_read_before_a_failure_does_not_pass_it() -> None:
    harness = Harness()
    harness.assign()
    harness.fetch(*[record(offset, str(offset)) for offset in range(3)])
    worker = harness.worker()
    worker.start()
    worker.finish(ERROR)
    worker.start()
    assert harness.committed()[0] == 0


def test_a_slice_that_progress_does_not_know_counts_as_unstarted() -> None:
    harness = Harness()
    harness.assign()
    harness.fetch(record(0), record(1))
    assert harness.core.snapshots.take({}, harness.now)[P0].position == 0


def test_what_is_held_is_collected_by_partition_and_counts_once() -> None:
    third, first, fifth = record(3), record(1, at=P1), record(5)
    held = [(P0, third), (P1, first), (P0, fifth), (P0, third)]
    assert collect(held) == {P0: {3: third, 5: fifth}, P1: {1: first}}


def test_the_leader_epoch_of_the_record_at_the_position_is_committed_with_it() -> None:
    harness = Harness()
    harness.assign()
    harness.fetch(FakeRecord(P0, 0, b"a", epoch=1), FakeRecord(P0, 1, b"b", epoch=2))
    harness.work({1: [ERROR]})
    commits = harness.commit()
    assert [commit.entries[P0].leader_epoch for commit in commits] == [2]


# --- the settled set at the next assignment ---


def test_records_that_were_settled_before_are_skipped_and_the_position_passes_them() -> None:
    harness = Harness()
    harness.assign(position=10, metadata=encode(here(10), {"default": ((11, 13), (15, 16))}).text)
    assert harness.committed() == (10, [(11, 13), (15, 16)])
    harness.fetch(*[record(offset) for offset in range(10, 17)])
    assert harness.work() == [10, 13, 14, 16]
    assert harness.committed() == (17, [])
    assert harness.sub().counts.skipped == 3


def test_a_restored_set_is_handed_on_while_its_records_are_still_to_come() -> None:
    harness = Harness()
    harness.assign(position=10, metadata=encode(here(10), {"default": ((11, 13), (15, 16))}).text)
    harness.fetch(record(10), record(11), record(12))
    harness.work()
    assert harness.committed() == (13, [(15, 16)])


def test_a_set_that_was_committed_is_what_the_next_owner_restores() -> None:
    first = Harness()
    first.assign()
    first.fetch(*[record(offset, str(offset % 3)) for offset in range(9)])
    first.work({1: [ERROR]})
    (commit,) = first.commit()
    entry = commit.entries[P0]
    second = Harness()
    second.assign(position=entry.position, metadata=entry.metadata)
    second.fetch(*[record(offset, str(offset % 3)) for offset in range(entry.position, 9)])
    assert second.work() == [1, 4, 7]


def test_nothing_beyond_the_end_of_the_log_is_believed() -> None:
    harness = Harness()
    harness.assign(
        position=10, metadata=encode(here(10), {"default": ((11, 900),)}).text, log=(0, 12)
    )
    harness.fetch(*[record(offset) for offset in range(10, 15)])
    assert harness.work() == [10, 12, 13, 14]


def test_retention_past_the_position_starts_at_the_start_of_the_log_and_says_so() -> None:
    harness = Harness()
    text = encode(here(10), {"default": ((11, 30),)}).text
    harness.assign(position=10, metadata=text, log=(25, 40))
    assert harness.assigned == {P0: 25}
    assert harness.said("15 offsets are gone, reading goes on at the start of the log")
    harness.fetch(*[record(offset) for offset in range(25, 33)])
    assert harness.work() == [30, 31, 32]


@pytest.mark.parametrize("text", ["KS2", "not ours", "KS9abc", "KS2fff" + "x" * 80])
def test_metadata_that_cannot_be_read_costs_a_warning_and_no_record(text: str) -> None:
    harness = Harness()
    harness.assign(position=10, metadata=text, log=(0, 12))
    assert harness.said("orders-0: commit metadata ignored, everything from offset 10 on")
    harness.fetch(record(10), record(11))
    assert harness.work() == [10, 11]


def test_a_partition_without_a_position_starts_where_the_client_says_and_commits_nothing_yet() -> (
    None
):
    harness = Harness()
    harness.assign(position=None)
    assert harness.assigned == {P0: None}
    assert harness.commit() == []
    harness.fetch(record(77))
    harness.work()
    assert harness.committed() == (78, [])


def test_the_sets_of_subscriptions_that_are_not_here_are_handed_on() -> None:
    text = encode(here(10), {"elsewhere": ((12, 14),)}).text
    harness = Harness()
    harness.assign(position=10, metadata=text)
    harness.fetch(record(10, "a"), record(11, "b"))
    harness.work({10: [ERROR]})
    (commit,) = harness.commit()
    other = Harness(SubscriptionSettings("elsewhere"))
    other.assign(position=10, metadata=commit.entries[P0].metadata)
    assert other.core.partitions[P0].restored == {"elsewhere": ((12, 14),)}


def test_passed_runs_are_forgotten_and_cut_ones_kept() -> None:
    state = PartitionState(20, {"a": ((10, 15), (18, 25)), "b": ((1, 2),)})
    state.drop_passed({})
    assert state.restored == {"a": ((20, 25),)}
    assert max(runs[-1][1] for runs in state.restored.values()) == 25


# --- two subscriptions over one fetch ---


def test_the_position_waits_for_every_subscription_and_each_has_its_own_set() -> None:
    harness = Harness(SubscriptionSettings("default"), SubscriptionSettings("audit"))
    harness.assign()
    harness.fetch(*[record(offset) for offset in range(3)])
    slow = harness.worker(sub="audit")
    quick = harness.worker()
    for _ in range(3):
        quick.start()
        quick.finish()
    slow.start()
    quick.start()
    harness.deliver()
    snapshot = harness.core.snapshots.take(harness.pool.progress(), harness.now)[P0]
    assert (snapshot.position, snapshot.runs) == (0, {"default": ((0, 3),)})
    slow.finish()
    assert harness.work() == [1, 2]
    assert harness.committed() == (3, [])


def test_after_a_restart_each_subscription_gets_what_it_has_not_settled_itself() -> None:
    harness = Harness(SubscriptionSettings("default"), SubscriptionSettings("audit"))
    harness.assign(
        position=0, metadata=encode(here(0), {"default": ((0, 2),), "audit": ((1, 3),)}).text
    )
    harness.fetch(*[record(offset) for offset in range(3)])
    assert [r.offset() for slice_ in harness.worker().slices() for r in slice_.records] == [2]
    assert [
        r.offset() for slice_ in harness.worker(0, "audit").slices() for r in slice_.records
    ] == [0]


def test_a_drop_in_one_subscription_settles_nothing_in_another() -> None:
    harness = Harness(
        SubscriptionSettings("default", on_exhausted="block"),
        SubscriptionSettings("audit", on_exhausted="drop"),
    )
    harness.assign()
    harness.fetch(record(0))
    harness.work({0: [ERROR] * 2})
    for _ in range(8):
        harness.later(30.0)
        harness.work({0: [ERROR] * 2})
    assert harness.sub("audit").counts.dropped == 1
    assert harness.core.snapshots.take({}, harness.now)[P0].position == 0

"""A worker that cannot be restarted: six heartbeats, then its keys go to the others."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.contract.commands import Recall
from kafka_keyshared.core.contract.events import Tick
from kafka_keyshared.core.offsets.commit import CommitPolicy
from kafka_keyshared.core.subscription.settings import OnEvict, SubscriptionSettings
from kafka_keyshared.core.worker_changes.worker_lifecycle import EVICT_AFTER
from kafka_keyshared.executors.notice_text import Level
from kafka_keyshared.lab.simulator.stepped import SteppedWorker
from tests.support.core_harness import Harness
from tests.support.records import ERROR, P0, FakeRecord, record

TWO = ("worker-0", "worker-1")


def dying(
    *records: FakeRecord,
    on_evict: OnEvict = "redeliver",
    leases: int = 1_000,
    commit: CommitPolicy = CommitPolicy(),  # noqa: B008 - an immutable value
) -> tuple[Harness, SteppedWorker]:
    """A member of which the owner of the first record's key has begun with that."""
    settings = SubscriptionSettings(workers=TWO, on_evict=on_evict, prefetch_records=leases)
    harness = Harness(settings, commit=commit)
    harness.assign()
    harness.fetch(*records)
    worker = harness.owner_of(records[0])
    assert worker.start() is not None
    return harness, worker


def evicted(harness: Harness, worker: SteppedWorker, *, beats: int = EVICT_AFTER) -> None:
    """Let it die for good."""
    worker.die()
    harness.pool.replaceable = False
    harness.beat(beats)
    harness.deliver()


def test_what_it_had_in_hand_runs_again_at_the_others_in_order() -> None:
    harness, worker = dying(*[record(at, "k") for at in range(4)])
    evicted(harness, worker)
    harness.later(1.0)
    assert harness.work() == [0, 1, 2, 3]
    assert harness.committed() == (4, [])
    assert harness.sub().counts.written_off == 0


def test_by_the_rule_of_the_source_what_it_had_not_started_counts_as_settled() -> None:
    """What it was running has failed by then, as it does with any worker that dies."""
    harness, worker = dying(*[record(at, "k") for at in range(4)], on_evict="ack")
    assert harness.sub().leased == 4
    evicted(harness, worker)
    harness.later(1.0)
    assert harness.work() == [0]
    assert harness.committed() == (4, [])
    counts = harness.sub().counts
    assert (counts.written_off, counts.dropped, counts.ok, counts.failed) == (3, 3, 1, 1)
    assert harness.sub().window.records == 0


def test_what_had_ended_is_done_and_is_not_written_off() -> None:
    harness, worker = dying(*[record(at, "k") for at in range(4)], on_evict="ack")
    worker.finish()
    worker.start()
    evicted(harness, worker)
    counts = harness.sub().counts
    assert (counts.ok, counts.written_off) == (1, 2)


def test_only_what_is_leased_is_written_off_and_what_waits_runs_at_the_others() -> None:
    records = [record(at, "k") for at in range(40)]
    harness, worker = dying(*records, on_evict="ack", leases=10)
    assert harness.sub().leased == 10
    evicted(harness, worker)
    harness.later(1.0)
    assert harness.work() == [0, *range(10, 40)]
    assert harness.sub().counts.written_off == 9


def test_a_head_that_was_about_to_run_again_is_written_off_too() -> None:
    harness, worker = dying(record(0, "k"), on_evict="ack")
    worker.finish(ERROR)
    harness.deliver()
    while worker.busy:
        worker.step()
        harness.deliver()
    harness.later(1.0)
    assert harness.sub().leased == 1
    evicted(harness, worker)
    assert harness.work() == []
    assert harness.sub().counts.written_off == 1
    assert harness.committed() == (1, [])


def test_a_member_that_leaves_is_never_written_off() -> None:
    harness, worker = dying(record(0, "k"), record(1, "k"), on_evict="ack")
    worker.finish()
    harness.tell(Tick(harness.pool.progress(), departed=[("default", worker.index)]))
    harness.deliver()
    assert harness.work() == [1]
    assert harness.sub().counts.written_off == 0


def test_it_is_said_what_is_lost() -> None:
    harness, worker = dying(*[record(at, "k") for at in range(4)], on_evict="ack")
    evicted(harness, worker)
    (notice,) = [each for each in harness.notices if "could not be restarted" in each.text]
    assert notice.level is Level.ERROR
    assert "its leased records (at most 4 records) count as done and are lost" in notice.text


@pytest.mark.parametrize("on_evict", ["redeliver", "ack"])
def test_the_position_that_moves_with_it_is_committed_at_once(on_evict: OnEvict) -> None:
    seldom = CommitPolicy(interval=3_600.0, idle=3_600.0)
    harness, worker = dying(*[record(at, "k") for at in range(4)], on_evict=on_evict, commit=seldom)
    harness.commit()
    harness.now += 1.0
    worker.finish()
    worker.start()
    assert not harness.core.commit_wanted(harness.now)
    evicted(harness, worker)
    assert harness.core.commit_wanted(harness.now)
    (commit,) = harness.commit()
    assert commit.entries[P0].position == 1
    harness.answer(commit)
    harness.now += 10.0
    assert not harness.core.commit_wanted(harness.now), "the next one is at its time"


def test_one_that_comes_back_within_six_heartbeats_keeps_its_keys() -> None:
    harness, worker = dying(*[record(at, "k") for at in range(4)], on_evict="ack")
    evicted(harness, worker, beats=EVICT_AFTER - 2)
    harness.pool.replaceable = True
    harness.beat()
    harness.deliver()
    assert harness.owner_of(record(9, "k")) is worker
    assert worker.alive
    assert not [each for each in harness.seen if isinstance(each, Recall)]
    harness.later(1.0)
    assert harness.work() == [0, 1, 2, 3]
    assert harness.sub().counts.written_off == 0

"""Without reliability: a full worker drops, nothing is tried again, nothing is committed."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.outcomes import Failure
from kafka_keyshared.core.leasing.drop_when_full import capacity
from kafka_keyshared.core.status import builder
from kafka_keyshared.core.status.environment import StatusInputs
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.model import Drop
from tests.support.core_harness import Harness
from tests.support.records import ERROR, GIVE_UP, NOT_NOW, P0, FakeRecord, record


def lossy(workers: int = 1, *, holds: int = 4, **more: object) -> Harness:
    harness = Harness(
        SubscriptionSettings(
            workers=worker_names(workers),
            prefetch_records=holds,
            delivery="at-most-once",
            **more,  # type: ignore[arg-type]
        )
    )
    harness.assign()
    return harness


def test_a_worker_that_is_full_drops_what_comes_for_it_and_keeps_what_it_has() -> None:
    harness = lossy()
    harness.fetch(*[record(offset) for offset in range(3)])
    harness.worker().start()
    harness.fetch(*[record(offset) for offset in range(3, 9)])
    worker = harness.sub().workers[0]
    assert worker.shed == 5
    assert harness.said("worker-0 is full: 5 records dropped")
    harness.worker().finish()
    assert harness.work() == [1, 2, 3]
    harness.fetch(record(9))
    assert harness.work() == [9]


def test_only_the_worker_that_is_full_drops() -> None:
    harness = lossy(2)
    keys = [b"key-%d" % number for number in range(50)]
    mine = [key for key in keys if harness.owner_of(record(0, key)).index == 0]
    other = next(key for key in keys if key not in mine)
    harness.fetch(*[record(offset, mine[0]) for offset in range(10)], record(10, other))
    shed = [worker.shed for worker in harness.sub().workers.values()]
    assert shed == [6, 0]
    assert sorted(harness.work()) == [0, 1, 2, 3, 10]


def test_records_without_a_key_are_dropped_when_every_worker_is_full() -> None:
    harness = lossy(2, holds=2)
    harness.fetch(*[record(offset, None) for offset in range(4)])
    assert [worker.shed for worker in harness.sub().workers.values()] == [0, 0]
    harness.fetch(*[record(offset, None) for offset in range(4, 7)])
    assert sum(worker.shed for worker in harness.sub().workers.values()) == 3
    assert sorted(harness.work()) == [0, 1, 2, 3]


def test_workers_share_the_window_so_that_it_is_never_full() -> None:
    harness = lossy(4, holds=1_000, window_records=100)
    assert capacity(harness.sub()) == 25
    harness.fetch(*[record(offset, b"%d" % offset) for offset in range(2_000)])
    assert harness.sub().window.records <= 100
    harness.fetch(*[record(offset, b"%d" % offset) for offset in range(2_000, 2_010)])
    assert harness.sub().window.records <= 100


def test_what_does_not_fit_in_the_windows_bytes_is_dropped_too() -> None:
    harness = lossy(1, holds=100, window_bytes=1_000)
    harness.fetch(*[FakeRecord(P0, offset, b"k", size=100) for offset in range(40)])
    assert harness.core.room() > 0, "what comes is always fetched"
    assert harness.sub().workers[0].shed > 0


@pytest.mark.parametrize("failure", [ERROR, NOT_NOW, GIVE_UP])
def test_what_fails_is_dropped_and_its_key_goes_on(failure: Failure) -> None:
    harness = lossy(holds=10)
    harness.fetch(*[record(offset) for offset in range(3)])
    assert harness.work({0: [failure]}) == [0, 1, 2]
    assert harness.sub().counts.dropped == 1
    assert harness.publishes == []
    assert harness.core.unsettled_count() == 0


def test_what_waits_for_a_slot_to_drain_is_bounded_too() -> None:
    """Or one record that takes long would fill the window for all, whoever has joined."""
    probe, harness = lossy(2), lossy(2)
    probe.tell(ev.Join("default", "worker-2"))
    keys = [b"key-%d" % number for number in range(50)]
    moving = next(key for key in keys if probe.owner_of(record(0, key)).index == 2)
    harness.fetch(record(0, moving))
    old = harness.owner_of(record(0, moving))
    assert old.start() is not None
    harness.tell(ev.Join("default", "worker-2"))
    harness.fetch(*[record(offset, moving) for offset in range(1, 10)])
    assert len(harness.sub().draining.row) == 4
    new = harness.sub().workers[2]
    assert new.shed == 5
    harness.fetch(record(10, moving))
    assert new.shed == 6
    old.finish()
    assert harness.work() == [1, 2, 3, 4]
    assert harness.core.unsettled_count() == 0


def test_nothing_is_ever_committed() -> None:
    harness = lossy(holds=10)
    harness.fetch(*[record(offset) for offset in range(3)])
    harness.work({1: [Drop()]})
    harness.later(10.0)
    assert not harness.core.commit_wanted(harness.now)
    assert harness.commit() == []
    assert harness.commit(final=True) == []
    assert harness.revoke(P0) == []
    harness.assign(P0)
    assert harness.revoke(P0, commit=False) == []


def test_no_settled_set_stops_a_partition_whatever_is_left_open() -> None:
    """There is none: what is far ahead of a record that takes long is neither parked nor paused."""
    harness = lossy(2, holds=4)
    keys = [b"key-%d" % number for number in range(50)]
    slow = next(key for key in keys if harness.owner_of(record(0, key)).index == 0)
    fast = next(key for key in keys if harness.owner_of(record(0, key)).index == 1)
    harness.fetch(record(0, slow))
    assert harness.worker(0).start() is not None
    for number in range(1, 200):
        harness.fetch(record(number * 1_000, fast))
        assert harness.worker(1).start() is not None
        harness.worker(1).finish()
        harness.deliver()
    assert harness.paused == set()
    assert not harness.sub().parking


def test_a_key_that_cannot_be_read_is_dropped() -> None:
    harness = lossy(null_keys="reject")
    harness.fetch(record(0, None), record(1))
    assert harness.work() == [1]
    assert harness.core.unsettled_count() == 0


def test_the_status_has_what_each_worker_has_dropped_and_no_position() -> None:
    harness = lossy()
    harness.fetch(*[record(offset) for offset in range(9)])
    around = StatusInputs(
        wall=0.0,
        started_at=0.0,
        phase="running",
        joined=True,
        group="g",
        pool="thread",
        polled_at=None,
        poll_used=0.0,
        log_ends={P0: 20},
    )
    seen = builder.take(harness.core, harness.pool.progress(), harness.now, around)
    (worker,) = seen.subscriptions[0].workers
    assert worker.dropped == 5
    assert seen.subscriptions[0].processed["orders"]["dropped"] == 5
    assert seen.partitions[0].safe is None
    assert seen.partitions[0].fetched == 9


def test_a_flood_of_drops_is_few_lines() -> None:
    harness = lossy()
    for number in range(100):
        harness.fetch(*[record(offset) for offset in range(number * 10, number * 10 + 10)])
    assert sum("is full" in notice.text for notice in harness.notices) == 1
    harness.beat(30)
    assert harness.said("times a worker was full and records dropped")

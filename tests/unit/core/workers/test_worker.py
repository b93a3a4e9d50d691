"""The life of a worker: who gets leases when, and where keys go as workers come and go."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.core.worker_changes.worker_lifecycle import EVICT_AFTER
from kafka_keyshared.core.workers.worker import Worker, WorkerState
from tests.support.core_harness import Harness
from tests.support.records import ERROR, record

TWO = ("worker-0", "worker-1")
KEYS = [f"key-{number}" for number in range(60)]


@pytest.mark.parametrize("state", WorkerState)
def test_who_leaves_gets_no_leases(state: WorkerState) -> None:
    worker = Worker("worker-0", 0, 100, state=state)
    assert bool(worker.room()) is (state in (WorkerState.JOINING, WorkerState.ACTIVE))


# --- joining ---


def joined(harness: Harness, name: str = "worker-2") -> Worker:
    harness.tell(ev.Join("default", name))
    (worker,) = (each for each in harness.sub().workers.values() if each.name == name)
    return worker


def test_a_worker_that_joins_takes_its_part_of_the_keys_and_only_from_their_owners() -> None:
    harness = Harness(SubscriptionSettings(workers=TWO))
    harness.assign()
    before = {key: harness.owner_of(record(0, key)).index for key in KEYS}
    new = joined(harness)
    after = {key: harness.owner_of(record(0, key)).index for key in KEYS}
    moved = {key for key in KEYS if before[key] != after[key]}
    assert moved
    assert len(moved) < len(KEYS)
    assert {after[key] for key in moved} == {new.id}
    assert new.state is WorkerState.ACTIVE, "nobody had anything of it"
    assert cmd.StartWorker("default", new.id, "worker-2") in harness.seen


@pytest.mark.parametrize("one_lease", [False, True])
def test_a_lane_that_fails_while_its_key_moves_is_retried_at_the_new_worker_in_order(
    one_lease: bool,
) -> None:
    settings = SubscriptionSettings(
        workers=TWO, prefetch_records=4, one_in_flight_per_key=one_lease
    )
    harness = Harness(settings)
    moving = key_that_moves(TWO)
    harness.assign()
    harness.fetch(*[record(offset, moving) for offset in range(4)])
    old = harness.owner_of(record(0, moving))
    assert old.start() is not None
    new = joined(harness)
    old.finish(ERROR)
    assert harness.work() == []
    harness.later(0.2)
    again = harness.worker(new.id).start()
    assert again is not None
    assert again.offset() == 0
    harness.worker(new.id).finish()
    assert harness.work() == [1, 2, 3]
    assert harness.committed() == (4, [])


def test_a_key_with_leases_in_two_slices_has_drained_when_both_are_over() -> None:
    harness = Harness(SubscriptionSettings(workers=TWO, prefetch_records=4))
    moving = key_that_moves(TWO)
    harness.assign()
    harness.fetch(*[record(offset, moving) for offset in range(4)])
    old = harness.owner_of(record(0, moving))
    assert len(old.slices()) == 2
    assert old.start() is not None
    harness.pool.answers_later = harness.pool.hesitates = lambda: True
    new = joined(harness)
    old.finish()
    assert old.start() is not None
    old.finish()
    old.step()  # the first slice is over; of the second nobody knows yet what of it has started
    harness.deliver()
    assert (harness.sub().draining.count, new.leased) == (1, 0)
    harness.pool.answers_later = harness.pool.hesitates = lambda: False
    assert harness.work() == [2, 3]
    assert harness.sub().draining.count == 0
    assert harness.committed() == (4, [])


def test_other_keys_go_on_at_their_workers_while_one_joins() -> None:
    harness = Harness(SubscriptionSettings(workers=TWO))
    moving = key_that_moves(TWO)
    harness.assign()
    harness.fetch(record(0, moving))
    old = harness.owner_of(record(0, moving))
    assert old.start() is not None
    joined(harness)
    other = next(
        key for key in KEYS if harness.owner_of(record(0, key)).index not in (2, old.index)
    )
    harness.fetch(record(1, other), record(2, other))
    worker = harness.owner_of(record(1, other))
    for offset in (1, 2):
        running = worker.start()
        assert running is not None
        assert running.offset() == offset
        worker.finish()
        harness.deliver()


def test_a_worker_that_dies_while_it_joins_leaves_its_keys_to_the_others() -> None:
    harness = Harness(SubscriptionSettings(workers=TWO))
    moving = key_that_moves(TWO)
    harness.assign()
    harness.fetch(record(0, moving), record(1, moving))
    old = harness.owner_of(record(0, moving))
    assert old.start() is not None
    new = joined(harness)
    harness.worker(new.id).die()
    harness.pool.replaceable = False
    harness.beat(EVICT_AFTER)
    assert new.state is WorkerState.GONE
    assert harness.owner_of(record(0, moving)) is old
    old.finish()
    assert harness.work() == [1]
    assert harness.committed() == (2, [])


def key_that_moves(workers: tuple[str, ...]) -> str:
    """A key that goes to the worker that joins."""
    trial = Harness(SubscriptionSettings(workers=workers))
    trial.assign()
    new = joined(trial)
    return next(key for key in KEYS if trial.owner_of(record(0, key)).index == new.id)

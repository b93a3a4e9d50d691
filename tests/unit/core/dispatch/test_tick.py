"""The heartbeat's five phases: long runners, poison, retries, dead workers, room."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.contract.commands import (
    AbandonWorker,
    Command,
    Halt,
    LeaseSlice,
    Recall,
    ReplaceWorker,
)
from kafka_keyshared.core.contract.events import Reported, SliceEnded, Tick
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.dispatch import tick
from kafka_keyshared.core.lanes.closed import LaneState
from kafka_keyshared.core.records.lane_identity import lane_of
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.core.worker_changes.worker_lifecycle import EVICT_AFTER
from kafka_keyshared.executors.notice_text import Level
from tests.support.core_harness import Harness
from tests.support.records import ERROR, P0, P1, record

TWO = ("worker-0", "worker-1")


def running(settings: SubscriptionSettings, *offsets: int) -> Harness:
    """A member of which one worker runs the first of these records."""
    harness = Harness(settings)
    harness.assign(P0, P1)
    harness.fetch(*[record(offset) for offset in offsets or (0,)])
    harness.owner_of(record(0)).start()
    return harness


# --- 1: long runners ---


def test_after_30_s_a_warning_names_the_record_its_key_and_its_worker() -> None:
    harness = running(SubscriptionSettings(), 0, 1)
    harness.beat(60)
    assert harness.notices == []
    harness.beat(30)
    (notice,) = harness.notices
    assert "orders-0@0 (key b'k') has been running on worker-0 for 30 s" in notice.text
    assert notice.about == (P0, 0, b"k")


def test_what_runs_for_long_is_named_by_the_key_that_it_goes_by() -> None:
    harness = Harness(SubscriptionSettings(key_of=lambda _: b"of the header"))
    harness.assign()
    harness.fetch(record(0), record(1))
    assert harness.worker().start() is not None
    harness.beat(62)
    harness.worker().finish()
    harness.worker().start()
    harness.beat(2)
    for notice, text in zip(harness.notices, ("has been running", "ended after"), strict=True):
        assert f"orders-0@0 (key b'of the header') {text}" in notice.text
        assert notice.about == (P0, 0, b"of the header")


def test_one_that_does_not_end_is_named_again_and_again_ever_more_seldom() -> None:
    harness = running(SubscriptionSettings(), 0, 1)
    harness.beat(2 * 45 * 60)
    said = [each.text.partition(" for ")[2].partition(";")[0] for each in harness.notices]
    assert said == ["30 s", "60 s", "2 min", "5 min", "10 min", "20 min", "30 min", "40 min"]
    assert all(each.running == ("default", 0, 0, 0) for each in harness.notices), "where it stands"


def test_a_member_is_not_said_to_run_what_it_has_not_settled() -> None:
    """It may have lost it: its thread may have ended."""
    harness = running(SubscriptionSettings(individually=True), 0)
    harness.beat(90)
    (notice,) = harness.notices
    name = "orders-0@0 (key b'k')"
    assert notice.text == f"worker-0 has had {name} for 30 s, unsettled; its key waits"


def test_a_record_that_was_named_is_named_again_when_it_ends_with_its_time() -> None:
    harness = running(SubscriptionSettings(), 0, 1)
    harness.beat(90)
    harness.worker().finish()
    harness.worker().start()
    harness.beat(2)
    assert [each.text for each in harness.notices][1:] == ["orders-0@0 (key b'k') ended after 45 s"]
    assert harness.notices[1].level is Level.INFO


def test_a_worker_that_goes_from_record_to_record_is_never_named() -> None:
    harness = running(SubscriptionSettings(), *range(30))
    for _ in range(25):
        harness.beat(50)
        harness.worker().finish()
        harness.worker().start()
    assert harness.notices == []


def test_a_recall_does_not_make_the_running_record_look_young_again() -> None:
    harness = running(SubscriptionSettings(), 0, 1, 2)
    harness.beat(40)
    harness.revoke(P1)  # takes back all that has not started
    harness.beat(25)
    assert harness.said("orders-0@0 (key b'k') has been running on worker-0 for 30 s")


# --- 2 and 3: poison and retries ---


def test_a_lane_whose_attempts_ran_out_undecided_is_decided_on_at_the_next_beat() -> None:
    settings = SubscriptionSettings(
        retry=RetryPolicy(attempts=3, backoff=900.0), on_exhausted="drop"
    )
    harness = Harness(settings)
    harness.assign(P0)
    harness.fetch(record(0), record(1))
    harness.work({0: [ERROR]})
    closed = harness.sub().closed.get(lane_of(record(0)))
    assert closed is not None
    closed.failures = 3  # as if the decision had been missed
    harness.beat()
    assert harness.sub().counts.dropped == 1
    assert harness.work() == [1]
    assert harness.core.next_due() is None


def test_a_retry_whose_timer_nobody_heard_is_handed_out_at_the_next_beat() -> None:
    harness = Harness()
    harness.assign(P0)
    harness.fetch(record(0))
    harness.work({0: [ERROR]})
    harness.beat()
    assert harness.work() == [0]


# --- 4: dead workers ---


def test_a_dead_worker_is_replaced_under_its_name_and_what_it_ran_is_a_failed_attempt() -> None:
    harness = running(SubscriptionSettings(), 0, 1, 2)
    harness.worker().die()
    harness.beat()
    assert ReplaceWorker("default", 0) in harness.seen
    assert harness.work() == []
    assert harness.sub().counts.failed == 1
    harness.later(0.2)
    assert harness.work() == [0, 1, 2]
    assert harness.committed() == (3, [])


def test_a_replaced_worker_still_sets_aside_what_follows_in_a_failed_lane() -> None:
    harness = running(SubscriptionSettings(), 0, 1, 2)
    harness.worker().finish(ERROR)
    harness.worker().die()
    harness.beat()
    assert harness.work() == []
    harness.later(0.2)
    assert harness.work() == [0, 1, 2]


def test_after_six_beats_a_dead_worker_is_evicted_and_its_keys_run_elsewhere_in_order() -> None:
    harness = running(SubscriptionSettings(workers=TWO), *range(4))
    dead = harness.owner_of(record(0))
    other = harness.worker(1 - dead.index)
    dead.die()
    harness.pool.replaceable = False
    harness.beat(EVICT_AFTER - 1)
    assert AbandonWorker("default", dead.index) not in harness.seen
    harness.beat()
    assert AbandonWorker("default", dead.index) in harness.seen
    assert harness.said("could not be restarted in 6 heartbeats")
    harness.fetch(record(4))
    assert harness.work() == []
    assert harness.owner_of(record(0)) is other
    harness.later(0.2)
    assert harness.work() == [0, 1, 2, 3, 4]
    assert harness.committed() == (5, [])


def test_a_worker_that_dies_of_record_after_record_comes_back_each_time() -> None:
    """It is no worker that cannot be restarted: what it dies of has its attempts."""
    harness = Harness(SubscriptionSettings(retry=RetryPolicy(attempts=1), on_exhausted="drop"))
    harness.assign()
    harness.fetch(*(record(at, f"key-{at}") for at in range(2 * EVICT_AFTER)))
    for _ in range(2 * EVICT_AFTER):
        assert harness.worker().start() is not None
        harness.worker().die()
        harness.beat()
    assert not any(isinstance(each, Halt) for each in harness.seen)
    assert harness.work() == []
    assert harness.committed() == (2 * EVICT_AFTER, [])


def test_the_keys_of_an_evicted_worker_stay_until_its_last_lease_has_been_reported() -> None:
    harness = running(SubscriptionSettings(workers=TWO), *range(4))
    dead = harness.owner_of(record(0))
    dead.die()
    harness.pool.replaceable = False
    harness.beat(EVICT_AFTER)
    assert harness.sub().draining.count == 1
    assert harness.worker(1 - dead.index).inbox == type(dead.inbox)()
    harness.deliver()
    assert harness.sub().draining.count == 0


def test_a_fence_that_an_evicted_worker_never_passes_closes_no_lane_for_ever() -> None:
    harness = running(SubscriptionSettings(workers=TWO), 0, 1)
    dead = harness.owner_of(record(0))
    dead.finish(ERROR)
    harness.deliver()
    dead.die()
    harness.pool.replaceable = False
    harness.beat(EVICT_AFTER)
    harness.later(1.0)
    assert harness.work() == [0, 1]


def test_an_eviction_puts_what_waits_in_a_lane_before_what_its_key_has_in_the_backlog() -> None:
    """Found by the adversary: the backlog went to the other worker first."""
    settings = SubscriptionSettings(
        workers=TWO, prefetch_records=2, retry=RetryPolicy(attempts=1), on_exhausted="drop"
    )
    harness = running(settings, *range(4))  # two are leased, two wait
    dead = harness.owner_of(record(0))
    dead.finish(ERROR)
    harness.deliver()
    dead.die()
    harness.pool.replaceable = False
    harness.beat(EVICT_AFTER)
    assert harness.work() == [1, 2, 3]


def test_of_two_workers_evicted_at_once_each_keeps_its_keys_until_it_has_reported() -> None:
    workers = ("worker-0", "worker-1", "worker-2")
    harness = Harness(SubscriptionSettings(workers=workers))
    harness.assign()
    owners = {harness.owner_of(record(0, key)).index: key for key in map(str, range(100))}
    first, second = owners[0], owners[1]
    harness.fetch(record(0, first), record(1, second))
    for index in (0, 1):
        harness.worker(index).die()
    harness.pool.replaceable = False
    harness.beat(EVICT_AFTER)
    harness.deliver(1)
    harness.fetch(record(2, second))
    started = harness.work()
    assert started.index(1) < started.index(2)


def test_an_idle_worker_is_evicted_at_once_and_only_its_keys_move() -> None:
    harness = Harness(SubscriptionSettings(workers=(*TWO, "worker-2")))
    harness.assign(P0)
    keys = [str(number) for number in range(60)]
    before = {key: harness.owner_of(record(0, key)).index for key in keys}
    harness.worker(1).die()
    harness.pool.replaceable = False
    harness.beat(EVICT_AFTER)
    after = {key: harness.owner_of(record(0, key)).index for key in keys}
    assert 1 in before.values()
    assert 1 not in after.values()
    assert all(after[key] == index for key, index in before.items() if index != 1)


def test_when_a_member_has_left_its_keys_run_at_the_others_in_order() -> None:
    harness = Harness(SubscriptionSettings(workers=TWO))
    harness.assign(P0)
    harness.fetch(*[record(offset) for offset in range(4)])
    before = harness.owner_of(record(0))
    before.start()
    before.finish()
    harness.tell(Tick(harness.pool.progress(), departed=[("default", before.index)]))
    harness.deliver()
    after = harness.owner_of(record(0))
    assert after is not before
    started = []
    while (item := after.start()) is not None:
        started.append(item.offset())
        after.finish()
    assert started == [1, 2, 3]
    assert harness.committed() == (4, [])


def test_without_another_worker_a_dead_one_ends_the_instance() -> None:
    harness = running(SubscriptionSettings())
    harness.worker().die()
    harness.pool.replaceable = False
    harness.beat(EVICT_AFTER)
    assert any("there is no other worker" in reason for reason in harness.halted)


def test_a_worker_that_came_back_starts_counting_anew() -> None:
    harness = running(SubscriptionSettings(workers=TWO))
    harness.pool.replaceable = False
    dead = harness.owner_of(record(0))
    for _ in range(3):
        dead.die()
        harness.beat(EVICT_AFTER - 1)
        dead.alive = True
        harness.beat()
    assert not any(isinstance(command, AbandonWorker) for command in harness.seen)


def leased(commands: list[Command]) -> list[tuple[int, int]]:
    """What is leased to whom: each worker and offset."""
    shares = [each.slice for each in commands if isinstance(each, LeaseSlice)]
    return [(slice_.worker, each.offset()) for slice_ in shares for each in slice_.records]


@pytest.mark.parametrize("evicted", [False, True])
def test_an_eviction_leases_nothing_between_its_recall_and_the_answer(evicted: bool) -> None:
    """What comes back is older than what waits of its keys; all other keys go on meanwhile."""
    retry = RetryPolicy(attempts=9, backoff=60.0, backoff_max=60.0, jitter=0.0)
    harness = Harness(SubscriptionSettings(workers=TWO, prefetch_records=2, retry=retry))
    harness.assign(P0)
    keys = [f"key-{number}" for number in range(50)]
    first, second = (
        next(key for key in keys if harness.owner_of(record(0, key)).index == index)
        for index in (0, 1)
    )
    harness.fetch(record(0, second))
    harness.work({0: [ERROR]})
    harness.fetch(*[record(offset, first) for offset in range(1, 6)])
    harness.worker(0).start()
    running, _ = harness.worker(0).slices()
    gone = [("default", 0)] if evicted else []
    for _ in range(EVICT_AFTER - 1):
        harness.core.handle(Tick({}, gone), harness.now)
    harness.now += 60.0
    commands = harness.core.handle(Tick({}, gone), harness.now)
    assert any(isinstance(each, Recall) for each in commands) is evicted
    assert leased(commands) == [(1, 0)], "the retry of the other worker's key"
    assert not any(isinstance(each, Halt) for each in commands)
    commands = harness.core.handle(Reported([SliceEnded(running.id, 0.1)]), harness.now)
    assert leased(commands) == ([] if evicted else [(0, 3)])


def test_what_a_dead_worker_was_about_to_run_runs_elsewhere_in_order() -> None:
    """With one lease per key a record may hold its lane's lease before its worker has room."""
    harness = Harness(SubscriptionSettings(workers=TWO, one_in_flight_per_key=True))
    harness.assign(P0)
    keys = [f"key-{number}" for number in range(50)]
    mine, other = [key for key in keys if harness.owner_of(record(0, key)).index == 0][:2]
    harness.fetch(record(0, mine), record(1, other), record(2, mine), record(3, mine))
    worker = harness.worker(0)
    worker.start()
    worker.finish()
    worker.start()
    worker.die()
    harness.pool.replaceable = False
    harness.beat(EVICT_AFTER)
    started = harness.work()
    harness.later(60.0)
    started += harness.work()
    assert [offset for offset in started if offset != 1] == [2, 3]
    assert started.count(1) == 1
    assert harness.committed() == (4, [])


# --- 5: room ---


def test_room_is_what_the_window_has_left() -> None:
    harness = Harness(SubscriptionSettings(window_records=5))
    harness.assign(P0)
    harness.fetch(record(0), record(1))
    assert tick.fetch(harness.sub()) == harness.core.room() == 3


def test_a_lane_that_opens_is_closed_no_longer_in_any_phase() -> None:
    harness = Harness()
    harness.assign(P0)
    harness.fetch(record(0))
    harness.work({0: [ERROR]})
    closed = harness.sub().closed.get(lane_of(record(0)))
    assert closed is not None
    assert closed.state is LaneState.WAITING
    harness.beat()
    harness.work()
    harness.beat(3)
    assert len(harness.sub().closed) == 0

"""What a status says of workers that share what waits: shards, hot keys and detached records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest

from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.lanes.closed import LaneState
from kafka_keyshared.core.subscription.hot_keys import FADES, NAMED, Heat, written
from kafka_keyshared.core.subscription.settings import (
    DETACH_AFTER,
    SHARDS_LEAST,
    SubscriptionSettings,
)
from kafka_keyshared.core.workers.shards import Shard, SharedRow, shard_of
from kafka_keyshared.executors.notice_text import Level
from kafka_keyshared.hashing import slot_of
from kafka_keyshared.lab.simulator.stepped import SteppedWorker
from kafka_keyshared.shared_status import HotKey, SharedStatus
from kafka_keyshared.status import SubscriptionStatus
from tests.support.core_harness import Harness
from tests.support.core_status import status_of
from tests.support.records import ERROR, P0, P1, FakeRecord, record

LONG = 4 * DETACH_AFTER

SHARED = SubscriptionSettings(
    workers=("a", "b", "c", "d"),
    pooled=True,
    prefetch_records=4,
    retry=RetryPolicy(attempts=5, backoff=10.0, jitter=0.0),
)

HOT = b"hot"
OWN_SHARD = shard_of(slot_of(HOT), SHARDS_LEAST)


def others() -> Iterator[bytes]:
    """Keys of other shards than that of the hot one."""
    keys = (b"key-%d" % number for number in count())
    return (key for key in keys if shard_of(slot_of(key), SHARDS_LEAST) != OWN_SHARD)


class Watched(Harness):
    """Four workers that share all keys, and what their status says."""

    def __init__(self, settings: SubscriptionSettings = SHARED) -> None:
        super().__init__(settings)
        self.assign()
        self.offsets = count()

    def come(self, *keys: bytes) -> list[FakeRecord]:
        """Fetch a record of each key."""
        new = [record(next(self.offsets), key) for key in keys]
        self.fetch(*new)
        return new

    def run(self, key: bytes, most: int) -> None:
        """Have workers end so many records of a key, and all of others that they come to."""
        done, stays = 0, set[int]()
        while done < most and len(stays) < len(self.pool.workers):
            for number, worker in enumerate(self.pool.workers.values()):
                item = worker.start() if done < most else None
                if item is None:
                    stays.add(number)
                    continue
                stays.discard(number)
                worker.finish()
                done += item.key() == key
            self.deliver()

    def begin(self) -> SteppedWorker:
        """Have a worker begin with a record, and return it."""
        for _ in range(10):
            for worker in self.pool.workers.values():
                if worker.start() is not None:
                    return worker
            self.deliver()
        raise AssertionError("nothing may start")

    def subscription(self) -> SubscriptionStatus:
        """What the status says of the subscription."""
        return status_of(self).subscriptions[0]

    def shown(self) -> SharedStatus:
        """What it says of what the workers share."""
        found = self.subscription().shared
        assert found is not None
        return found

    def hot(self) -> HotKey:
        """The only hot key."""
        (found,) = self.shown().hot_keys
        return found


def test_where_workers_own_their_keys_there_are_no_shards() -> None:
    harness = Harness(replace(SHARED, pooled=False))
    assert status_of(harness).subscriptions[0].shared is None


def test_ready_shards_and_those_at_workers_are_counted() -> None:
    watched = Watched()
    keys = others()
    found = watched.shown()
    assert (found.shards, found.ready, found.held) == (SHARDS_LEAST, 0, 0)
    taken = {shard_of(slot_of(key := next(keys)), SHARDS_LEAST): key for _ in range(60)}
    watched.come(*taken.values())
    sub = watched.subscription()
    assert sub.shared is not None
    assert sub.shared.held == 16 == sum(worker.shards for worker in sub.workers)
    assert sub.shared.ready == len(taken) - 16
    watched.work()
    found = watched.shown()
    assert (found.ready, found.held) == (0, 0)


def test_a_hot_key_has_a_share_a_rate_and_a_capacity() -> None:
    watched = Watched()
    keys = others()
    watched.come(*[HOT] * 100)
    watched.beat()
    assert watched.hot().capacity is None, "nobody can know yet"
    for _ in range(20):
        watched.come(*[HOT] * 30, *(next(keys) for _ in range(10)))
        watched.run(HOT, 10)
        watched.beat()
    found = watched.hot()
    assert (found.slot, found.key, found.partitions) == (slot_of(HOT), "hot", (P0,))
    assert found.share == pytest.approx(0.75, abs=0.02)
    assert found.rate == pytest.approx(60, rel=0.02)
    assert found.capacity == pytest.approx(20, rel=0.02)
    assert found.seconds == 10.0
    assert found.waiting == pytest.approx(500, abs=10), "but for what is leased"


def test_what_waits_in_a_closed_lane_waits_all_the_same() -> None:
    """The slot stays a shard of its own meanwhile: it is no less hot."""
    watched = Watched()
    (first, *_) = watched.come(*[HOT] * 100)
    watched.beat()
    watched.work({first.offset(): [ERROR]})
    watched.beat()
    (lane,) = watched.sub().closed.lanes.values()
    assert watched.hot().waiting == len(lane.aside) + len(lane.queue) == 99
    for _ in range(4):
        watched.come(*[HOT] * 10)
        watched.beat()
    assert watched.hot().waiting >= 130
    assert watched.hot().rate == pytest.approx(16, abs=1)
    watched.later(10.0)
    watched.run(HOT, 5)
    watched.beat()
    assert not watched.sub().closed.lanes
    assert watched.hot().waiting >= 120
    assert watched.hot().rate < 5, "what comes back from the lane has not arrived again"
    watched.work()
    watched.beat()
    assert watched.shown().hot == 0
    watched.core.check()


def test_a_key_of_which_nothing_waits_is_hot_no_more() -> None:
    watched = Watched()
    watched.come(*[HOT] * 100)
    watched.beat()
    assert (watched.shown().hot, watched.shown().shards) == (1, SHARDS_LEAST + 1)
    watched.work()
    watched.beat()
    found = watched.shown()
    assert (found.hot, found.hot_keys, found.shards) == (0, (), SHARDS_LEAST)


def test_the_five_hottest_keys_are_named_and_all_are_counted() -> None:
    watched = Watched()
    shards: dict[int, bytes] = {}
    for key in others():
        shards.setdefault(shard_of(slot_of(key), SHARDS_LEAST), key)
        if len(shards) == NAMED + 2:
            break
    for number, key in enumerate(shards.values()):
        watched.come(*[key] * (100 + 10 * number))
    watched.beat()
    found = watched.shown()
    assert found.hot == NAMED + 2
    hottest = [key.decode() for key in shards.values()][: 1 - NAMED - 2 : -1]
    assert [each.key for each in found.hot_keys][: len(hottest)] == hottest
    assert len(found.hot_keys) == NAMED


def test_what_was_long_ago_counts_for_little() -> None:
    row = SharedRow(lambda each: each.key(), slot_of, SHARDS_LEAST)
    heat = Heat(Shard(row, 0, 7, HOT), 0.0)
    for arrived in (100, 10):
        for _ in range(round(4 * FADES / 0.5)):
            heat.shard.taken = arrived
            heat.beat(0, 2 * arrived, 0.5)
    assert heat.rate == pytest.approx(20, rel=0.2)
    assert heat.came / heat.every == pytest.approx(0.5)
    assert heat.capacity is None, "nothing of it had to wait"


class Written(FakeRecord):
    """A record that was written at that time, in milliseconds."""

    __slots__ = ("at",)

    def __init__(self, at: int, kind: int = 1) -> None:
        super().__init__(P0, at, HOT)
        self.at = kind, at

    def timestamp(self) -> tuple[int, int]:
        return self.at


def test_timestamps_tell_how_fast_a_key_grows_while_it_is_held_back() -> None:
    assert written([Written(at * 10) for at in range(1_001)]) == pytest.approx(100, rel=0.1)
    assert written([Written(at) for at in range(900)]) == 0.0, "too short to tell"
    assert written([Written(at * 10, kind=0) for at in range(1_001)]) == 0.0
    assert written([]) == 0.0


def test_a_hot_key_whose_records_are_detached_holds_its_partition_back_without_an_error() -> None:
    """What waits is in its shard and in its closed lane in turns, which the window does not see."""
    watched = Watched(replace(SHARED, prefetch_records=100, window_records=400))
    watched.assign(P1)
    watched.come(*[HOT] * 250)
    watched.beat()
    states = set()
    for _ in range(40):
        worker = watched.begin()
        for _ in range(4):
            watched.look(0.05)
            states.add(tuple(each.state for each in watched.sub().closed.lanes.values()))
        worker.finish()
        watched.deliver()
        watched.beat()
        assert watched.core.holds.reasons(P0) == (Reason.WAITING,)
    assert states == {(), (LaneState.STUCK,)}
    assert not [each for each in watched.notices if each.level is Level.ERROR]
    assert watched.hot().capacity == pytest.approx(1 / 0.7, rel=0.1)
    watched.work()
    watched.beat()
    assert not watched.core.holds.reasons(P0)


def test_of_a_partition_that_waits_for_a_detached_record_that_is_said() -> None:
    watched = Watched(replace(SHARED, prefetch_records=100, window_records=400))
    watched.assign(P1)
    watched.come(*[HOT] * 250)
    watched.begin()
    watched.look(LONG)
    watched.look(LONG)
    watched.beat()
    assert watched.core.holds.reasons(P0) == (Reason.WAITING,)
    assert watched.said("of it wait for orders-0@0 (key b'hot'), which is detached; other partit")


def test_a_detached_record_is_named_with_who_runs_it_and_what_waits_for_it() -> None:
    watched = Watched(replace(SHARED, workers=("a",)))
    watched.come(HOT, b"other", HOT, HOT)
    watched.worker().start()
    watched.look(LONG)
    watched.look(LONG)
    (found,) = watched.shown().detached
    assert (found.topic, found.partition, found.offset) == ("orders", 0, 0)
    assert (found.worker, found.key, found.slot) == ("a", "hot", slot_of(HOT))
    assert found.waiting == 2
    assert found.seconds == pytest.approx(2 * LONG - 0.025, abs=0.03)
    (worker,) = watched.subscription().workers
    assert worker.running is not None
    assert (worker.running.offset, worker.running.seconds) == (0, found.seconds)
    watched.worker().finish()
    watched.work()
    assert watched.shown().detached == ()


def test_a_detached_record_is_not_stuck_before_its_ack_timeout() -> None:
    watched = Watched(replace(SHARED, workers=("a", "b"), ack_timeout=2.0))
    watched.come(HOT, b"other", HOT, HOT)
    watched.worker().start()
    watched.look(LONG)
    watched.look(LONG)
    sub = watched.subscription()
    worker, _ = sub.workers
    assert (worker.state, worker.stuck, worker.detached) == ("running", 0, True)
    assert (sub.lanes["stuck"], sub.lanes["running"]) == (0, 1)
    assert [each.state for each in sub.closed] == ["running"]
    watched.pool.kind = "thread"
    watched.beat(6)
    watched.deliver()
    sub = watched.subscription()
    worker, _ = sub.workers
    assert (worker.stuck, worker.detached, sub.lanes["stuck"]) == (1, False, 1)
    assert sub.shared is not None
    assert sub.shared.detached == ()

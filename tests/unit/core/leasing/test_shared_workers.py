"""Workers that share what waits: any of them takes what is ready, and no key waits for another."""

from __future__ import annotations

import sys
import tracemalloc
from collections import Counter
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.lanes.closed import LaneState
from kafka_keyshared.core.routing.modes import RoutingSettings
from kafka_keyshared.core.subscription.settings import (
    DETACH_AFTER,
    SHARDS_LEAST,
    SubscriptionSettings,
)
from kafka_keyshared.core.workers.shards import SharedRow, shard_of
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import SLOTS, slot_of
from kafka_keyshared.lab.simulator.stepped import SteppedWorker
from tests.support.core_harness import Harness
from tests.support.records import ERROR, P0, P1, FakeRecord, record

NAMES = ("a", "b", "c", "d")
LONG = 4 * DETACH_AFTER

PLAIN = SubscriptionSettings(
    workers=NAMES, pooled=True, retry=RetryPolicy(attempts=5, backoff=0.0, jitter=0.0)
)


class Shared(Harness):
    """Four workers that share all keys."""

    def __init__(self, settings: SubscriptionSettings = PLAIN) -> None:
        super().__init__(settings)
        self.assign()
        self.written = 0

    def come(self, *keys: bytes | None) -> list[FakeRecord]:
        """Fetch a record of each key."""
        new = [record(self.written + at, key) for at, key in enumerate(keys)]
        self.written += len(new)
        self.fetch(*new)
        return new

    def at(self, item: FakeRecord) -> int | None:
        """The worker that was given the record, and has not ended it."""
        for worker in self.sub().workers.values():
            for leased in worker.slices.values():
                if any(leased.slice.records[index] is item for index in leased.indices()):
                    return worker.id
        return None

    def work_beside(self, busy: SteppedWorker) -> list[int]:
        """Let all workers but one run what there is; return the offsets as they started."""
        started: list[int] = []
        while True:
            before = len(started)
            for worker in [each for each in self.pool.workers.values() if each is not busy]:
                while (item := worker.start()) is not None:
                    started.append(item.offset())
                    worker.finish()
                self.deliver()
            if len(started) == before:
                return started


def keys(count: int) -> list[bytes]:
    """So many keys, each in a shard of its own."""
    found: dict[int, bytes] = {}
    number = 0
    while len(found) < count:
        key = b"key-%d" % number
        found.setdefault(shard_of(slot_of(key), SHARDS_LEAST), key)
        number += 1
    return [*found.values()]


def test_the_shards_divide_the_slots_evenly_and_a_key_is_in_one() -> None:
    assert Counter(shard_of(slot, SHARDS_LEAST) for slot in range(SLOTS)) == dict.fromkeys(
        range(SHARDS_LEAST), SLOTS // SHARDS_LEAST
    )


def test_whoever_is_free_takes_what_is_ready_and_few_keys_are_spread() -> None:
    shared = Shared()
    shared.come(*keys(4), *keys(4))
    assert [len(worker.slices) for worker in shared.sub().workers.values()] == [1] * 4
    assert [worker.leased for worker in shared.sub().workers.values()] == [2] * 4


def test_what_takes_less_time_than_to_wake_a_worker_goes_to_few() -> None:
    shared = Shared()
    shared.pool.seconds = 1e-6
    shared.come(*keys(20))
    shared.work()
    shared.come(*keys(20))
    assert [worker.leased for worker in shared.sub().workers.values()] == [20, 0, 0, 0]
    shared.work()
    shared.pool.seconds = 0.01
    shared.come(*keys(20))
    shared.work()
    shared.come(*keys(20))
    assert max(worker.leased for worker in shared.sub().workers.values()) < 20


def test_with_one_lease_per_key_each_record_follows_the_one_before_it() -> None:
    shared = Shared(replace(PLAIN, one_in_flight_per_key=True))
    one, two = keys(2)
    shared.come(one, one, two, one)
    assert sorted(shared.work()) == [0, 1, 2, 3]
    assert shared.committed() == (4, [])


def test_the_records_of_a_key_are_with_one_worker_which_may_be_given_more_of_them() -> None:
    shared = Shared()
    first = shared.come(b"hot")
    second = shared.come(b"hot")
    assert {shared.at(each) for each in (*first, *second)} == {0}
    others = shared.come(*(key for key in keys(9) if key != b"hot"))
    assert {shared.at(each) for each in others} == {1, 2, 3}


def test_a_key_that_has_more_than_its_worker_can_do_keeps_nobody_waiting() -> None:
    """Two batches of it are at a worker; the others take whatever else comes."""
    shared = Shared(replace(PLAIN, workers=("a", "b"), prefetch_records=40))
    shared.come(*[b"hot"] * 200)
    hot = shared.worker(0)
    hot.start()
    own = shard_of(slot_of(b"hot"), SHARDS_LEAST)
    for key in (each for each in keys(30) if shard_of(slot_of(each), SHARDS_LEAST) != own):
        (item,) = shared.come(key)
        assert shared.at(item) == 1
        shared.worker(1).start()
        shared.worker(1).finish()
        shared.worker(1).step()
        shared.deliver()


def test_a_worker_that_has_a_long_shard_runs_nothing_else_and_half_of_them_at_most_do() -> None:
    """In turn with the others a key with much to do would have one worker at its turns only."""
    shared = Shared(replace(PLAIN, workers=("a", "b"), prefetch_records=4))
    first, second, *others = keys(12)
    shared.come(*[first] * 150, *[second] * 150)
    workers = [shared.worker(0), shared.worker(1)]
    shared.come(*others * 3)
    ran: list[list[bytes | None]] = [[], []]
    while sum(each not in (first, second) for each in chain(*ran)) < len(others) * 3:
        for worker, those in zip(workers, ran, strict=True):
            item = worker.start()
            if item is not None:
                those.append(item.key())
                worker.finish()
        shared.deliver()
        assert sum(map(len, ran)) < 100, "the others wait for a long shard"
    alone, among = sorted(ran, key=lambda those: len(set(those)))
    assert set(alone) in ({first}, {second}), "it has the time of a whole worker"
    assert set(among) == {first, second, *others} - set(alone), "and the others are served in turn"


def test_what_is_for_calls_with_several_records_is_of_few_shards() -> None:
    """All shards of a call are with its worker until it ends: the others need some, too."""
    shared = Shared(
        replace(PLAIN, individually=True, call_records=10, prefetch_records=20, workers=("a", "b"))
    )
    several = keys(SHARDS_LEAST)
    shared.come(*several * 4)
    row = shared.sub().shared
    assert row is not None
    assert Counter(shard.at for shard in row.shards) == {0: 5, 1: 5, None: SHARDS_LEAST - 10}
    assert [worker.leased for worker in shared.sub().workers.values()] == [20, 20]


def test_a_record_that_takes_long_is_detached_and_all_behind_it_goes_elsewhere() -> None:
    shared = Shared(replace(PLAIN, workers=("a", "b")))
    one, *others = keys(5)
    slow, behind = shared.come(one, *others)[0], []
    worker = shared.worker(shared.at(slow) or 0)
    assert worker.start() is slow
    behind += shared.come(one, one)
    shared.look(LONG)
    shared.look(LONG)
    (lane,) = shared.sub().closed.lanes.values()
    assert lane.state is LaneState.STUCK
    assert sorted(shared.work_beside(worker)) == [1, 2, 3, 4]
    assert [shared.at(each) for each in behind] == [None, None], "its own key waits for it"
    worker.finish()
    worker.step()
    shared.deliver()
    assert not shared.sub().closed.lanes
    assert shared.work() == [5, 6]
    assert shared.committed() == (7, [])


@pytest.mark.parametrize("after", [ERROR, None], ids=["behind it", "before it"])
def test_a_failed_key_does_not_wait_for_a_detached_record_of_its_worker(after: Any) -> None:
    """Its fence stands behind the long record, at a worker that no longer has any record of it."""
    shared = Shared(replace(PLAIN, workers=("a", "b")))
    failed, slow, *others = keys(6)
    first, _, long, *_ = shared.come(failed, failed, slow, *others)
    worker = shared.worker(shared.at(first) or 0)
    assert shared.at(long) == worker.index
    for expected in (first, long):
        while worker.start() is not expected:
            worker.finish()
        if expected is first:
            worker.finish(ERROR)
    shared.deliver()
    shared.look(LONG)
    shared.look(LONG)
    shared.later(0.1)
    assert sorted(shared.work_beside(worker))[:2] == [0, 1], "the failed key has gone on"
    worker.finish(after)
    shared.work()
    shared.later(0.1)
    shared.work()
    assert not shared.sub().closed.lanes
    assert shared.committed() == (shared.written, [])


@pytest.mark.parametrize("verdict", [None, ERROR], ids=["done", "failed"])
def test_a_detached_record_settles_once_and_its_key_goes_on_in_order(verdict: object) -> None:
    shared = Shared(replace(PLAIN, workers=("a", "b")))
    one, two = keys(2)
    slow, *_ = shared.come(one, one, two, two)
    worker = shared.worker(shared.at(slow) or 0)
    worker.start()
    shared.look(LONG)
    shared.look(LONG)
    shared.work_beside(worker)
    worker.finish(verdict)  # type: ignore[arg-type]
    worker.step()
    shared.deliver()
    shared.worker().step()  # to the fence
    shared.deliver()
    shared.later(0.1)
    assert shared.work() == ([0, 1] if verdict else [1])
    assert shared.committed() == (4, [])
    assert shared.sub().counts.ok == 4


def test_a_member_that_checks_itself_hears_a_detached_record_fail_before_its_slice_ends() -> None:
    shared = Shared(replace(PLAIN, workers=("a", "b")))
    one, two = keys(2)
    slow, *_ = shared.come(one, one, two, two)
    worker = shared.worker(shared.at(slow) or 0)
    worker.start()
    shared.look(LONG)
    shared.look(LONG)
    shared.work_beside(worker)
    worker.finish(ERROR)
    worker.step()
    while shared.mailbox:
        shared.deliver(1)
        shared.core.check()
    shared.later(0.1)
    assert shared.work() == [0, 1]


def test_a_record_that_has_ended_before_the_rest_came_back_is_not_detached() -> None:
    """Its worker went on to the next one before it answered."""
    shared = Shared(replace(PLAIN, workers=("a",)))
    slow, following, *_ = shared.come(*keys(5))
    worker = shared.worker()
    shared.pool.answers_later = lambda: True
    shared.pool.hesitates = lambda: True
    assert worker.start() is slow
    shared.look(LONG)
    shared.look(LONG)
    assert worker.asked
    worker.finish()
    assert worker.start() is following
    worker.answer()
    shared.deliver()
    assert not shared.sub().closed.lanes, "it runs nothing that takes long"
    shared.core.check()
    shared.pool.hesitates = lambda: False
    worker.finish()
    shared.work()
    assert shared.committed() == (5, [])


def test_the_time_of_each_record_counts_also_where_the_last_of_a_batch_is_detached() -> None:
    shared = Shared(replace(PLAIN, workers=("a",)))
    first, slow, *_ = shared.come(*keys(4))
    worker = shared.worker()
    assert worker.start() is first
    worker.finish()
    assert worker.start() is slow
    shared.look(LONG)
    shared.look(LONG)
    worker.finish()
    shared.work()
    assert shared.committed() == (4, [])
    assert sum(shared.sub().counts.process_seconds.counts) == 4


def mates(shards: int) -> tuple[bytes, list[bytes]]:
    """A key, and others of its shard that are in other slots."""
    hot, *others = (b"key-%d" % number for number in range(2_000))
    shard = shard_of(slot_of(hot), shards)
    found = [key for key in others if shard_of(slot_of(key), shards) == shard]
    return hot, [key for key in found if slot_of(key) != slot_of(hot)]


def test_the_other_keys_of_a_shard_do_not_wait_behind_a_hot_key() -> None:
    shared = Shared(replace(PLAIN, workers=("a",), prefetch_records=4))
    hot, others = mates(SHARDS_LEAST)
    shared.come(*[hot] * 100)
    shared.come(*others[:3])
    worker = shared.worker()
    worker.start()
    shared.beat()
    row = shared.sub().shared
    assert row is not None and [*row.single] == [slot_of(hot)]
    late = shared.come(hot, others[0])
    worker.finish()
    ran = [0, *shared.work()]
    assert max(map(ran.index, (100, 101, 102, late[1].offset()))) < 20
    assert [at for at in ran if at < 100 or at == late[0].offset()] == [*range(100), 103]
    assert shared.committed() == (105, [])


def slot_mates() -> tuple[bytes, bytes]:
    """Two keys of one slot."""
    seen: dict[int, bytes] = {}
    for key in (b"key-%d" % number for number in range(10_000)):
        slot = slot_of(key)
        if slot in seen:
            return seen[slot], key
        seen[slot] = key
    raise AssertionError("no two keys are in one slot")


@pytest.mark.parametrize("first", [True, False])
def test_nor_do_other_keys_of_its_very_slot(*, first: bool) -> None:
    shared = Shared(replace(PLAIN, workers=("a",), prefetch_records=4))
    hot, other = slot_mates()
    shared.come(*[hot] * 100)
    worker = shared.worker()
    worker.start()
    if first:  # the hot key has had its shard for a while
        shared.beat()
    early = [each.offset() for each in shared.come(*[other] * 3)]
    shared.beat()
    late = shared.come(hot, other)[1].offset()
    worker.finish()
    ran = [0, *shared.work()]
    of_other = [at for at in ran if at in (*early, late)]
    assert of_other == [*early, late]
    assert ran.index(late) < 25
    assert [at for at in ran if at not in of_other] == [*range(100), 103]
    assert shared.committed() == (105, [])


def test_keys_of_one_slot_are_one_shard_again_when_the_others_have_run() -> None:
    shared = Shared(replace(PLAIN, workers=("a", "b"), prefetch_records=4))
    hot, other = slot_mates()
    shared.come(*[hot] * 100, *[other] * 3)
    (busy,) = [each for each in shared.pool.workers.values() if each.inbox]
    busy.start()
    shared.beat()
    row = shared.sub().shared
    assert row is not None
    (single,) = row.single.values()
    assert single.beside is not None and single.beside.at == busy.index, "it may be leased of it"
    assert not [at for at in shared.work_beside(busy) if at >= 100]
    busy.finish()
    assert len(shared.work()) == 102
    shared.beat()
    assert not row.single
    shared.core.check()


def test_what_is_leased_of_a_hot_key_before_it_has_a_shard_is_waited_for() -> None:
    shared = Shared(replace(PLAIN, workers=("a", "b"), prefetch_records=4))
    hot, others = mates(SHARDS_LEAST)
    shared.come(*[hot] * 100, *others[:3])
    (busy,) = [each for each in shared.pool.workers.values() if each.inbox]
    busy.start()
    shared.beat()
    row = shared.sub().shared
    assert row is not None
    (single,) = row.single.values()
    assert (single.at, single.slot) == (busy.index, slot_of(hot))
    assert not [at for at in shared.work_beside(busy) if at < 100]
    busy.finish()
    assert shared.work()[:3] == [1, 2, 3]
    assert shared.committed() == (103, [])


def test_the_slot_of_a_key_that_is_hot_no_more_is_of_its_group_again() -> None:
    shared = Shared(replace(PLAIN, prefetch_records=4))
    hot, others = mates(SHARDS_LEAST)
    shared.come(*[hot] * 100, others[0])
    shared.beat()
    row = shared.sub().shared
    assert row is not None and row.single
    shared.work()
    shared.beat()
    assert not row.single
    first, second = shared.come(hot, others[0])
    assert row.shard_of(first) is row.shard_of(second)
    assert shared.work() == [first.offset(), second.offset()]
    shared.core.check()


@pytest.mark.parametrize("slow", [True, False])
def test_a_key_that_gets_more_than_a_worker_can_do_holds_back_its_partition_at_half_the_window(
    slow: bool,
) -> None:
    shared = Shared(replace(PLAIN, prefetch_records=4, window_records=400))
    shared.assign(P1)
    hot, others = mates(SHARDS_LEAST)
    shared.come(*[hot] * 180, *others[:3])
    shared.beat()
    held = shared.core.holds.held_back
    for more in (20, 40):
        assert not held(Reason.WAITING), "until it is half of the window, nobody notices"
        done = 3 if slow else 80
        for _ in range(done):
            worker = next(each for each in shared.pool.workers.values() if each.start())
            worker.finish()
            shared.deliver()
        shared.come(*[hot] * (done + more))
        shared.beat()
    assert {*held(Reason.WAITING)} == ({P0} if slow else set())
    said = "wait for each other, because it gets more than one worker can do"
    assert shared.said(said) is slow
    shared.work()
    shared.beat()
    assert not held(Reason.WAITING)


def test_256_empty_shards_take_less_than_100_kib() -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        row = SharedRow(lambda _: None, slot_of, 256)
        took = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert took - sys.getsizeof(row.by_slot) < 100 * 1024, "besides the slot table"


@pytest.mark.parametrize(("shards", "workers"), [(3, 4), (0, 1), (SLOTS + 1, 4)])
def test_shards_below_workers_are_refused(shards: int, workers: int) -> None:
    settings = replace(PLAIN, workers=tuple(map(str, range(workers))), shards=shards)
    with pytest.raises(ConfigError, match=rf"shards={shards} and {workers} workers: give at least"):
        settings.check()


def test_with_many_workers_there_are_four_shards_for_each() -> None:
    assert PLAIN.shard_count == SHARDS_LEAST
    assert replace(PLAIN, workers=tuple(map(str, range(100)))).shard_count == 400


def test_nothing_is_detached_where_detach_after_is_0() -> None:
    shared = Shared(replace(PLAIN, workers=("a", "b"), detach_after=0))
    slow, *_ = shared.come(*keys(4))
    shared.worker(shared.at(slow) or 0).start()
    shared.look(LONG)
    shared.look(LONG)
    assert not shared.sub().closed.lanes


def test_coroutines_have_all_their_places_where_more_shards_are_ready_than_these() -> None:
    shared = Shared(replace(PLAIN, workers=("a",), individually=True, prefetch_records=4))
    shared.come(*[b"key-%d" % number for number in range(40)])
    (worker,) = shared.sub().workers.values()
    assert worker.leased == 4
    assert sorted(shared.work()) == [*range(40)]


@pytest.mark.parametrize(
    "stays",
    [
        {"pooled": False},
        {"instances": True},
        {"hands_over": True},
        {"individually": True},
        {"delivery": "at-most-once"},
        {"new_workers_wait": True},
        {"routing": RoutingSettings("sticky", ranges={"a": [(0, SLOTS - 1)]})},
        {"routing": RoutingSettings("exclusive")},
    ],
    ids=str,
)
def test_detach_after_is_refused_where_workers_own_their_keys(stays: dict[str, Any]) -> None:
    settings = replace(PLAIN, detach_after=0.2, **stays)
    with pytest.raises(ConfigError, match=r"detach_after=0.2: a record is detached where workers"):
        settings.check()
    replace(settings, detach_after=0).check()
    replace(PLAIN, detach_after=0.2).check()


def test_a_partition_that_goes_while_a_record_of_it_is_detached_leaves_nothing() -> None:
    shared = Shared(replace(PLAIN, workers=("a", "b")))
    slow, *_ = shared.come(*keys(2), *keys(2))
    worker = shared.worker(shared.at(slow) or 0)
    worker.start()
    shared.look(LONG)
    shared.look(LONG)
    shared.revoke()
    shared.core.check()
    worker.finish()
    shared.work()
    assert shared.sub().leased == 0
    assert shared.sub().window.records == 0


def test_workers_that_come_or_go_move_nothing() -> None:
    shared = Shared()
    shared.come(*keys(8))
    for index in range(4):
        shared.worker(index).start()
    before = len(shared.seen)
    shared.tell(ev.Resize("default", (*NAMES, "e", "f")))
    assert not [each for each in shared.seen[before:] if isinstance(each, cmd.Recall)]
    assert not shared.sub().draining.count
    new = shared.come(*(b"new-%d" % number for number in range(40)))
    assert {4, 5} <= {shared.at(each) for each in new}, "at once, beside what runs elsewhere"
    shared.tell(ev.Resize("default", ("a",)))
    for index in range(4):
        shared.worker(index).finish()
    shared.work()
    assert shared.committed() == (48, [])
    assert [worker.name for worker in shared.sub().workers.values()] == ["a"]


def test_records_without_a_key_go_to_whoever_has_room() -> None:
    shared = Shared()
    shared.come(*[None] * 8)
    assert [worker.leased for worker in shared.sub().workers.values()] == [2] * 4


def test_of_a_small_chunk_keys_run_in_the_order_in_which_they_came() -> None:
    shared = Shared(replace(PLAIN, workers=("a",)))
    shared.come(*sorted(keys(9), key=slot_of, reverse=True))
    assert shared.work() == [*range(9)]


@pytest.mark.parametrize(
    "settings",
    [
        replace(PLAIN, instances=True),
        replace(PLAIN, hands_over=True),
        replace(PLAIN, delivery="at-most-once", retry=RetryPolicy()),
        replace(PLAIN, new_workers_wait=True),
        replace(PLAIN, routing=RoutingSettings("exclusive")),
        replace(PLAIN, routing=RoutingSettings("sticky", {"a": [(0, SLOTS - 1)]})),
        replace(PLAIN, pooled=False),
    ],
    ids=lambda settings: str(settings)[:0] or None,
)
def test_where_a_worker_may_keep_state_or_keys_were_given_to_it_it_has_keys_of_its_own(
    settings: SubscriptionSettings,
) -> None:
    assert PLAIN.shares
    assert not settings.shares


def test_a_worker_that_shares_all_keys_cannot_take_some_only() -> None:
    shared = Shared()
    with pytest.raises(ConfigError, match=r"share all keys.*declare filters in its routing"):
        shared.core.handle(ev.Join("default", "e", ["orders-*"]), 0.0)
    assert len(shared.sub().workers) == 4

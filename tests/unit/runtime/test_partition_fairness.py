"""Partitions that compete for the window: none waits for another one's backlog."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

import pytest

from kafka_keyshared.client.port import CommittedOffset
from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.hashing import slot_of
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.runtime.partition_fairness import HELD_MOST, PASSED_OVER, REST, TRIES, Shares
from tests.support.loop_ports import Stage
from tests.support.records import P0, P1, TOPIC, FakeRecord, failure

WORKERS = tuple(f"worker-{index}" for index in range(8))
EACH = 0.02
"""Seconds that a handler takes."""


class Busy:
    """A member whose handlers take their time, and when it has finished what."""

    def __init__(self, *, window: int = 400, window_bytes: int = 64 << 20) -> None:
        settings = SubscriptionSettings(
            workers=WORKERS, window_records=window, window_bytes=window_bytes
        )
        self.stage = Stage(settings)
        self.stage.accept()
        self.done: dict[TopicPartition, list[float]] = defaultdict(list)
        self.offsets: dict[tuple[TopicPartition, bytes], list[int]] = defaultdict(list)
        self.written: dict[TopicPartition, int] = defaultdict(int)
        self.running: set[int] = set()
        self.begun = self.stage.now

    def write(self, at: TopicPartition, count: int, *, keys: int = 100, size: int = 10) -> None:
        first = self.written[at]
        for offset in range(first, first + count):
            key = b"%d/%d" % (offset % keys, at.partition)
            self.stage.fill(FakeRecord(at, offset, key, size=size))
        self.written[at] += count
        self.stage.client.stored.setdefault(at, CommittedOffset(0, None))

    def go_on(self, seconds: float, *, stuck: frozenset[int] = frozenset()) -> None:
        """Let that time pass; each worker that is not stuck finishes a record every 20 ms."""
        stage, until = self.stage, self.stage.now + seconds
        next_end = stage.now + EACH
        while stage.now < until:
            stage.step(3)
            stage.now = max(stage.now, next_end)
            next_end = stage.now + EACH
            for index in range(len(WORKERS)):
                if index not in stuck:
                    self._finish(index)

    def _finish(self, index: int) -> None:
        worker = self.stage.worker(index)
        if index in self.running:
            worker.finish()
            self.running.discard(index)
        if (item := worker.start()) is not None:
            self.running.add(index)
            partition = TopicPartition(item.topic(), item.partition())
            self.done[partition].append(self.stage.now)
            self.offsets[partition, item.key()].append(item.offset())

    def longest(self, partition: TopicPartition) -> float:
        """Return the longest time in which nothing of the partition was begun."""
        whole = len(self.done[partition]) == self.written[partition]
        moments = [self.begun, *self.done[partition], *([] if whole else [self.stage.now])]
        return max(later - before for before, later in pairwise(moments))

    def pauses(self, partition: TopicPartition) -> int:
        return sum(partition in each for each in self.stage.client.made("pause"))

    def check(self) -> None:
        """What nothing of this may cost: order, and every record once."""
        self.stage.core.check()
        for offsets in self.offsets.values():
            assert offsets == sorted(set(offsets))


def partitions(count: int) -> list[TopicPartition]:
    return [TopicPartition(TOPIC, number) for number in range(count)]


def crowd(count: int = 7, *, window: int = 400, backlog: int = 3_000) -> Busy:
    """So many partitions, each with more than the window holds."""
    busy = Busy(window=window)
    for each in partitions(count):
        busy.write(each, backlog)
    busy.stage.assign(*partitions(count))
    return busy


def held_back(busy: Busy) -> set[TopicPartition]:
    return set(busy.stage.core.holds.held_back(Reason.SHARE))


def test_what_each_partition_holds_is_counted_as_it_is_held() -> None:
    """Waiting, leased, failed, and leased of a partition that has gone and come back."""
    busy = crowd(3)
    busy.go_on(1.0)
    stage = busy.stage
    stage.worker(min(busy.running)).finish(failure())
    stage.step(3)
    for change in ("", "lost", "assign"):
        if change:
            stage.client.callbacks[change]([P0])
        held = Counter(partition for partition, _ in stage.sub.unsettled.records({}))
        assert stage.sub.unsettled.by_partition() == held
        assert (P0 in held) == (not change), "what was leased of it is nobody's any more"


# --- nobody waits for long ---


@pytest.mark.parametrize("window", [30, 100, 400, 2_000])
def test_no_partition_waits_for_anothers_backlog(window: int) -> None:
    busy = crowd(window=window)
    busy.go_on(40.0)
    for each in partitions(7):
        assert busy.longest(each) < 12.0, f"{each} stood still for {busy.longest(each):.1f} s"
    busy.check()


def test_one_with_little_to_read_does_not_wait_for_one_with_much() -> None:
    busy = Busy()
    busy.write(P0, 20_000)
    busy.write(P1, 5)
    busy.stage.assign(P0, P1)
    for _ in range(6):
        busy.go_on(8.0)
        assert len(busy.done[P1]) == busy.written[P1]
        busy.write(P1, 5)
    assert len(busy.done[P0]) > 0.6 * 8 * 48 / EACH
    busy.check()


def test_large_values_of_one_partition_do_not_keep_the_others_out() -> None:
    """The window is full of bytes with a hundred records in it."""
    busy = Busy(window=2_000, window_bytes=10_000_000)
    busy.write(P0, 3_000, size=100_000)
    for each in partitions(5)[1:]:
        busy.write(each, 3_000)
    busy.stage.assign(*partitions(5))
    busy.go_on(40.0)
    for each in partitions(5):
        assert busy.longest(each) < 10.0, f"{each} stood still for {busy.longest(each):.1f} s"
    busy.check()


def test_what_waits_behind_a_stuck_worker_keeps_no_other_partition_out() -> None:
    """A key that takes long: what it holds up is of its own partition before it is of others."""
    busy = Busy(window=400)
    busy.write(P0, 3_000, keys=1)
    for each in partitions(4)[1:]:
        busy.write(each, 3_000)
    busy.stage.assign(*partitions(4))
    stuck = busy.stage.sub.table.owners[slot_of(b"0/0")]
    busy.go_on(15.0, stuck=frozenset({stuck}))
    for each in partitions(4)[1:]:
        assert busy.longest(each) < 12.0, f"{each} stood still for {busy.longest(each):.1f} s"
    busy.check()


# --- what it may not cost ---


def test_nobody_goes_without_a_record_for_the_sake_of_fairness(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fair = crowd()
    fair.go_on(20.0)
    monkeypatch.setattr(Shares, "look", lambda *_: None)
    unfair = crowd()
    unfair.go_on(20.0)
    assert unfair.longest(partitions(7)[6]) > 19.0, "this is what it is about"
    done = sum(map(len, fair.done.values()))
    assert done > 0.95 * sum(map(len, unfair.done.values()))


def test_one_partition_uses_all_of_the_window_while_the_others_have_nothing() -> None:
    busy = Busy()
    busy.write(P0, 3_000)
    busy.stage.assign(*partitions(4))
    most = 0
    for _ in range(100):
        busy.go_on(0.05)
        most = max(most, busy.stage.sub.window.records)
        assert not held_back(busy)
    assert most >= 0.95 * 400


def test_what_is_held_is_not_weighed_while_the_others_have_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That is a walk over a full window, several times a second."""
    weighed: list[float] = []
    weigh = Shares._held

    def noting(shares: Shares) -> dict[TopicPartition, float]:
        weighed.append(busy.stage.now)
        return weigh(shares)

    monkeypatch.setattr(Shares, "_held", noting)
    busy = Busy()
    busy.write(P0, 5_000)
    busy.stage.assign(P0, P1)
    busy.go_on(8.0)
    assert weighed == []
    busy.write(P1, 1)
    busy.go_on(8.0)
    assert weighed, "P1 has something to read"


def test_where_handlers_are_quick_nothing_is_held_back() -> None:
    busy = Busy(window=10_000)
    stage = busy.stage
    for each in partitions(4):
        busy.write(each, 30_000, keys=1_000)
    stage.assign(*partitions(4))
    done = 0
    # The first looks come before anybody can know; a whole window in 50 ms is quick.
    while done < 120_000:
        stage.now += 0.05
        stage.step()
        done += len(stage.work())
    assert not stage.client.made("pause")


def test_no_partition_is_held_back_twice_within_seconds() -> None:
    busy = crowd()
    busy.go_on(40.0)
    for each in partitions(7):
        assert busy.pauses(each) <= 40.0 / REST + 1
    assert busy.pauses(P0) > 1


# --- and when it ends ---


def test_a_partition_that_brings_nothing_is_waited_for_only_so_often() -> None:
    """Its broker may be away: the others are fetched anew for it a few times, then not for long."""
    busy = crowd(2, backlog=20_000)
    busy.stage.client.stuck[P1] = 10**9
    busy.go_on(60.0)
    assert not busy.done[P1]
    assert busy.pauses(P0) <= TRIES + 60.0 / PASSED_OVER < 60.0 / REST
    assert len(busy.done[P0]) > 0.6 * 8 * 60 / EACH


def test_who_is_held_back_for_long_is_let_go_for_a_while() -> None:
    """What fills its share may wait for an hour, and the rest of it would have to wait as long."""
    busy = crowd(2, backlog=20_000)
    while P0 not in held_back(busy):
        busy.go_on(0.05)
        assert busy.stage.now < busy.begun + 10
    everybody = frozenset(range(len(WORKERS)))
    before = busy.stage.now
    while P0 in held_back(busy):
        busy.go_on(0.05, stuck=everybody)
        assert busy.stage.now < before + HELD_MOST + 1
    assert Reason.SHARE not in busy.stage.core.holds.reasons(P0)


def test_what_is_held_back_is_shown_as_paused_with_its_reason() -> None:
    busy = crowd()
    while not held_back(busy):
        busy.go_on(0.05)
        assert busy.stage.now < busy.begun + 10
    assert held_back(busy) <= busy.stage.loop.paused()


@pytest.mark.parametrize("lost", [False, True])
def test_nobody_is_held_back_for_a_partition_that_has_gone(lost: bool) -> None:
    busy = crowd(2)
    while not held_back(busy):
        busy.go_on(0.05)
        assert busy.stage.now < busy.begun + 10
    busy.stage.client.callbacks["lost" if lost else "revoke"]([P1])
    busy.go_on(0.5)
    assert not held_back(busy)
    assert P0 not in busy.stage.client.paused or Reason.WINDOW in busy.stage.core.holds.reasons(P0)


def test_a_partition_that_was_held_back_comes_back_free() -> None:
    busy = crowd(3)
    while P0 not in held_back(busy):
        busy.go_on(0.05)
        assert busy.stage.now < busy.begun + 10
    busy.stage.client.callbacks["lost"](partitions(3))
    for _ in range(3):
        busy.stage.step()
    busy.stage.assign(P0)
    busy.go_on(0.5)
    assert P0 not in held_back(busy)

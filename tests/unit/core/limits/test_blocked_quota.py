"""How far is read past lanes that are closed: what waits in them never fills the intake."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.core.contract.outcomes import Disposition, Failure
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.limits.parked_records import Parking
from kafka_keyshared.core.records.pristine import Chunk
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.model import TopicPartition
from tests.support.core_harness import Harness
from tests.support.records import ERROR, P0, P1, FakeRecord, failure, record

WINDOW = 400
CHUNK = 20
STEP = WINDOW // 16
LONGEST = failure(Disposition.RETRY, after=3_600.0)
SHORTEST = failure(Disposition.RETRY, after=0.05)


def member(
    *partitions: TopicPartition,
    attempts: int = 1_000,
    window_bytes: int = 64 << 20,
    window_share: float = 0.5,
    one_in_flight_per_key: bool = False,
) -> Harness:
    settings = SubscriptionSettings(
        window_records=WINDOW,
        window_bytes=window_bytes,
        window_share=window_share,
        retry=RetryPolicy(attempts=attempts),
        one_in_flight_per_key=one_in_flight_per_key,
    )
    harness = Harness(settings)
    harness.assign(*(partitions or (P0, P1)))
    return harness


class Hot:
    """P0 has one key at a hot rate, which always fails; P1 has others, of which each is done."""

    def __init__(self, harness: Harness, how: Failure, *, size: int = 10, chunk: int = CHUNK):
        self.harness = harness
        self.how = how
        self.size = size
        self.chunk = chunk
        self.next = {P0: 0, P1: 0}
        self.done: list[int] = []
        self.most = 0

    def records(self, at: TopicPartition, count: int) -> Iterator[FakeRecord]:
        for offset in range(self.next[at], self.next[at] + count):
            key = b"hot" if at == P0 else b"key-%d" % (offset % 50)
            yield FakeRecord(at, offset, key, size=self.size if at == P0 else 10)
        self.next[at] += count

    def fetch(self) -> None:
        """Fetch as the loop does: what there is room for, of what is not held back."""
        harness = self.harness
        free = [each for each in harness.core.partitions if each not in harness.paused]
        for at in free:
            room = min(self.chunk, harness.core.room())
            if room:
                harness.fetch(*self.records(at, room))

    def work(self) -> None:
        for worker in self.harness.pool.workers.values():
            while (item := worker.start()) is not None:
                hot = item.key() == b"hot"
                worker.finish(self.how if hot else None)
                if not hot:
                    self.done.append(item.offset())
        self.harness.deliver()

    def go_on(self, rounds: int = 100, every: float = 0.01) -> None:
        """Run it for a while; note the most that the hot key has held."""
        for at in range(rounds):
            self.fetch()
            self.work()
            self.work()
            if at % 50 == 49:
                self.harness.beat()
            self.harness.later(every)
            self.most = max(self.most, self.harness.sub().window.records)


@pytest.mark.parametrize(
    "strict", [False, True], ids=["many leases of a key", "one lease of a key"]
)
def test_a_key_that_always_fails_with_the_longest_back_off_leaves_three_quarters_to_others(
    strict: bool,
) -> None:
    harness = member(one_in_flight_per_key=strict)
    hot = Hot(harness, LONGEST)
    hot.go_on()
    assert hot.most <= WINDOW / 4 + 2 * CHUNK
    assert len(hot.done) == hot.next[P1] == 100 * CHUNK, "others go on at their full rate"
    assert harness.core.holds.reasons(P0) == (Reason.WAITING,)
    assert harness.paused == {P0}


def test_a_key_that_always_fails_with_a_short_back_off_leaves_half_to_others() -> None:
    harness = member()
    hot = Hot(harness, SHORTEST)
    hot.go_on(every=0.001)
    assert WINDOW / 4 < hot.most <= WINDOW / 2 + 2 * CHUNK
    assert len(hot.done) == 100 * CHUNK


def test_a_burst_between_two_heartbeats_does_not_outrun_the_bound() -> None:
    harness = member()
    hot = Hot(harness, LONGEST, chunk=WINDOW // 8)
    for _ in range(20):  # no time passes at all
        hot.fetch()
        hot.work()
    assert hot.most <= WINDOW / 4 + 2 * hot.chunk
    assert P0 in harness.paused


def test_many_keys_that_each_fail_once_are_bounded_too() -> None:
    harness = member()
    for start in range(0, 10 * CHUNK, CHUNK):
        if P0 in harness.paused:
            break
        offsets = range(start, start + CHUNK)
        harness.fetch(*[record(offset, f"key-{offset}") for offset in offsets])
        harness.work({offset: [LONGEST] for offset in offsets})
    assert harness.paused == {P0}
    assert WINDOW / 4 <= harness.sub().window.records <= WINDOW / 4 + CHUNK


def test_what_is_blocked_and_large_leaves_three_quarters_of_the_bytes() -> None:
    harness = member(attempts=1, window_bytes=100_000)
    hot = Hot(harness, ERROR, size=2_000)
    hot.go_on()
    assert harness.sub().window.bytes <= 25_000 + 2_000 * CHUNK
    assert harness.core.holds.reasons(P0) == (Reason.BLOCKED,)
    assert harness.said(
        "orders-0 is stopped: records behind blocked, diverted or stuck keys fill their part"
    )
    assert len(hot.done) == hot.next[P1]
    assert harness.core.room() > 0


@pytest.mark.parametrize("share", [0.2, 1.0])
def test_what_is_blocked_may_fill_half_of_the_share_that_is_set(share: float) -> None:
    harness = member(attempts=1, window_share=share)
    hot = Hot(harness, ERROR)
    hot.go_on()
    most = WINDOW * share / 2
    assert most <= harness.sub().window.records <= most + CHUNK
    assert harness.core.holds.reasons(P0) == (Reason.BLOCKED,)


@pytest.mark.parametrize("share", [0, -0.5, 1.5])
def test_a_share_of_the_window_that_is_none_is_refused_by_name(share: float) -> None:
    with pytest.raises(ConfigError, match=rf"window_share={share}: .*more than 0, and at most 1"):
        member(window_share=share)


def test_what_waits_for_a_retry_and_is_large_leaves_three_quarters_of_the_bytes() -> None:
    harness = member(window_bytes=100_000)
    hot = Hot(harness, LONGEST, size=2_000)
    hot.go_on()
    assert harness.sub().window.bytes <= 25_000 + 2_000 * CHUNK
    assert harness.core.holds.reasons(P0) == (Reason.WAITING,)
    assert len(hot.done) == hot.next[P1]


def test_a_single_record_larger_than_the_window_goes_all_the_same() -> None:
    harness = member(window_bytes=1_000)
    assert harness.core.room() >= 1
    harness.fetch(FakeRecord(P0, 0, b"giant", size=10_000))
    assert harness.core.room() == 0, "and nothing beside it"
    assert harness.work() == [0]
    assert harness.core.room() == 1, "the next one may be as large"


def test_what_is_held_for_a_slot_without_a_worker_counts_like_what_is_blocked() -> None:
    harness = member()
    sub = harness.sub()
    held = Parking()  # any waiting place will do
    sub.routing.places.append(held)
    sub.look_ahead.held.append(held)
    nobodys = [record(offset, "nobody's") for offset in range(WINDOW // 4)]
    sub.window.receive(Chunk(nobodys))
    for each in nobodys:
        held.keep(each)
    harness.fetch(ends={P0: WINDOW // 4})
    assert harness.paused == set()
    harness.beat()
    assert harness.core.holds.reasons(P0) == (Reason.WAITING,)
    assert harness.said("100 records of it are of slots that have no worker")
    harness.revoke(P0)
    assert harness.paused == set()


# --- behind a record that runs for long, and has not failed ---


class Slow(Hot):
    """The hot key of P0 is at one worker, which does not come out of a record of it."""

    def __init__(self, harness: Harness, *, size: int = 10) -> None:
        # One a time of 10 ms: that it is slow is known after a second, and the window is small.
        super().__init__(harness, ERROR, size=size, chunk=1)
        self.slow = harness.owner_of(record(0, "hot"))
        self.others = [
            b"key-%d" % number
            for number in range(200)
            if harness.owner_of(record(0, b"key-%d" % number)) is not self.slow
        ]

    def records(self, at: TopicPartition, count: int) -> Iterator[FakeRecord]:
        for offset in range(self.next[at], self.next[at] + count):
            key = b"hot" if at == P0 else self.others[offset % len(self.others)]
            yield FakeRecord(at, offset, key, size=self.size if at == P0 else 10)
        self.next[at] += count

    def work(self) -> None:
        for worker in self.harness.pool.workers.values():
            while (item := worker.start()) is not None and worker is not self.slow:
                worker.finish()
                self.done.append(item.offset())
        self.harness.deliver()


def at_two_workers(
    *,
    window_bytes: int = 64 << 20,
    one_in_flight_per_key: bool = False,
    partitions: tuple[TopicPartition, ...] = (P0, P1),
    **given: Any,
) -> Harness:
    settings = SubscriptionSettings(
        workers=("worker-0", "worker-1"),
        window_records=WINDOW,
        window_bytes=window_bytes,
        one_in_flight_per_key=one_in_flight_per_key,
        **given,
    )
    harness = Harness(settings)
    harness.assign(*partitions)
    return harness


@pytest.mark.parametrize(
    "strict", [False, True], ids=["many leases of a key", "one lease of a key"]
)
@pytest.mark.parametrize("individually", [False, True], ids=["a thread", "a member"])
def test_a_key_whose_record_runs_for_long_leaves_half_to_others(
    strict: bool, individually: bool
) -> None:
    harness = at_two_workers(one_in_flight_per_key=strict, individually=individually)
    slow = Slow(harness)
    slow.go_on(rounds=600)
    assert WINDOW / 2 <= slow.most <= WINDOW / 2 + STEP
    assert len(slow.done) == slow.next[P1] == 600, "others go on at their full rate"
    assert harness.core.holds.reasons(P0) == (Reason.WAITING,)
    assert harness.said(" of it wait for orders-0@0 (key b'hot'), which has been running for ")


def test_what_is_large_and_waits_for_a_slow_record_leaves_half_of_the_bytes() -> None:
    harness = at_two_workers(window_bytes=400_000)
    slow = Slow(harness, size=4_000)
    slow.go_on(rounds=600)
    assert harness.sub().window.bytes <= 200_000 + 4_000 * STEP
    assert len(slow.done) == slow.next[P1]
    assert harness.core.room() > 0


def test_between_two_beats_what_waits_for_a_slow_record_does_not_outrun_the_bound() -> None:
    harness = at_two_workers()
    slow = Slow(harness)
    slow.fetch()
    slow.work()
    harness.beat(2)
    for _ in range(600):  # no time passes any more
        slow.fetch()
        slow.work()
    assert harness.sub().window.records <= WINDOW / 2 + STEP
    assert harness.paused == {P0}


def test_all_keys_of_a_worker_that_waits_for_a_stuck_record_leave_three_quarters() -> None:
    """One thread at a time is in an instance: nobody goes on in its place."""
    harness = at_two_workers(ack_timeout=1.0)
    harness.pool.kind = "instance"
    slow = Slow(harness)
    slow.go_on(rounds=600)
    worker = harness.sub().workers[slow.slow.index]
    assert worker.waits
    behind = sum(1 for _ in worker.row.waiting()) + len(harness.sub().closed)
    assert WINDOW / 4 <= harness.sub().window.records <= WINDOW / 4 + STEP, behind
    assert len(slow.done) == slow.next[P1] == 600


def test_when_the_slow_record_has_ended_its_partition_goes_on() -> None:
    harness = at_two_workers()
    slow = Slow(harness)
    slow.go_on(rounds=600)
    assert harness.paused == {P0}
    before = slow.next[P0]
    slow.slow.finish()
    assert harness.work() == list(range(1, before))
    harness.beat()
    assert harness.paused == set()
    assert not harness.sub().look_ahead.slow


def test_where_there_is_one_partition_it_has_the_whole_window_behind_a_slow_record_too() -> None:
    harness = at_two_workers(partitions=(P0,))
    slow = Slow(harness)
    slow.go_on(rounds=600)
    assert harness.paused == set()
    assert harness.core.room() == 0


def test_where_records_take_less_than_half_a_second_nothing_is_slow() -> None:
    harness = at_two_workers()
    slow = Slow(harness)
    for _ in range(20):
        slow.fetch()
        slow.work()
        harness.beat()
        slow.slow.finish()
    assert not harness.sub().look_ahead.slow
    assert harness.paused == set()


# --- who is held back, and for how long ---


def test_one_partition_has_the_whole_window_for_itself() -> None:
    harness = member(P0)
    hot = Hot(harness, LONGEST)
    hot.go_on(30)
    assert harness.paused == set()
    assert harness.core.room() == 0


def test_a_partition_goes_on_for_what_another_one_holds() -> None:
    harness = member()
    hot = Hot(harness, LONGEST)
    hot.go_on()
    harness.fetch(record(hot.next[P1], "worse", P1))
    harness.work({hot.next[P1]: [LONGEST]})
    harness.beat()
    assert harness.paused == {P0}


def test_a_partition_is_fetched_from_again_once_the_key_has_come_through() -> None:
    harness = member()
    hot = Hot(harness, failure(Disposition.RETRY, after=10.0))
    hot.go_on()
    assert harness.paused == {P0}
    harness.later(10.0)
    started = harness.work()
    assert started == list(range(hot.next[P0])), "in order, none left out"
    harness.beat()
    assert harness.paused == set()


def test_a_partition_that_goes_takes_what_its_keys_held_along() -> None:
    harness = member()
    hot = Hot(harness, LONGEST)
    hot.go_on()
    harness.revoke(P0)
    harness.beat()
    assert harness.paused == set()


def test_a_key_that_is_blocked_after_it_waited_is_named_as_blocked() -> None:
    harness = member(attempts=2)
    hot = Hot(harness, ERROR)
    hot.go_on(rounds=100, every=0.02)
    harness.beat()
    assert harness.core.holds.reasons(P0) == (Reason.BLOCKED,)


# --- what it says ---


def test_the_log_names_the_key_that_holds_the_most_and_when_it_runs_again() -> None:
    harness = member()
    Hot(harness, LONGEST).go_on()
    said = [each.text for each in harness.notices if "cannot run yet" in each.text]
    assert len(said) == 1, "it is told once"
    assert said[0].startswith("orders-0: records of it that cannot run yet fill too much")
    assert said[0].endswith(
        "of the key b'hot' are behind a failure (next try in 60 min); other partitions go on"
    )


# --- what it costs ---


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """How often what closed lanes hold was walked over."""
    from kafka_keyshared.core.limits.blocked_quota import LookAhead

    times: list[float] = []
    look = LookAhead.look

    def counted(self: LookAhead, now: float) -> object:
        times.append(now)
        return look(self, now)

    monkeypatch.setattr(LookAhead, "look", counted)
    yield lambda: len(times)


def test_while_nothing_has_failed_nobody_looks(looks: Callable[[], int]) -> None:
    harness = member()
    for start in range(0, 50 * CHUNK, CHUNK):
        harness.fetch(*[record(offset, f"k{offset}") for offset in range(start, start + CHUNK)])
        harness.work()
        harness.beat()
        harness.commit()
    assert looks() == 0


def test_beside_a_few_that_wait_nobody_looks(looks: Callable[[], int]) -> None:
    harness = member()
    harness.fetch(record(0, "bad"))
    harness.work({0: [LONGEST]})
    for start in range(1, 50 * CHUNK, CHUNK):
        harness.fetch(*[record(offset, f"k{offset}") for offset in range(start, start + CHUNK)])
        harness.work()
    assert looks() == 0

"""How far is read past lanes that are closed: what waits in them never fills the intake."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kafka_keyshared.core.dispositions import Disposition, Failure
from kafka_keyshared.core.holds import Reason
from kafka_keyshared.core.originals import Chunk
from kafka_keyshared.core.parking import Parking
from kafka_keyshared.core.retry_policy import RetryPolicy
from kafka_keyshared.core.settings import SubscriptionSettings
from kafka_keyshared.model import TopicPartition
from tests.support.harness import Harness
from tests.support.records import ERROR, P0, P1, FakeRecord, failure, record

WINDOW = 400
CHUNK = 20
LONGEST = failure(Disposition.RETRY, after=3_600.0)
SHORTEST = failure(Disposition.RETRY, after=0.05)


def member(
    *partitions: TopicPartition,
    attempts: int = 1_000,
    window_bytes: int = 64 << 20,
    max_leases_per_key: int | None = None,
) -> Harness:
    settings = SubscriptionSettings(
        window_records=WINDOW,
        window_bytes=window_bytes,
        retry=RetryPolicy(attempts=attempts),
        max_leases_per_key=max_leases_per_key,
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


@pytest.mark.parametrize("strict", [None, 1], ids=["many leases of a key", "one lease of a key"])
def test_a_key_that_always_fails_with_the_longest_back_off_leaves_three_quarters_to_others(
    strict: int | None,
) -> None:
    harness = member(max_leases_per_key=strict)
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
        "orders-0 is stopped: records behind blocked, diverted or stuck keys fill a quarter"
    )
    assert len(hot.done) == hot.next[P1]
    assert harness.core.room() > 0


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
    sub.places.append(held)
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
    from kafka_keyshared.core.look_ahead import LookAhead

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

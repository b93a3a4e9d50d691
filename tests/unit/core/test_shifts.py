"""Shifts: of full chunks many workers are handed more at a time, and nobody waits in vain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from kafka_keyshared.core import events as ev
from kafka_keyshared.core.commands import Lease
from kafka_keyshared.core.dispatcher import Dispatcher
from kafka_keyshared.core.settings import SubscriptionSettings, worker_names
from kafka_keyshared.core.shifts import PACE, Shifts
from kafka_keyshared.core.workers import Worker
from kafka_keyshared.model import TopicPartition
from tests.support.records import TOPIC, FakeRecord, record

CHUNK = 2_000
NOW = 100.0
PLACES = [TopicPartition(TOPIC, number) for number in range(8)]


class Member:
    """A core that is given chunks one upon the other; its workers have done all at once."""

    def __init__(self, workers: int = 64, **settings: object) -> None:
        names = worker_names(workers)
        self.core = Dispatcher([SubscriptionSettings(workers=names, **settings)])  # type: ignore[arg-type]
        self.core.handle(ev.Assigned(dict.fromkeys(PLACES, ev.StartPoint(0))), NOW)
        self.sub = self.core.subscriptions["default"]
        self.now, self.next = NOW, 0

    def warm(self) -> None:
        """Have the sizes of slices grow, and the workers' turns begin."""
        for _ in range(10):
            self.chunk()

    def chunk(
        self,
        count: int = CHUNK,
        *,
        key: Callable[[int], str | None] = "key-{}".format,
        more: bool = True,
        after: float = 0.001,
    ) -> Counter[int]:
        """Give it one more; return how many records each worker is handed for it."""
        self.now += after
        return self.done(ev.Fetched(*self.records(count, key), more=more))

    def records(
        self, count: int, key: Callable[[int], str | None]
    ) -> tuple[list[FakeRecord], dict[TopicPartition, int]]:
        """Return the next records over all partitions, and the positions behind them."""
        first, self.next = self.next, self.next + count
        chunk = [
            record(number // len(PLACES), key(number), PLACES[number % len(PLACES)])
            for number in range(first, self.next)
        ]
        return chunk, dict.fromkeys(PLACES, -(-self.next // len(PLACES)))

    def done(self, event: ev.Event) -> Counter[int]:
        """Tell it; return how many records each worker is handed, and has done by now."""
        given: Counter[int] = Counter()
        commands = self.core.handle(event, self.now)
        while commands:
            slices = [each.slice for each in commands if isinstance(each, Lease)]
            for slice_ in slices:
                given[slice_.worker] += len(slice_.records)
            ended = [ev.Ended(slice_.id, 0.0001) for slice_ in slices]
            commands = self.core.handle(ev.Reported(ended), self.now)
        return given

    def waiting(self) -> int:
        return sum(len(worker.row) for worker in self.sub.workers.values())


def test_of_full_chunks_each_of_many_workers_is_handed_more_at_a_time() -> None:
    member = Member()
    assert len(member.chunk()) == 64, "nobody knows yet how soon another one comes"
    member.warm()
    shares = [member.chunk() for _ in range(20)]
    assert all(len(each) <= 15 for each in shares), "a fifth of them, and who has enough"
    sizes = [size for each in shares for size in each.values()]
    assert sum(sizes) / len(sizes) > CHUNK / 64 * 4
    assert all(len(set().union(*shares[at : at + 5])) == 64 for at in range(15)), (
        "each has its turn"
    )


def test_what_waits_for_its_turn_leaves_the_window_room_for_more() -> None:
    member = Member()
    for _ in range(30):
        member.chunk()
        assert member.waiting() <= 5_000
        assert member.core.room() >= CHUNK


@pytest.mark.parametrize(
    ("workers", "count", "window", "shifts"),
    [
        pytest.param(64, 2_000, 10_000, 5, id="as many as the window has room for"),
        pytest.param(16, 2_000, 10_000, 2, id="until each has a slice's worth"),
        pytest.param(8, 2_000, 10_000, 1, id="which eight have of one chunk"),
        pytest.param(1, 2_000, 10_000, 1, id="one worker"),
        pytest.param(64, 2_000, 3_999, 1, id="a small window"),
        pytest.param(1_000, 2_000, 1_000_000, 8, id="so that it does not take long"),
        pytest.param(64, 0, 10_000, 8, id="a chunk of which all was settled before"),
    ],
)
def test_there_are_as_many_shifts_as_make_slices_worth_it(
    workers: int, count: int, window: int, shifts: int
) -> None:
    several = [Worker(f"worker-{number}", number, 1_000) for number in range(workers)]
    its = Shifts(window)
    its.came_in(several, count, NOW, more=True)
    its.came_in(several, count, NOW, more=True)
    on = [worker for worker in several if not worker.off_shift]
    assert len(on) == -(-workers // shifts)
    assert (its.due is None) is (shifts == 1)


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(ev.Flush(), id="none has come"),
        pytest.param(ev.Fetched([], {}, more=False), id="nothing follows upon the next"),
    ],
)
def test_all_are_handed_what_waits_as_soon_as_nothing_follows_at_once(event: ev.Event) -> None:
    member = Member()
    member.chunk()
    member.chunk()
    assert member.waiting() > 0
    member.done(event)
    assert member.waiting() == 0
    assert member.core.unsettled_count() == 0


def test_whoever_fetches_no_more_is_asked_for_a_flush_in_time() -> None:
    member = Member()
    member.chunk()
    assert member.core.next_due() is None
    member.chunk()
    assert member.core.subscriptions.wait_for_more()
    assert member.core.next_due() == pytest.approx(member.now + PACE)
    member.done(ev.Flush())
    assert not member.core.subscriptions.wait_for_more()
    assert member.core.next_due() is None


def test_nobody_waits_where_chunks_are_slow() -> None:
    """Their keys may take long to read."""
    member = Member()
    for _ in range(4):
        assert len(member.chunk(after=PACE * 2)) == 64
        assert member.waiting() == 0


def test_a_worker_with_a_slices_worth_is_handed_it_in_any_case() -> None:
    """As one with slow handlers has, whose slices are small."""
    member = Member()
    member.warm()
    for _ in range(10):
        for worker in member.sub.workers.values():
            worker.slice_size = 10 if worker.id % 8 == 0 else worker.slice_max
        given = member.chunk()
        assert {each for each in member.sub.workers if each % 8 == 0} <= given.keys()


def test_records_without_a_key_go_to_those_whose_turn_it_is() -> None:
    member = Member()
    member.chunk()
    given = member.chunk(key=lambda number: None)
    assert len(given) == 13
    assert given.total() == CHUNK


def test_with_one_lease_for_each_key_what_has_been_granted_goes_at_once() -> None:
    member = Member(4, max_leases_per_key=1)
    commands = member.core.handle(ev.Fetched(*member.records(30, lambda number: "same")), NOW)
    (leased,) = [each.slice for each in commands if isinstance(each, Lease)]
    for count in (200, 200):
        member.core.handle(ev.Fetched(*member.records(count, str), more=True), NOW)
    assert member.core.subscriptions.wait_for_more()
    member.sub.workers[leased.worker].off_shift = True
    commands = member.core.handle(ev.Reported([ev.Ended(leased.id, 0.1)]), NOW)
    given = [each.slice for each in commands if isinstance(each, Lease)]
    assert [(each.worker, each.records[0].key()) for each in given] == [(leased.worker, b"same")]


def test_without_reliability_nothing_waits_for_its_turn() -> None:
    """A worker drops what waits beyond its share, and would drop what only waits for more."""
    member = Member(reliable=False)
    given = sum([member.chunk() for _ in range(10)], Counter[int]())
    assert given.total() == 10 * CHUNK
    assert member.sub.counts.dropped == 0

"""The bounds: what may be received, and what one worker may hold."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError

from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.contract.slices import SliceState
from kafka_keyshared.core.records.pristine import Chunk
from kafka_keyshared.core.records.window import SAMPLE_EVERY, Window
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.core.workers.run_queue import SLICE_SECONDS
from kafka_keyshared.core.workers.worker import FIRST_SLICE, Worker
from kafka_keyshared.errors import ConfigError, InvariantError
from kafka_keyshared.headers import HeadersError, read_headers
from tests.support.core_harness import Harness
from tests.support.records import ERROR, P0, FakeRecord, record
from tests.support.slices import slice_of


def sized(count: int, size: int) -> list[FakeRecord]:
    """Records of so many bytes each."""
    return [FakeRecord(P0, offset, None, size=size) for offset in range(count)]


# --- the window ---


def test_the_window_has_room_for_what_is_not_held() -> None:
    window = Window(records_max=10)
    window.receive(Chunk(sized(7, 0)))
    assert window.room() == 3
    window.free(5)
    assert window.room() == 8
    window.receive(Chunk(sized(12, 0)))
    assert window.room() == 0


def test_offsets_that_were_never_received_take_no_room() -> None:
    """Compaction and transactions leave gaps of any length."""
    window = Window(records_max=10)
    window.receive(Chunk([record(0), record(1_000_000), record(1_000_007)]))
    assert window.room() == 7


def test_bytes_are_sampled_while_there_is_room_and_counted_in_full_near_the_bound() -> None:
    window = Window(bytes_max=SAMPLE_EVERY * 1_000)
    mixed = sized(SAMPLE_EVERY, 0)
    mixed[0] = FakeRecord(P0, 0, None, size=800)
    window.receive(Chunk(mixed))
    assert window.bytes == SAMPLE_EVERY * 800  # one of sixteen stands for all
    window.receive(Chunk(mixed))
    assert window.bytes == SAMPLE_EVERY * 800 + 800


def test_room_in_bytes_is_counted_in_records_of_the_mean_size() -> None:
    window = Window(records_max=1_000, bytes_max=16_000)
    window.receive(Chunk(sized(16, 100)))
    assert window.room() == (16_000 - 1_600) // 100 + 1
    window.receive(Chunk(sized(144, 100)))
    assert window.room() == 0


def test_settling_takes_the_mean_away_and_a_correction_replaces_the_estimate() -> None:
    window = Window()
    window.receive(Chunk(sized(32, 50)))
    window.free(8)
    assert window.bytes == pytest.approx(24 * 50)
    window.correct(sized(2, 3))
    assert window.bytes == 24 * 3
    window.free(24)
    assert (window.records, window.bytes) == (0, 0.0)


@pytest.mark.parametrize(("records", "size"), [(0, 1), (1, 0)])
def test_a_window_without_room_at_all_is_refused(records: int, size: int) -> None:
    with pytest.raises(ConfigError, match="both must be at least 1"):
        Window(records, size)


def test_all_that_is_unsettled_counts_to_the_window_wherever_it_stands() -> None:
    harness = Harness(SubscriptionSettings(window_records=20, prefetch_records=4))
    harness.assign()
    harness.fetch(*[record(offset, "ab"[offset % 2]) for offset in range(20)])
    assert harness.core.room() == 0
    harness.work(
        {0: [ERROR]}
    )  # leased, waiting for retry, set aside, queued: all of lane a is held
    assert harness.core.room() == 10
    assert harness.core.unsettled_count() == 10


def test_each_commit_corrects_the_bytes_by_what_is_really_held() -> None:
    harness = Harness()
    harness.assign()
    harness.fetch(*[FakeRecord(P0, at, b"k", size=99 if at == 0 else 1) for at in range(16)])
    assert harness.sub().window.bytes == 1_600
    harness.commit()
    assert harness.sub().window.bytes == 100 + 15 * 2


def test_what_has_settled_and_is_not_reported_yet_makes_no_record_look_smaller() -> None:
    """A commit knows of it; the window still counts it, until its slice has ended."""
    harness = Harness(SubscriptionSettings(window_bytes=64_000))
    harness.assign()
    harness.fetch(*[FakeRecord(P0, at, b"k", size=999) for at in range(32)])
    for _ in range(24):
        assert harness.worker().start() is not None
        harness.worker().finish()
    harness.commit()
    assert harness.sub().window.records == 32
    assert harness.core.room() == 33
    while harness.worker().start() is not None:
        harness.worker().finish()
    harness.deliver()
    assert harness.core.room() == 65


@pytest.mark.parametrize(
    "big",
    [
        FakeRecord(P0, 0, b"k" * 1_000, size=0),
        FakeRecord(P0, 0, b"", size=1_000),
        FakeRecord(P0, 0, None, size=0, headers=[("h", b"v" * 999)]),
        FakeRecord(P0, 0, None, size=0, headers=[("h" * 500, None), ("h" * 500, b"")]),
    ],
    ids=["key", "value", "headers", "names of headers"],
)
def test_keys_values_and_headers_count(big: FakeRecord) -> None:
    window = Window(bytes_max=100_000)
    window.receive(Chunk([big] * 80))
    assert window.bytes == 80 * 1_000
    assert window.room() == 21


def test_headers_are_asked_for_once_in_64_records_and_of_all_near_the_bound() -> None:
    asked = []

    class Asked(FakeRecord):
        def headers(self) -> list[tuple[str, Any]] | None:
            asked.append(self.offset())
            return [("h", b"v" * 99)]

    window = Window(bytes_max=20_000)
    window.receive(Chunk([Asked(P0, offset, None, size=0) for offset in range(130)]))
    assert asked == [0, 64, 128]
    assert window.bytes == 130 * 100
    window.receive(Chunk([Asked(P0, offset, None, size=0) for offset in range(130, 160)]))
    assert asked == [0, 64, 128, 130]
    window.receive(Chunk([Asked(P0, offset, None, size=0) for offset in range(160, 170)]))
    assert asked[4:] == list(range(160, 170))
    window.correct([])
    assert window.bytes == 170 * 100, "what is held is not asked again"
    window.free(170)
    assert window.bytes == 0


def test_headers_that_the_client_cannot_read_stay_unreadable_for_all_who_ask() -> None:
    class Torn(FakeRecord):
        def headers(self) -> list[tuple[str, Any]] | None:
            if self._headers is None:
                self._headers = [("would end", "the process")]
                raise SystemError("returned a result with an exception set")
            return self._headers

    torn = Torn(P0, 0, None, size=5)
    window = Window()
    window.receive(Chunk([torn]))
    assert window.bytes == 5
    looks: list[Callable[[Any], object]] = [list, len, bool, lambda it: it[0], lambda it: "h" in it]
    for look in looks:
        with pytest.raises(SystemError, match="not UTF-8"):
            look(torn.headers())
    with pytest.raises(HeadersError, match="not UTF-8"):
        read_headers(torn)


def test_before_any_size_is_known_as_many_are_received_as_fit_at_a_brokers_largest() -> None:
    window = Window()
    assert window.room() == 64  # of 1 MiB each, in 64 MiB
    window.receive(Chunk(sized(64, 512 << 10)))
    assert window.room() == 65
    window.receive(Chunk(sized(64, 512 << 10)))
    assert window.room() == 0
    window.free(128)
    assert window.room() == 129, "the size is known from those before"
    assert Window(bytes_max=1).room() == 1, "one record may always come"


def test_what_the_client_says_tells_nothing_of_how_large_records_are() -> None:
    """The end of an empty partition comes before its first record, and has a few bytes."""
    harness = Harness()
    harness.assign()
    end = FakeRecord(P0, 0, None, size=20, error=KafkaError(KafkaError._PARTITION_EOF))
    harness.fetch(end)
    assert harness.client_events == [end]
    assert harness.core.room() == 64, "as many as fit if each is as large as a broker takes"
    harness.fetch(end, *sized(63, 1 << 20))
    assert harness.core.room() == 2
    assert harness.core.unsettled_count() == 63


class Table:
    """What says of itself that nobody can say whether it is true, as that of pandas does."""

    def __bool__(self) -> bool:
        raise ValueError("ambiguous")


@pytest.mark.parametrize("content", [7, Table()])
def test_what_a_handler_has_set_counts_nothing_and_harms_nothing(content: object) -> None:
    written, other = sized(1, 10)[0], sized(1, 10)[0]
    written.set_value(content)
    written.set_key(content)
    window = Window()
    window.receive(Chunk(sized(2, 10)))
    window.correct([written, other])
    assert window.bytes == 10


# --- leases ---


def leased_of(*offsets: int) -> SliceState:
    return SliceState(slice_of(*map(record, offsets)))


def held(worker: Worker, count: int, seconds: float) -> None:
    leased = leased_of(*range(count))
    worker.lease(leased)
    worker.release(leased, len(leased), seconds)


def test_a_worker_holds_two_slices_so_that_one_waits_while_one_runs() -> None:
    harness = Harness()
    harness.assign()
    harness.fetch(*[record(offset) for offset in range(200)])
    assert [len(slice_.records) for slice_ in harness.worker().slices()] == [
        FIRST_SLICE,
        FIRST_SLICE,
    ]


@pytest.mark.parametrize("most", [1, 2, 3, 7])
def test_a_worker_never_holds_more_than_its_leases(most: int) -> None:
    harness = Harness(SubscriptionSettings(prefetch_records=most))
    harness.assign()
    harness.fetch(*[record(offset, str(offset)) for offset in range(20)])
    assert sum(len(slice_.records) for slice_ in harness.worker().slices()) <= most
    harness.work({offset: [ERROR] for offset in range(20)})
    harness.later(1.0)
    assert 0 < sum(len(slice_.records) for slice_ in harness.worker().slices()) <= most
    assert sorted(harness.work()) == list(range(20))


class Sized:
    """Records of P0, some without a key, of sizes that differ widely."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.records = [
            FakeRecord(
                P0,
                offset,
                chance.choice([b"a", b"b", b"c", b"d", None]),
                size=chance.choice([1, 10, 100, 999, 5_000]),
            )
            for offset in range(60)
        ]
        self.failing = {each.offset(): [ERROR] for each in self.records if chance.random() < 0.3}


@pytest.mark.parametrize(
    "strict", [False, True], ids=["many leases of a key", "one lease of a key"]
)
@pytest.mark.parametrize("individually", [False, True], ids=["serial", "individually"])
def test_a_worker_never_holds_more_bytes_than_it_may_unless_it_is_a_single_record(
    strict: bool, individually: bool
) -> None:
    for seed in range(10):
        settings = SubscriptionSettings(
            workers=("worker-0", "worker-1"),
            prefetch_bytes=1_000,
            one_in_flight_per_key=strict,
            individually=individually,
            retry=RetryPolicy(backoff=0.0),
        )
        harness = Harness(settings)  # which checks the bound after every event
        harness.assign()
        sized = Sized(seed)
        harness.fetch(*sized.records)
        held = [[*worker.given.values()] for worker in harness.pool.workers.values()]
        assert all(held), "one record always goes"
        started = harness.work(sized.failing)
        for _ in range(20):
            harness.later(0.1)
            started += harness.work()
        assert sorted(set(started)) == list(range(60))
        assert harness.committed()[0] == 60


def test_what_was_granted_its_lanes_lease_fits_beside_what_has_no_key() -> None:
    """With one lease per key, the next of a lane is granted its lease when the one before ends."""
    harness = Harness(SubscriptionSettings(prefetch_bytes=100, one_in_flight_per_key=True))
    harness.assign()
    harness.fetch(*[FakeRecord(P0, offset, b"k", size=49) for offset in (0, 1)])
    harness.fetch(*[FakeRecord(P0, offset, None, size=50) for offset in (2, 3, 4)])
    assert sorted(harness.work()) == [0, 1, 2, 3, 4]  # it checks the bound after every event
    assert harness.sub().workers[0].bytes.held == 0


def test_what_is_recalled_of_a_worker_makes_room_for_other_bytes() -> None:
    harness = Harness(SubscriptionSettings(prefetch_bytes=100))
    harness.assign()
    harness.fetch(*[FakeRecord(P0, offset, b"k", size=49) for offset in range(4)])
    assert harness.sub().workers[0].bytes.held == 100
    assert harness.worker().start() is not None
    harness.recall()
    assert harness.sub().workers[0].leased == 2, "leased again at once"
    harness.worker().finish()
    assert harness.work() == [1, 2, 3]
    assert harness.sub().workers[0].bytes.held == 0


def test_a_fast_handler_gets_slices_twice_as_large_each_time_up_to_half_the_leases() -> None:
    worker = Worker("worker-0", 0, 1_000)
    sizes = []
    for _ in range(6):
        sizes.append(worker.room())
        held(worker, worker.room(), 0.0001)
    assert sizes == [32, 64, 128, 256, 500, 500]


def test_a_slow_handler_gets_slices_of_one() -> None:
    worker = Worker("worker-0", 0, 1_000)
    held(worker, 32, 32 * 5.0)
    assert worker.room() == 1
    held(worker, 1, SLICE_SECONDS / 10)
    assert worker.room() == 2


def test_a_slice_whose_records_were_all_recalled_says_nothing_about_speed() -> None:
    worker = Worker("worker-0", 0, 1_000)
    leased = leased_of(0)
    worker.lease(leased)
    worker.take_back(leased, [0])
    assert worker.leased == 0
    worker.release(leased, len(leased), 30.0)
    assert worker.room() == FIRST_SLICE


def test_reports_out_of_the_order_of_the_leases_are_refused() -> None:
    worker = Worker("worker-0", 0, 1_000)
    first, second = leased_of(0), leased_of(1)
    worker.lease(first)
    worker.lease(second)
    with pytest.raises(InvariantError, match="not the oldest"):
        worker.release(second, len(second), 0.1)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (SubscriptionSettings(prefetch_records=0), "prefetch_records=0"),
        (SubscriptionSettings(prefetch_bytes=0), "prefetch_bytes=0"),
    ],
)
def test_bounds_that_cannot_work_are_refused_by_name(
    settings: SubscriptionSettings, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        Harness(settings)

"""Members that ask for records, without Kafka: leases, lateness, leaving."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared import ConfigError, KeyShared, LeaseOverError
from kafka_keyshared.app.members import PulledRecord, PullMember
from kafka_keyshared.app.split import SplitMember
from kafka_keyshared.clock import Clock
from kafka_keyshared.config.core_settings import subscription_settings
from kafka_keyshared.core.contract.commands import Lapse, Recall, TimeOut
from kafka_keyshared.core.contract.events import Failed, Report, SetAside, SliceEnded
from kafka_keyshared.core.contract.outcomes import Disposition
from kafka_keyshared.core.contract.slices import Slice
from kafka_keyshared.core.records.lane_identity import lane_of
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.executors.mailbox import Mailbox
from kafka_keyshared.executors.pull.pool import PullPool
from kafka_keyshared.executors.pull.pull_inflight import Cell
from tests.support.records import P0, P1, TOPIC, FakeRecord, failure, record
from tests.support.slices import slice_of

CONF = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}


class Bench:
    """One cell with what it reports."""

    def __init__(self) -> None:
        self.reports: Mailbox[Report] = Mailbox()
        self.pool = PullPool(self.reports, Clock())
        self.cell = self.pool.join("worker-0")
        self.shares: dict[int, Slice] = {}

    def put(self, *records: FakeRecord) -> list[Slice]:
        shares = [slice_of(each) for each in records]
        self.shares |= {slice_.id: slice_ for slice_ in shares}
        for slice_ in shares:
            self.cell.put(slice_)
        return shares

    def lapse(self) -> None:
        self.pool.lapse(Lapse("default", 0, tuple(self.shares), frozenset({P0})))

    def said(self) -> list[Report]:
        return [self.reports.get_nowait() for _ in range(self.reports.qsize())]

    def offset_of(self, report: Failed | SetAside | SliceEnded) -> int:
        return self.shares[report.slice].records[0].offset()

    def kinds(self) -> list[str]:
        return [type(each).__name__ for each in self.said()]


@pytest.fixture
def bench() -> Bench:
    return Bench()


# --- a pull member ---


def test_records_come_in_order_and_settle_in_any_order(bench: Bench) -> None:
    member = PullMember(bench.cell)
    first, second = bench.put(record(1), record(2, "other"))
    one, two = member.receive(1), member.receive(1)
    assert one is not None
    assert two is not None
    assert [one.offset(), two.offset()] == [1, 2]
    two.ack()
    one.ack()
    ended = bench.said()
    assert [each.slice for each in ended if isinstance(each, SliceEnded)] == [second.id, first.id]


def test_a_received_record_reads_like_the_clients_own(bench: Bench) -> None:
    plain = record(7, "k")
    bench.put(plain)
    pulled = PullMember(bench.cell).receive(1)
    assert pulled is not None
    for name in ("topic", "partition", "offset", "key", "value", "headers", "timestamp"):
        assert getattr(pulled, name)() == getattr(plain, name)(), name
    assert pulled.leader_epoch() == plain.leader_epoch()
    assert len(pulled) == len(plain)


def test_a_record_of_no_bytes_does_not_end_a_loop(bench: Bench) -> None:
    bench.put(FakeRecord(P0, 1, None, size=0))
    assert PullMember(bench.cell).receive(1)


def test_nothing_to_receive_is_none_after_the_time_and_at_the_end(bench: Bench) -> None:
    member = PullMember(bench.cell)
    assert member.receive(0.01) is None
    bench.cell.end()
    assert member.receive() is None


@pytest.mark.parametrize(
    ("end", "outcome", "message", "after"),
    [
        (lambda pulled: pulled.nack(), Disposition.RETRY, "", None),
        (lambda pulled: pulled.nack(2.5), Disposition.RETRY, "", 2.5),
        (lambda pulled: pulled.dead_letter("why"), Disposition.DEAD_LETTER, "why", None),
    ],
)
def test_a_nack_and_a_dead_letter_are_failures_of_their_kind(
    bench: Bench,
    end: Callable[[Any], None],
    outcome: Disposition,
    message: str,
    after: float | None,
) -> None:
    bench.put(record(1))
    end(PullMember(bench.cell).receive(1))
    failed, ended = bench.said()
    assert isinstance(failed, Failed)
    assert isinstance(ended, SliceEnded)
    assert failed.failure.disposition is outcome
    assert failed.failure.message == message
    assert failed.failure.after == after


@pytest.mark.parametrize("delay", [-1.0, float("nan")])
def test_a_delay_is_seconds_and_not_negative(bench: Bench, delay: float) -> None:
    bench.put(record(1))
    pulled = PullMember(bench.cell).receive(1)
    assert pulled is not None
    with pytest.raises(ValueError, match="a number from 0 to"):
        pulled.nack(delay)
    assert bench.said() == []
    pulled.ack()


@pytest.mark.parametrize("late", ["ack", "nack", "dead_letter"])
def test_a_second_word_about_a_record_is_refused_and_changes_nothing(
    bench: Bench, late: str
) -> None:
    bench.put(record(1))
    pulled = PullMember(bench.cell).receive(1)
    assert pulled is not None
    pulled.ack()
    bench.said()
    with pytest.raises(LeaseOverError, match=r"orders-0@1: worker-0 no longer has it"):
        getattr(pulled, late)()
    assert bench.said() == []


@pytest.mark.parametrize("late", ["ack", "nack", "dead_letter"])
def test_past_the_ack_timeout_the_attempt_has_failed_and_a_late_word_is_refused_and_counted(
    bench: Bench, late: str
) -> None:
    bench.put(record(1))
    pulled = PullMember(bench.cell).receive(1)
    assert pulled is not None
    (slice_,) = bench.cell.held()
    assert bench.cell.end_leases([slice_.id]) == [slice_]
    failed, _ = bench.said()
    assert isinstance(failed, Failed)
    assert (failed.failure.error_type, failed.failure.timed_out) == ("LeaseTimeoutError", True)
    with pytest.raises(LeaseOverError):
        getattr(pulled, late)()
    assert bench.said() == []
    assert bench.cell.take_refused() == 1
    assert bench.cell.take_refused() == 0


def timed_out(bench: Bench, _pulled: PulledRecord) -> None:
    bench.pool.time_out(TimeOut("default", 0, tuple((id_, 0) for id_ in bench.shares)))


def behind_a_failed_one(bench: Bench, _pulled: PulledRecord) -> None:
    """Of two of a key in hand the first fails, and the second goes back with it."""
    (before, _) = bench.cell.held()
    bench.cell.fail(before, failure())


ENDS: dict[str, Callable[[Bench, PulledRecord], object]] = {
    "acknowledged": lambda _, pulled: pulled.ack(),
    "failed": lambda _, pulled: pulled.nack(),
    "dead-lettered": lambda _, pulled: pulled.dead_letter(),
    "timed out": timed_out,
    "set aside": behind_a_failed_one,
    "partition gone": lambda bench, _: bench.lapse(),
    "member left": lambda bench, _: bench.cell.leave(),
    "member broke": lambda bench, _: bench.cell.leave(broken=True),
    "instance over": lambda bench, _: bench.pool.stop(0.0),
    "in a forked child": lambda bench, _: bench.pool.forked(),
}
"""How a lease ends before its member has said a word, or another."""

WORDS: dict[str, Callable[[PulledRecord], None]] = {
    "ack": lambda pulled: pulled.ack(),
    "nack": lambda pulled: pulled.nack(),
    "nack with a delay": lambda pulled: pulled.nack(2.5),
    "dead_letter": lambda pulled: pulled.dead_letter("why"),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("word", WORDS)
def test_each_word_behind_each_end_of_a_lease_is_refused_and_counted_and_settles_nothing(
    bench: Bench, end: str, word: str
) -> None:
    member = PullMember(bench.cell)
    bench.put(*[record(at) for at in range(1 + (end == "set aside"))])
    pulled = [member.receive(1) for _ in bench.shares][-1]
    assert pulled is not None
    ENDS[end](bench, pulled)
    bench.said()
    assert bench.pool.late() == {"default": 0}
    for times in (1, 2):
        with pytest.raises(
            LeaseOverError, match=f"orders-0@{pulled.offset()}: worker-0 no longer has it"
        ):
            WORDS[word](pulled)
        # The owner waits for the end of everything that it has leased, and has asked nobody else.
        ended = times == 1 and end in ("partition gone", "instance over")
        failed = ["Failed"] if word != "ack" else []
        assert bench.kinds() == ([*failed, "SliceEnded"] if ended else [])
        assert bench.pool.late() == {"default": 1}
    assert bench.cell.held() == []


def test_a_record_of_a_partition_that_has_gone_is_ended_and_its_ack_refused(bench: Bench) -> None:
    (slice_,) = bench.put(record(1))
    pulled = PullMember(bench.cell).receive(1)
    assert pulled is not None
    bench.cell.lapse([slice_.id])
    with pytest.raises(LeaseOverError):
        pulled.ack()
    assert bench.kinds() == ["SliceEnded"], (
        "the owner waits for the end of everything it has leased"
    )


def test_a_member_that_leaves_hands_back_what_it_had_in_order(bench: Bench) -> None:
    member = PullMember(bench.cell)
    bench.put(record(1, "a"), record(2, "b"), record(3, "a"))
    for _ in range(3):
        member.receive(1)
    member.close()
    said = bench.said()
    assert [
        (type(each).__name__, bench.offset_of(each))
        for each in said
        if isinstance(each, Failed | SetAside)
    ] == [("Failed", 1), ("SetAside", 3), ("Failed", 2)]
    assert sum(isinstance(each, SliceEnded) for each in said) == 3
    assert member.receive(1) is None
    assert bench.cell.left


def test_behind_a_failed_record_a_member_hands_back_its_lane_until_the_fence(
    bench: Bench,
) -> None:
    """Nothing of a lane may be settled before the record that failed."""
    member = PullMember(bench.cell)
    bench.put(record(1, "a"), record(2, "a"), record(3, "b"), record(4, "a"))
    first, second = member.receive(1), member.receive(1)
    assert first is not None
    assert second is not None
    first.nack()
    bench.put(record(5, "a"))
    aside = [bench.offset_of(each) for each in bench.said() if isinstance(each, SetAside)]
    assert aside == [2, 4, 5]
    with pytest.raises(LeaseOverError):
        second.ack()
    other = member.receive(1)
    assert other is not None
    assert other.offset() == 3
    bench.cell.pass_fence({lane_of(record(1, "a"))})
    bench.put(record(1, "a"))
    again = member.receive(1)
    assert again is not None
    assert again.offset() == 1


def test_a_dismissed_member_gets_nothing_more_and_may_settle_what_it_has(bench: Bench) -> None:
    member = PullMember(bench.cell)
    _, second = bench.put(record(1, "a"), record(2, "b"))
    got = member.receive(1)
    assert got is not None
    bench.cell.dismiss()
    assert member.receive(30) is None
    got.ack()
    assert [type(each).__name__ for each in bench.said()] == ["SliceEnded"]
    assert bench.cell.recall(None) == [(second.id, range(1))]


def test_a_member_that_breaks_has_failed_and_one_that_leaves_has_not(bench: Bench) -> None:
    """Or one attempt would be enough for a stop to drop or dead-letter what was never tried."""

    def said_by(leave: Callable[[PullMember], None]) -> list[Disposition]:
        cell = Cell("worker-0", bench.reports.put, Clock())
        cell.put(slice_of(record(1)))
        member = PullMember(cell)
        assert member.receive(1) is not None
        leave(member)
        return [each.failure.disposition for each in bench.said() if isinstance(each, Failed)]

    def breaks(member: PullMember) -> None:
        with pytest.raises(ValueError, match="bad"), member:
            raise ValueError("bad")

    def is_interrupted(member: PullMember) -> None:
        with pytest.raises(KeyboardInterrupt), member:
            raise KeyboardInterrupt

    assert said_by(PullMember.close) == [Disposition.GIVEN_BACK]
    assert said_by(is_interrupted) == [Disposition.GIVEN_BACK]
    assert said_by(breaks) == [Disposition.ERROR]


def test_once_the_instance_is_over_a_word_about_a_record_is_refused(bench: Bench) -> None:
    """Nobody hears it any more: the record runs again at the next start."""
    member = PullMember(bench.cell)
    bench.put(record(1), record(2, "other"))
    first, second = member.receive(1), member.receive(1)
    assert first is not None
    assert second is not None
    bench.cell.end()
    with pytest.raises(LeaseOverError):
        first.ack()
    with pytest.raises(LeaseOverError):
        second.nack()


class Telling(threading.Condition):
    """A condition that tells when somebody waits at it."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_at = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.waited_at.set()  # still locked: nobody can notify before the wait has begun
        return super().wait(timeout)


WAKERS: dict[str, Callable[[Bench], object]] = {
    "a record": lambda bench: bench.put(record(1)),
    "its leaving": lambda bench: bench.cell.leave(),
    "the end": lambda bench: bench.cell.end(),
    "the pool's end": lambda bench: bench.pool.stop(0.0),
}


@pytest.mark.parametrize("waker", WAKERS)
def test_a_waiting_member_is_woken(bench: Bench, waker: str) -> None:
    bench.cell._changed = condition = Telling()
    got: list[Any] = []
    waiting = threading.Thread(
        target=lambda: got.append(PullMember(bench.cell).receive()), daemon=True
    )
    waiting.start()
    assert condition.waited_at.wait(60)
    assert got == []
    WAKERS[waker](bench)
    waiting.join(30)
    assert [each is not None for each in got] == [waker == "a record"]


@pytest.mark.parametrize("waker", WAKERS)
def test_a_member_that_waits_in_an_event_loop_is_woken(bench: Bench, waker: str) -> None:
    async def wait_for_it() -> object:
        waiting = asyncio.create_task(PullMember(bench.cell).receive_async())
        await asyncio.sleep(0)
        assert not waiting.done()
        waking = threading.Thread(target=WAKERS[waker], args=(bench,))
        waking.start()
        try:
            return await asyncio.wait_for(waiting, 30)
        finally:
            waking.join()

    assert (asyncio.run(wait_for_it()) is not None) is (waker == "a record")


def test_receive_async_does_not_block_its_event_loop(bench: Bench) -> None:
    async def consume() -> list[int]:
        member = PullMember(bench.cell)
        waiting = asyncio.create_task(member.receive_async())
        await asyncio.sleep(0)
        assert not waiting.done()
        threading.Thread(target=lambda: bench.put(record(5))).start()
        pulled = await asyncio.wait_for(waiting, 30)
        assert pulled is not None
        pulled.ack()
        assert await member.receive_async(0.01) is None
        bench.cell.end()
        assert await member.receive_async() is None
        return [pulled.offset()]

    assert asyncio.run(consume()) == [5]


def test_a_cancelled_receive_takes_no_record_along(bench: Bench) -> None:
    async def consume() -> int:
        member = PullMember(bench.cell)
        waiting = asyncio.create_task(member.receive_async())
        await asyncio.sleep(0)
        bench.put(record(5))
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        pulled = await member.receive_async(1)
        assert pulled is not None
        return pulled.offset()

    assert asyncio.run(consume()) == 5


@pytest.mark.parametrize("rounds", range(6))
def test_a_receive_that_is_cancelled_as_it_wakes_takes_no_record_along(
    bench: Bench, rounds: int
) -> None:
    """``asyncio.wait_for`` of Python 3.11 would swallow that cancellation."""
    member = PullMember(bench.cell)

    async def cancel_as_it_wakes() -> bool:
        waiting = asyncio.create_task(member.receive_async(30))
        while not bench.cell._wakers:
            await asyncio.sleep(0)
        bench.put(record(5))
        for _ in range(rounds):
            await asyncio.sleep(0)
        in_time = waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled() == in_time
        return in_time

    cancelled = asyncio.run(cancel_as_it_wakes())
    assert len(bench.cell.held()) == (0 if cancelled else 1)


def test_receives_that_found_nothing_leave_nothing_behind(bench: Bench) -> None:
    member = PullMember(bench.cell)

    async def look(times: int) -> None:
        for _ in range(times):
            assert await member.receive_async(0) is None

    asyncio.run(look(3))
    assert not bench.cell._wakers


# --- a split member ---


def member_of(bench: Bench, *, auto_ack: bool = False) -> SplitMember:
    return SplitMember(bench.cell, lambda timeout: None, auto_ack=auto_ack)


def settled(bench: Bench) -> list[int]:
    return [bench.offset_of(each) for each in bench.said() if isinstance(each, SliceEnded)]


def test_committing_a_message_settles_it_and_all_before_it_of_its_partition(bench: Bench) -> None:
    member = member_of(bench)
    bench.put(record(1, "a"), record(2, "b"), record(1, "c", P1), record(3, "a"))
    found = member.consume(10, 1)
    member.commit(message=found[1])
    assert settled(bench) == [1, 2]
    member.commit()
    assert settled(bench) == [1, 3]
    member.commit()
    assert settled(bench) == []


def test_once_the_instance_has_failed_a_poll_says_so_whatever_still_waits(bench: Bench) -> None:
    """What waits would run for nothing: nobody hears any more that it is done."""
    member = SplitMember(bench.cell, lambda timeout: OSError("disk full"), auto_ack=False)
    bench.put(record(1))
    bench.cell.end()
    with pytest.raises(KeySharedError, match=r"the instance has failed: disk full"):
        member.poll(0)


def test_offsets_are_exclusive_as_the_clients_are(bench: Bench) -> None:
    member = member_of(bench)
    bench.put(record(1), record(2), record(3))
    member.consume(10, 1)
    offsets = [ClientPartition("orders", 0, 3)]
    member.store_offsets(offsets=offsets)
    assert settled(bench) == [1, 2]


def test_what_comes_late_waits_until_nothing_later_is_held(bench: Bench) -> None:
    """A commit says what is done by an offset, and would settle what has only just come."""
    bench.cell = Cell("worker-0", bench.reports.put, Clock(), ascending=True)
    member = member_of(bench)
    bench.put(record(3, "a"), record(5, "b"), record(0, "c"), record(0, "c", P1), record(7, "c"))
    first = member.consume(10, 1)
    assert [each.offset() for each in first] == [3, 5], "and the lane waits with its record"
    member.commit(message=first[0])
    assert settled(bench) == [3]
    assert member.consume(10, 0) == []
    member.commit(message=first[1])
    assert [each.offset() for each in member.consume(10, 1)] == [0, 0, 7]
    assert settled(bench) == [5]


def test_a_member_that_waits_is_woken_by_a_commit_from_another_thread(bench: Bench) -> None:
    bench.cell = Cell("worker-0", bench.reports.put, Clock(), ascending=True)
    member = member_of(bench)
    bench.put(record(3, "a"), record(0, "c"))
    assert member.poll(1) is not None
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(member.poll(30)))
    waiting.start()
    member.commit()
    waiting.join(30)
    assert [each.offset() for each in found] == [0]


def test_a_message_that_is_not_held_any_more_settles_nothing(bench: Bench) -> None:
    """Such as one of an earlier epoch, while the partition is read again from further back."""
    member = member_of(bench)
    bench.put(record(9, "a"))
    late = member.poll(1)
    member.commit(message=late)
    bench.put(record(2, "b"))
    assert member.poll(1) is not None
    bench.said()
    member.commit(message=late)
    assert settled(bench) == []


def test_with_auto_ack_the_next_poll_settles_what_the_last_one_returned(bench: Bench) -> None:
    member = member_of(bench, auto_ack=True)
    bench.put(record(1), record(2), record(3))
    assert len(member.consume(2, 1)) == 2
    assert settled(bench) == []
    assert member.poll(1) is not None
    assert settled(bench) == [1, 2]
    assert member.poll(0) is None
    assert settled(bench) == [3]


def test_without_auto_ack_a_poll_settles_nothing(bench: Bench) -> None:
    member = member_of(bench)
    bench.put(record(1), record(2))
    member.poll(1)
    member.poll(1)
    assert settled(bench) == []


def test_a_message_and_offsets_at_once_are_refused(bench: Bench) -> None:
    bench.put(record(1))
    member = member_of(bench)
    found = member.poll(1)
    with pytest.raises(ConfigError, match="not both"):
        member.commit(message=found, offsets=[ClientPartition("orders", 0, 1)])
    assert bench.said() == []


# --- an app with members ---


def pull_app(**options: Any) -> KeyShared:
    return KeyShared(CONF, ["orders"], workers="pull", **options)


def test_members_have_names_of_their_own() -> None:
    app = pull_app()
    app.join("a")
    for name in ("a", ""):
        with pytest.raises(ConfigError, match="a name of its own"):
            app.join(name)


def test_an_app_with_threads_has_no_members() -> None:
    with pytest.raises(ConfigError, match="workers='pull'"):
        KeyShared(CONF, ["orders"], workers=2).join("a")


def test_without_a_member_it_does_not_run() -> None:
    with pytest.raises(ConfigError, match="no member"):
        pull_app().run()


def test_members_and_a_handler_are_one_too_many() -> None:
    app = pull_app()
    app.join("a")
    app.handler(lambda record: None)
    with pytest.raises(ConfigError, match="a handler"):
        app.run()


def test_members_decode_for_themselves() -> None:
    with pytest.raises(ConfigError, match="value_deserializer"):
        pull_app(value_deserializer=lambda data, context: data)


def test_members_lease_one_record_of_a_key_for_30_s() -> None:
    pulled = subscription_settings(pull_app().options)
    assert (pulled.ack_timeout, pulled.one_in_flight_per_key) == (30.0, True)
    assert subscription_settings(pull_app(ack_timeout=2.0).options).ack_timeout == 2.0
    split = subscription_settings(KeyShared(CONF, ["orders"], workers="split:3").options)
    assert split.ack_timeout is None, "a loop has as long as it had with one consumer"
    limited = KeyShared(CONF, ["orders"], workers="split:3", ack_timeout=2.0).options
    assert subscription_settings(limited).ack_timeout == 2.0, "unless somebody asks for a limit"
    assert not split.one_in_flight_per_key
    assert split.individually
    assert subscription_settings(KeyShared(CONF, ["orders"], workers=3).options).ack_timeout is None


def test_the_pool_names_the_members_that_have_left() -> None:
    pool = PullPool(Mailbox(), Clock())
    pool.join("stays")
    leaves = pool.join("leaves")
    assert pool.departed() == []
    leaves.leave()
    assert pool.departed() == [("default", 1)]


def test_members_of_an_app_that_cannot_start_do_not_wait_for_ever() -> None:
    app = pull_app()
    member = app.join("a")
    app.conf["no.such.setting"] = ""
    with pytest.raises(ConfigError):
        app.run()
    assert member.receive() is None


def test_what_a_member_writes_into_its_records_goes_with_their_failure(bench: Bench) -> None:
    failing, behind, other = record(1), record(2), record(3, "other")
    bench.put(failing, behind, other)
    shares = bench.cell.take(3, 1)
    for each in (failing, behind, other):
        each.set_key({"id": 1})
        each.set_topic({"not": "hashable"})
    assert bench.cell.fail(shares[0], failure())
    assert [type(each) for each in bench.said()] == [Failed, SliceEnded, SetAside, SliceEnded]
    assert [(each.topic(), each.key()) for each in (failing, behind)] == [(TOPIC, b"k")] * 2
    assert bench.cell.settle(shares[2:]) == [], "the other key is still the member's"


def drained(queue: SimpleQueue[Any]) -> list[Any]:
    """Return what is in a queue that nobody puts into any more."""
    return [queue.get_nowait() for _ in range(queue.qsize())]


def test_each_record_is_received_or_given_back_while_members_ask_from_threads_of_their_own() -> (
    None
):
    """What a handler's thread is asked by ``tests/unit/executors/test_handover.py``."""
    mailbox: Mailbox[Any] = Mailbox()
    pool = PullPool(mailbox, Clock())
    cell = pool.join("worker-0")
    pool.start()
    received: SimpleQueue[int] = SimpleQueue()
    switching = sys.getswitchinterval()

    def ask() -> None:
        while taken := cell.take(3, 30.0):
            for slice_ in taken:
                received.put(slice_.id)
            assert cell.settle(taken) == []

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(3)]
    given, back = [], []
    sys.setswitchinterval(1e-6)
    try:
        for each in threads:
            each.start()
        for number in range(2_000):
            slice_ = slice_of(record(number, None))
            given.append(slice_.id)
            pool.submit(slice_)
            if number % 3 == 0:
                back += [id_ for id_, those in pool.recall(Recall("default", 0)).slices if those]
    finally:
        sys.setswitchinterval(switching)
    back += [id_ for id_, those in pool.recall(Recall("default", 0)).slices if those]
    cell.dismiss()
    for each in threads:
        each.join(30.0)
    assert sorted([*drained(received), *back]) == given
    assert sorted(each.slice for each in drained(mailbox)) == given, "and each ended once"

"""A split consumer as a whole, without a broker: members, commits, the end, and what fails."""

from __future__ import annotations

import logging
import os
import signal
import sys
import sysconfig
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Message
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared import ConfigError, Consumer, KeyShared, KeySharedError, split
from kafka_keyshared.app import split as module
from kafka_keyshared.app.split import Split, SplitMember
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import Record
from kafka_keyshared.runtime.instance_view import InstanceView
from tests.support.offline_instance import CONF, OfflineBroker
from tests.support.records import P0, record

WAIT = 60.0


def divided(
    broker: OfflineBroker, members: int = 1, *, auto_ack: bool = False, **options: Any
) -> Split:
    """An instance that is split, already running."""
    given = {"commit_interval": 0.05, **options}
    app = KeyShared(CONF, ["orders"], workers=f"split:{members}", hooks=broker.hooks, **given)
    return Split(app, members, auto_ack=auto_ack)


def received(member: SplitMember, count: int) -> list[Message]:
    """Poll until so many records have come."""
    found: list[Message] = []
    while len(found) < count:
        got = member.poll(WAIT)
        assert got is not None, f"only {len(found)} of {count} came"
        found.append(got)
    return found


@pytest.fixture
def broker() -> OfflineBroker:
    return OfflineBroker(*(record(offset) for offset in range(5)))


def test_what_is_committed_is_what_the_member_says_is_done(broker: OfflineBroker) -> None:
    with divided(broker) as members:
        got = received(members[0], 5)
        assert [each.offset() for each in got] == [0, 1, 2, 3, 4]
        members[0].commit(got[2])
        assert broker.wait_for(3)
        members[0].commit(offsets=[ClientPartition(*P0, 4)])
        assert broker.wait_for(4)
        members[0].store_offsets(got[4])
        assert broker.wait_for(5)
    assert max(broker.positions()) == 5
    assert members.status == 0
    assert broker.closed == 1


def test_a_commit_without_a_message_is_of_everything_received(broker: OfflineBroker) -> None:
    with divided(broker) as members:
        got = members[0].consume(2, WAIT)
        members[0].commit(asynchronous=False)
        assert broker.wait_for(len(got))
    assert max(broker.positions()) == len(got)


def test_with_auto_ack_a_poll_settles_what_the_one_before_it_returned(
    broker: OfflineBroker,
) -> None:
    with divided(broker, auto_ack=True) as members:
        received(members[0], 3)
        assert broker.wait_for(2)
    assert max(broker.positions()) == 2, "the last one may still be in work"


def test_a_member_settles_nothing_twice_and_nothing_that_is_not_its_own(
    broker: OfflineBroker,
) -> None:
    foreign: Any = record(4)
    with divided(broker) as members:
        got = received(members[0], 3)
        members[0].commit(foreign)
        members[0].commit(got[0])
        members[0].commit(got[0])
        assert broker.wait_for(1)
    assert max(broker.positions()) == 1


def test_a_commit_takes_a_message_or_offsets(broker: OfflineBroker) -> None:
    with divided(broker) as members:
        (got,) = received(members[0], 1)
        with pytest.raises(ConfigError, match="not both"):
            members[0].commit(got, [ClientPartition(*P0, 1)])
        with pytest.raises(ConfigError, match="was not received from a topic"):
            members[0].commit(Message())
        assert broker.positions() in ([], [0])


def test_the_members_of_a_split_are_a_sequence(broker: OfflineBroker) -> None:
    with divided(broker, 3) as members:
        assert len(members) == 3
        assert [each.name for each in members] == ["worker-0", "worker-1", "worker-2"]
        assert members[1:] == [members[1], members[2]]


def test_a_member_that_leaves_hands_on_what_it_has_not_settled() -> None:
    broker = OfflineBroker(*(record(offset, f"key-{offset}") for offset in range(40)))
    with divided(broker, 2) as members:
        first, second = members
        with first:
            mine = {each.offset() for each in first.consume(40, WAIT)}
        seen: set[int | None] = set()
        while len(seen) < 40:
            got = second.poll(WAIT)
            assert got is not None
            seen.add(got.offset())
            second.commit(got)
        assert mine
        assert mine < seen
        assert broker.wait_for(40)


def test_after_a_clean_end_a_member_gets_nothing_and_does_not_wait(broker: OfflineBroker) -> None:
    members = divided(broker)
    received(members[0], 5)
    assert members.close(WAIT) == 0
    assert members[0].poll() is None
    assert members[0].consume(3) == []


def ended(broker: OfflineBroker) -> Split:
    """A split whose instance has ended by itself, as its member has noticed."""
    members = divided(broker)
    with pytest.raises(KeySharedError, match="worker-0: the instance has failed"):
        received(members[0], 6)
    return members


def test_what_the_instance_failed_with_reaches_members_and_close(broker: OfflineBroker) -> None:
    def breaks(view: InstanceView) -> None:
        if view.leased():
            raise InvariantError("planted")

    failing = OfflineBroker(*broker.records, stepped=breaks)
    members = ended(failing)
    for _ in range(2):
        with pytest.raises(KeySharedError, match="planted"):
            members[0].poll(WAIT)
    with pytest.raises(InvariantError, match="planted"):
        members.close(WAIT)
    assert failing.closed == 1


def test_an_instance_that_has_to_halt_is_a_failure_too(broker: OfflineBroker) -> None:
    made: list[Split] = []

    def halts(view: InstanceView) -> None:
        if view.leased() and made and made[0].app.instance is not None:
            made[0].app.instance.loop.halted = "no right to read"

    # What the member has by then stays in its hand, and the stop waits for it.
    members = divided(OfflineBroker(*broker.records, stepped=halts), stop_timeout=0.1)
    made.append(members)
    with pytest.raises(KeySharedError, match="worker-0: the instance has failed"):
        received(members[0], 6)
    with pytest.raises(KeySharedError, match="it had to halt: no right to read"):
        members.close(WAIT)


def test_an_instance_that_does_not_even_start_lets_no_member_wait(broker: OfflineBroker) -> None:
    app = KeyShared(CONF, ["orders"], workers="split:1", hooks=broker.hooks)
    app.handler(print)
    members = Split(app, 1, auto_ack=False)
    with pytest.raises(KeySharedError, match="and a handler: members ask for records"):
        members[0].poll(WAIT)
    with pytest.raises(ConfigError):
        members.close(WAIT)


# --- run(): the loops on threads of their own ---


def looping(*records: Record, members: int = 2, **options: Any) -> tuple[OfflineBroker, Split]:
    broker = OfflineBroker(*records)
    return broker, divided(broker, members, **options)


def sends(number: int) -> None:
    """Send a signal to this process, whose main thread waits in run()."""
    os.kill(os.getpid(), number)


ORDERS = [record(offset, f"key-{offset}") for offset in range(40)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_loops_that_know_nothing_of_it_once_their_record_is_done(
    number: int,
) -> None:
    broker, members = looping(*ORDERS)
    done: list[int | None] = []
    left: list[str] = []

    def loop(consumer: SplitMember) -> None:
        try:
            while True:
                message = consumer.poll(WAIT)
                if message is None:
                    continue
                if message.offset() == 0:
                    sends(number)
                done.append(message.offset())
                consumer.commit(message)
        finally:
            left.append(consumer.name)

    assert members.run(loop) == 0
    assert 0 in done
    assert sorted(left) == ["worker-0", "worker-1"]
    assert broker.closed == 1
    assert max(broker.positions()) >= 1, "the record in hand was done and is committed"


def test_a_loop_that_looks_at_a_flag_ends_by_it() -> None:
    _, members = looping(*ORDERS)
    stopping = threading.Event()
    ends: list[str] = []

    def loop(consumer: SplitMember) -> None:
        while not stopping.is_set():
            message = consumer.poll(WAIT)
            if message is not None:
                consumer.commit(message)
                if message.offset() == 0:
                    sends(signal.SIGTERM)
        ends.append("by itself")

    before = signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    try:
        assert members.run(loop) == 0
        assert callable(signal.getsignal(signal.SIGTERM)), "the program's own is back"
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ends == ["by itself", "by itself"]


def stopped_by_sigterm(members: Split, handler: Any) -> int:
    """Run loops until the first record sends SIGTERM, for which the process has this handler."""

    def loop(consumer: SplitMember) -> None:
        while True:
            message = consumer.poll(WAIT)
            if message is not None:
                if message.offset() == 0:
                    sends(signal.SIGTERM)
                consumer.commit(message)

    before = signal.signal(signal.SIGTERM, handler)
    try:
        return members.run(loop)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_handler_of_the_programs_that_exits_does_not_cut_the_stop_short() -> None:
    broker, members = looping(*ORDERS)

    def exits(*_: object) -> None:
        sys.exit(7)

    assert stopped_by_sigterm(members, exits) == 0
    assert broker.closed == 1


def test_a_handler_that_a_library_has_set_is_not_called() -> None:
    """It may save what it has and end the process at once, with records in hand."""
    broker, members = looping(*ORDERS)
    library = {"called": 0}
    source = "def ends_the_process(*_):\n    global called\n    called += 1\n"
    exec(compile(source, f"{sysconfig.get_path('purelib')}/library.py", "exec"), library)
    handler: Any = library["ends_the_process"]

    assert stopped_by_sigterm(members, handler) == 0
    assert library["called"] == 0
    assert broker.closed == 1


def test_what_one_loop_raises_ends_the_program_as_it_did(caplog: pytest.LogCaptureFixture) -> None:
    broker, members = looping(*ORDERS)
    settled: list[int | None] = []

    def loop(consumer: SplitMember) -> None:
        while True:
            message = consumer.poll(WAIT)
            if message is None:
                continue
            if message.offset() == 3:
                raise KeyError("customer_id")
            settled.append(message.offset())
            consumer.commit(message)

    with caplog.at_level("INFO"), pytest.raises(KeyError, match="customer_id") as raised:
        members.run(loop)
    assert any(entry.name == "loop" for entry in raised.traceback), "the loop's own line is there"
    assert 3 not in settled
    assert max(broker.positions(), default=0) <= 3, "the record is not committed"
    assert broker.closed == 1, "the group is left"
    assert "its loop failed, so the program stops: KeyError at" in caplog.text
    assert "received but not settled; it runs again at the next start: orders-0@3" in caplog.text


def test_a_loop_that_closes_its_consumer_on_the_way_is_told_of_as_any_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As everybody has it: what the member held is known, and nobody speaks of an attempt."""
    broker, members = looping(*ORDERS, members=4)

    def loop(consumer: SplitMember) -> None:
        try:
            while True:
                message = consumer.poll(WAIT)
                if message is None:
                    continue
                if message.offset() == 3:
                    raise KeyError("customer_id")
                consumer.commit(message)
        finally:
            consumer.close()

    with caplog.at_level("INFO"), pytest.raises(KeyError, match="customer_id"):
        members.run(loop)
    assert "received but not settled; it runs again at the next start: orders-0@3" in caplog.text
    assert "attempt" not in caplog.text
    assert "has left" not in caplog.text
    assert broker.closed == 1


def test_members_that_leave_because_of_the_stop_leave_nobody_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also where a heartbeat comes between them, and where one breaks on its way out."""
    _, members = looping(*ORDERS, members=3)
    first, beaten = threading.Event(), threading.Event()

    def loop(consumer: SplitMember) -> None:
        try:
            while True:
                if consumer.poll(WAIT) is None:
                    continue
                if not first.is_set():
                    first.set()
                    sends(signal.SIGTERM)
                while not members._cells[0].dismissed:
                    beaten.wait(0.01)
                raise RuntimeError("on its way out")
        finally:
            consumer.close()

    with caplog.at_level("INFO"), pytest.raises(RuntimeError, match="on its way out"):
        members.run(loop)
    assert "attempt" not in caplog.text
    assert "has left" not in caplog.text


def test_an_exception_that_does_not_come_out_of_the_loop_hands_its_records_on() -> None:
    broker, members = looping(*(record(offset, "key") for offset in range(3)), members=2)
    failed: list[str] = []

    def work(consumer: SplitMember) -> None:
        with consumer:
            while True:
                message = consumer.poll(WAIT)
                if message is None:
                    continue
                if not failed:
                    failed.append(consumer.name)
                    raise RuntimeError("a decline")
                consumer.commit(message)
                if message.offset() == 2:
                    return

    def loop(consumer: SplitMember) -> None:
        try:
            work(consumer)
        except RuntimeError:
            assert consumer.poll(0) is None

    assert members.run(loop) == 0
    assert max(broker.positions()) == 3


def test_a_record_that_a_loop_fails_on_runs_nowhere_else() -> None:
    runs = 0
    _, members = looping(*(record(offset, "key") for offset in range(40)), members=3)

    def loop(consumer: SplitMember) -> None:
        nonlocal runs
        while True:
            message = consumer.poll(WAIT)
            if message is not None:
                runs += 1
                raise RuntimeError("a decline")

    with pytest.raises(RuntimeError, match="a decline"):
        members.run(loop)
    assert runs == 1


def test_a_loop_that_exits_ends_the_program_with_its_status() -> None:
    _, members = looping(*ORDERS)

    def loop(consumer: SplitMember) -> None:
        while consumer.poll(WAIT) is None:
            continue
        sys.exit(3)

    with pytest.raises(SystemExit) as raised:
        members.run(loop)
    assert raised.value.code == 3


def test_loops_that_return_hand_their_keys_to_the_others_until_the_last(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker, members = looping(*ORDERS, members=3)
    seen: set[int | None] = set()

    def loop(consumer: SplitMember) -> None:
        if consumer.name == "worker-1":
            return
        while len(seen) < 40:
            message = consumer.poll(0.05)
            if message is not None:
                consumer.commit(message)
                seen.add(message.offset())

    with caplog.at_level("INFO"):
        assert members.run(loop) == 0
    assert len(seen) == 40
    assert max(broker.positions()) == 40
    assert "worker-1 has left; its keys go to the other workers" in caplog.text


def test_an_instance_that_fails_ends_the_loops_and_is_raised_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def breaks(view: InstanceView) -> None:
        if view.leased():
            raise InvariantError("planted")

    failing = OfflineBroker(*ORDERS, stepped=breaks)
    members = divided(failing, 2)

    def loop(consumer: SplitMember) -> None:
        while True:
            consumer.poll(WAIT)

    with pytest.raises(InvariantError, match="planted"):
        members.run(loop)
    assert "its loop failed" not in caplog.text


def test_a_loop_that_swallows_every_error_does_not_keep_a_failed_instance() -> None:
    def breaks(view: InstanceView) -> None:
        if view.leased():
            raise InvariantError("planted")

    members = divided(OfflineBroker(*ORDERS, stepped=breaks), 1)
    swallowed: list[KeySharedError] = []

    def loop(consumer: SplitMember) -> None:
        while True:
            try:
                consumer.poll(WAIT)
            except KeySharedError as error:
                swallowed.append(error)

    with pytest.raises(InvariantError, match="planted"):
        members.run(loop)


def test_a_stop_asked_for_elsewhere_ends_the_loops_too() -> None:
    broker, members = looping(*ORDERS)

    def loop(consumer: SplitMember) -> None:
        while True:
            message = consumer.poll(WAIT)
            if message is not None:
                consumer.commit(message)
                members.app.stop()

    assert members.run(loop) == 0
    assert broker.closed == 1


def test_a_loop_that_does_not_come_back_is_named_and_left_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, members = looping(*ORDERS, members=1, stop_timeout=0.5)
    hangs = threading.Event()

    def loop(consumer: SplitMember) -> None:
        while consumer.poll(WAIT) is None:
            continue
        sends(signal.SIGTERM)
        hangs.wait(WAIT)

    try:
        assert members.run(loop) == 1
    finally:
        hangs.set()
    assert "loops still running at exit: worker-0" in caplog.text
    assert "handlers still running at exit" not in caplog.text, "one voice"


def test_what_many_members_settle_too_late_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    members = divided(OfflineBroker(*ORDERS), 4)
    with caplog.at_level("INFO"):
        for member in members:
            assert member.poll(WAIT) is not None
        for cell in members._cells:
            cell.lapse([share.id for share in cell.held()])  # as when the partition has gone
        for member in members:
            member.commit()
        members.close(WAIT)
    (line,) = [each for each in caplog.messages if "after their partition had gone" in each]
    for member in members:
        assert member.name in line
    assert "orders-0@0" in line


def test_members_run_once() -> None:
    _, members = looping(*ORDERS)
    assert members.run(lambda consumer: None) == 0
    with pytest.raises(ConfigError, match="run once"):
        members.run(lambda consumer: None)


def test_a_thread_that_ends_with_a_record_in_hand_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The keys of its member stand still: nobody else may have them while it may still settle."""
    said = threading.Event()

    class Hears(logging.Handler):
        def emit(self, entry: logging.LogRecord) -> None:
            if "left unsettled" in entry.getMessage():
                said.set()

    members = divided(OfflineBroker(*ORDERS), 1)
    hears = Hears()
    logging.getLogger("kafka_keyshared").addHandler(hears)
    try:
        thread = threading.Thread(target=members[0].poll, args=(WAIT,), name="billing-3")
        thread.start()
        thread.join()
        assert said.wait(WAIT / 3)
    finally:
        logging.getLogger("kafka_keyshared").removeHandler(hears)
        members.close(WAIT)
    (line,) = [each for each in caplog.messages if "left unsettled" in each]
    assert line.startswith(
        "worker-0: the thread that polled it (billing-3) has ended and left unsettled orders-0@0; "
    )


def test_the_banner_of_a_split_consumer_speaks_of_no_attempts(broker: OfflineBroker) -> None:
    with divided(broker, 4) as members:
        assert members.app.banner() == (
            "group billing · topics orders · 4 members · order per key and topic · "
            "commit every 0.05 s · the loops settle records"
        )


# --- split() itself ---


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    made = Consumer(dict(CONF))
    yield made
    made.release()
    made.close()


def test_a_split_into_nobody_is_refused(consumer: Consumer) -> None:
    with pytest.raises(ConfigError, match="split into 0 members"):
        split(consumer, 0, topics=["orders"])


def test_split_takes_over_a_consumer_and_gives_its_options_to_the_instance(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[KeyShared, int, bool]] = []

    def keep(app: KeyShared, members: int, *, auto_ack: bool) -> None:
        made.append((app, members, auto_ack))

    monkeypatch.setattr(module, "Split", keep)
    consumer.subscribe(["orders"])
    split(consumer, 3, auto_ack=True, window_records=77)
    ((app, members, auto_ack),) = made
    assert (members, auto_ack) == (3, True)
    assert (app.topics, app.options.workers, app.options.window_records) == (
        ["orders"],
        "split:3",
        77,
    )
    assert consumer.has_owner

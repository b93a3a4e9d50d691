"""What calls and callbacks of the client do, and that the loop goes by it.

Each fact is measured on the bare client, coarsely, so that a new version that changes it is
noticed; beside it stands what the layer makes of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.client.kafka import KafkaClient
from kafka_keyshared.lab.demo.ledgers import AuditedClient
from kafka_keyshared.model import Record, TopicPartition
from kafka_keyshared.observability.audit.ledger import MemoryLedger
from kafka_keyshared.testing.clusters.cluster import Cluster
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from kafka_keyshared.testing.clusters.node import free_ports
from tests.conftest import Eventually
from tests.support.bare_client import bare, offsets_of, start_at
from tests.support.live_cluster import (
    Member,
    assert_clean,
    client_conf,
    group_name,
    judged,
    numbered,
    slow,
    write,
)

PAUSE = threading.Event()


# --- fetching ---


def test_consume_waits_for_all_it_was_asked_for_and_poll_for_the_first(
    real_cluster: Cluster, topic: str
) -> None:
    real_cluster.create_topic(topic, 1)
    write(real_cluster, topic, numbered(5))
    with bare(real_cluster, group_name()) as consumer:
        start_at(consumer, topic)
        assert consumer.poll(60) is not None
        rest: list[Any] = []
        taking = threading.Thread(target=lambda: rest.extend(consumer.consume(9, 60)), daemon=True)
        taking.start()
        write(real_cluster, topic, numbered(5))
        taking.join(90)
        assert offsets_of(rest) == list(range(1, 10)), "it took four and waited for five more"
        consumer.seek(ClientPartition(topic, 0, 0))
        assert offsets_of([consumer.poll(60)]) == [0], "there are ten, and it waited for one"
        assert offsets_of(consumer.consume(9, 60)) == list(range(1, 10))


def test_a_fetch_of_ours_takes_what_is_there_and_does_not_wait_for_more(
    real_cluster: Cluster, topic: str
) -> None:
    real_cluster.create_topic(topic, 1)
    write(real_cluster, topic, numbered(5))
    answers: list[Any] = []
    client = KafkaClient(client_conf(real_cluster, group_name()), [topic], answers.append)
    try:
        start_at(client.consumer, topic)
        first = client.poll(60)
        assert first is not None
        found = [first.offset()]
        while len(found) < 5:
            # For ever, if it waited for the thousand.
            found += [each.offset() for each in client.consume(1_000)]
        assert found == [0, 1, 2, 3, 4]
    finally:
        client.close()


def test_every_call_waits_behind_a_running_poll(real_cluster: Cluster, topic: str) -> None:
    """Why one thread owns the consumer: nobody else could pause, seek or commit in time."""
    real_cluster.create_topic(topic, 1)
    with bare(real_cluster, group_name()) as consumer:
        start_at(consumer, topic)
        consumer.poll(0.1)

        def commit() -> None:
            consumer.commit(offsets=[ClientPartition(topic, 0, 0)], asynchronous=True)

        polling = threading.Thread(target=consumer.poll, args=(300,), daemon=True)
        polling.start()
        # One that comes before the poll is answered at once; the first after it waits.
        for _ in range(20):
            asking = threading.Thread(target=commit, daemon=True)
            asking.start()
            asking.join(1.0)
            if asking.is_alive():
                break
        assert asking.is_alive(), "nobody waited for the poll to end"
        write(real_cluster, topic, numbered(1))
        polling.join(60)
        asking.join(60)
        assert not polling.is_alive(), "a record ends the poll"
        assert not asking.is_alive(), "and the end of the poll ends the wait behind it"


def waits_for_20_polls(consumer: Consumer, eventually: Eventually) -> bool:
    """Say whether another thread's question is still open after 20 polls of a loop."""
    polls, ending = [0], threading.Event()

    def loop() -> None:
        while not ending.is_set():
            consumer.poll(0.02)
            polls[0] += 1

    poller = threading.Thread(target=loop, daemon=True)
    asker = threading.Thread(target=consumer.assignment, daemon=True)
    poller.start()
    eventually(lambda: polls[0] > 0, 30.0)
    most = polls[0] + 20
    asker.start()
    eventually(lambda: polls[0] > most or not asker.is_alive(), 30.0)
    waited = asker.is_alive()
    ending.set()
    poller.join(30)
    asker.join(30)
    assert not asker.is_alive(), "it is answered when nobody polls"
    return waited


def test_a_call_from_another_thread_starves_behind_a_loop_of_polls(
    embedded_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    """Why a wrapped consumer refuses what only its owner's thread can ask: the lock is not fair.

    A loop that happens to be late lets the other in, so one of several tries is enough.
    """
    embedded_cluster.create_topic(topic, 1)
    with bare(embedded_cluster, group_name()) as consumer:
        start_at(consumer, topic)
        assert any(waits_for_20_polls(consumer, eventually) for _ in range(20))


def test_the_owner_waits_in_poll_only_while_nothing_is_outstanding(
    any_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    """Nothing wakes a poll, so what a worker reports meanwhile would wait for its end."""
    waits: list[tuple[float, int]] = []

    class Watching(AuditedClient):
        def poll(self, timeout: float) -> Record | None:
            assert member.app.instance is not None
            waits.append((timeout, member.app.instance.core.outstanding()))
            return super().poll(timeout)

    any_cluster.create_topic(topic, 2)
    written = MemoryLedger("producer")
    write(any_cluster, topic, numbered(300), written)
    conf = client_conf(any_cluster, group_name())
    member = Member(conf, [topic], slow, client=Watching).start()
    eventually(lambda: member.position() == 300, 60.0)
    assert member.stop() == 0
    assert any(timeout > 0 for timeout, _ in waits)
    assert all(outstanding == 0 for timeout, outstanding in waits if timeout > 0.02)
    assert_clean(written, member.ledger)


# --- callbacks ---


@pytest.mark.parametrize("name", ["stats_cb", "on_commit"])
def test_an_exception_out_of_a_callback_loses_what_was_taken_off_the_queue(
    real_cluster: Cluster, topic: str, name: str
) -> None:
    """The client's position is behind the records all the same, so a commit would pass them."""
    raised = 0

    def callback(*_args: Any) -> None:
        raise ZeroDivisionError

    real_cluster.create_topic(topic, 1)
    write(real_cluster, topic, numbered(500))
    more = {"statistics_interval_ms": 300} if name == "stats_cb" else {}
    consumer = Consumer(
        client_conf(real_cluster, group_name(), enable_auto_commit=False, **more) | {name: callback}
    )
    start_at(consumer, topic)
    found: list[int] = []
    deadline = time.monotonic() + 60
    while not (raised and position(consumer, topic) == 500) and time.monotonic() < deadline:
        if found and not raised:
            consumer.commit(offsets=[ClientPartition(topic, 0, 1)], asynchronous=True)
        try:
            # One more than are left: it waits, with what it has taken, for the call that raises.
            found += offsets_of(consumer.consume(500 if found else 1, 5.0))
        except ZeroDivisionError:
            raised += 1
    assert raised
    assert position(consumer, topic) == 500
    assert len(found) < 500
    while True:  # what is still on its way to a callback makes close() raise too
        try:
            consumer.close()
        except ZeroDivisionError:
            raised += 1
        else:
            break


def position(consumer: Consumer, topic: str) -> int:
    (found,) = consumer.position([ClientPartition(topic, 0)])
    return found.offset


def test_callbacks_of_the_user_that_raise_cost_no_record(
    real_cluster: Cluster, topic: str, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    called = dict.fromkeys(("on_commit", "error_cb", "stats_cb", "throttle_cb"), 0)

    def raising(name: str) -> Any:
        def callback(*_args: Any) -> None:
            called[name] += 1
            raise ZeroDivisionError(name)

        return callback

    real_cluster.create_topic(topic, 2)
    written = MemoryLedger("producer")
    write(real_cluster, topic, numbered(1_000), written)
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    conf = client_conf(real_cluster, group_name(), statistics_interval_ms=20)
    conf |= {name: raising(name) for name in called}
    # A broker that is not there, and is connected to all the same, keeps the error callback busy.
    conf |= {"bootstrap.servers": f"{real_cluster.bootstrap},{nobody}", "log_level": 0}
    conf |= {"enable.sparse.connections": False}
    member = Member(conf, [topic], slow, commit_interval=0.05).start()
    eventually(lambda: member.position() == 1_000, 60.0)
    eventually(lambda: all(called[name] for name in ("on_commit", "error_cb", "stats_cb")), 60.0)
    assert member.stop() == 0
    assert_clean(written, member.ledger)
    assert "reading again" not in caplog.text, "no exception reached the loop"
    assert "stats_cb failed" in caplog.text


def test_a_rebalance_callback_of_ours_that_fails_ends_the_instance_and_loses_nothing(
    real_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    class Broken(Member):
        def _rebalanced(self, what: str, partitions: Any) -> None:
            super()._rebalanced(what, partitions)
            if what == "revoked":
                raise ZeroDivisionError("planted")

    real_cluster.create_topic(topic, 2)
    written = MemoryLedger("producer")
    write(real_cluster, topic, numbered(2_000), written)
    conf = client_conf(real_cluster, group_name())
    first = Broken(conf, [topic], slow).start()
    eventually(lambda: first.done() > 50, 60.0)
    second = Member(conf, [topic], lambda record: None, name="second").start()
    first.join()
    assert isinstance(first.error, ZeroDivisionError)
    covered = {TopicPartition(topic, number) for number in range(2)}
    eventually(lambda: second.assigned == covered, 60.0)
    write(real_cluster, topic, numbered(10), written)
    eventually(lambda: second.position() == 2_010, 60.0)
    assert second.stop() == 0
    verdict = judged(written, first.ledger, second.ledger)
    assert verdict.lost.count == 0
    assert verdict.commits_past_unsettled.count == 0
    assert verdict.commits_without_ownership.count == 0
    assert verdict.duplicates_after_commit.count == 0


def test_a_second_subscribe_replaces_the_callbacks_and_none_of_them_can_be_read_back(
    embedded_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    """Why an existing consumer can only be wrapped together with its settings and callbacks."""
    embedded_cluster.create_topic(topic, 1)
    called: list[str] = []
    with bare(embedded_cluster, group_name()) as consumer:
        consumer.subscribe([topic], on_assign=lambda *_: called.append("first"))
        consumer.subscribe([topic], on_assign=lambda *_: called.append("second"))
        eventually(lambda: (consumer.poll(0.1), bool(called))[1], 60.0)
        assert called == ["second"]
        with pytest.raises(TypeError, match="on_commit"):
            consumer.subscribe([topic], on_commit=called.append)  # type: ignore[call-arg]
        shown = {name for name in dir(consumer) if not name.startswith("__")}
        assert not {name for name in shown if "conf" in name or "callback" in name}


# --- pausing ---


@pytest.fixture
def cluster_of_its_own() -> Iterator[EmbeddedCluster]:
    """An embedded cluster whose faults disturb nobody else."""
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.mark.parametrize("paused", [False, True])
def test_pausing_discards_what_was_fetched(
    cluster_of_its_own: EmbeddedCluster, topic: str, paused: bool
) -> None:
    """Why a full window pauses only after 2 s: what it had must be fetched once more."""
    cluster = cluster_of_its_own
    cluster.create_topic(topic, 1)
    write(cluster, topic, numbered(100))
    with bare(cluster, group_name()) as consumer:

        def take(seconds: float) -> list[int]:
            found: list[int] = []
            deadline = time.monotonic() + seconds
            while len(found) < 99 and time.monotonic() < deadline:
                found += offsets_of(consumer.consume(99, 0.2))
            return found

        start_at(consumer, topic)
        assert offsets_of([consumer.poll(60)]) == [0]
        everything = list(range(1, 100))
        if paused:
            consumer.pause([ClientPartition(topic, 0)])
        cluster.broker_down()
        if not paused:
            assert take(60.0) == everything
            return
        consumer.resume([ClientPartition(topic, 0)])
        assert take(1.0) == []
        cluster.broker_up()
        assert take(60.0) == everything, "none was lost"


def test_a_full_window_keeps_what_a_poll_returns_pauses_after_2_s_and_goes_on(
    real_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    moments: list[tuple[str, float, int]] = []

    class Watching(AuditedClient):
        def poll(self, timeout: float) -> Record | None:
            record = super().poll(timeout)
            if timeout == 0 and record is not None and not release.is_set():
                self.note("taken")
            return record

        def pause(self, partitions: Iterable[TopicPartition]) -> None:
            self.note("paused")
            super().pause(partitions)

        def resume(self, partitions: Iterable[TopicPartition]) -> None:
            self.note("resumed")
            super().resume(partitions)

        def note(self, what: str) -> None:
            assert member.app.instance is not None
            held = member.app.instance.core.unsettled_count()
            moments.append((what, time.monotonic(), held))

    def handler(_record: Any) -> None:
        begun.append(time.monotonic())
        release.wait(60)

    begun: list[float] = []
    release = threading.Event()
    real_cluster.create_topic(topic, 1)  # of two, one would be held back for the other at once
    written = MemoryLedger("producer")
    write(real_cluster, topic, numbered(1_000), written)
    conf = client_conf(real_cluster, group_name())
    member = Member(conf, [topic], handler, client=Watching, window_records=400).start()
    eventually(lambda: any(what == "paused" for what, *_ in moments), 60.0)
    paused = next(at for what, at, _ in moments if what == "paused")
    assert paused - begun[0] > 1.5
    taken = [held for what, _, held in moments if what == "taken"]
    assert taken, "the window was full, and a poll returned records all the same"
    release.set()
    eventually(lambda: member.position() == 1_000, 60.0)
    assert any(what == "resumed" for what, *_ in moments)
    assert member.stop() == 0
    assert_clean(written, member.ledger)

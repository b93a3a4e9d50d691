"""What the client does around a rebalance, and that a revoke of ours goes by it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.client.kept_admin import KeptAdmin
from kafka_keyshared.client.topic_ids import KafkaTopicIds
from kafka_keyshared.lab.demo.ledgers import AuditedClient
from kafka_keyshared.model import Record, TopicPartition
from kafka_keyshared.observability.audit.ledger import (
    CommitAnswered,
    CommitSent,
    Event,
    MemoryLedger,
    OwnershipChanged,
)
from kafka_keyshared.testing.clusters.broker import RealCluster
from kafka_keyshared.testing.clusters.cluster import Cluster
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from tests.conftest import Eventually
from tests.support.bare_client import around_revoke, bare, closing, every_protocol, group_conf
from tests.support.kafka_requests import coordinator, throw_out
from tests.support.live_cluster import (
    Member,
    assert_clean,
    client_conf,
    group_name,
    judged,
    members,
    numbered,
    sets_before_the_revoke,
    starts,
    write,
)


def both(topic: str) -> list[ClientPartition]:
    return [ClientPartition(topic, 0), ClientPartition(topic, 1)]


# --- callbacks ---


@every_protocol
def test_a_revoke_runs_inside_poll_before_the_backlog_and_its_asynchronous_commit_lands(
    real_cluster: Cluster, topic: str, eventually: Eventually, protocol: str
) -> None:
    real_cluster.create_topic(topic, 2)
    for partition in range(2):
        write(real_cluster, topic, numbered(2_000), partition=partition)
    conf = group_conf(real_cluster, group_name(), protocol, enable_auto_commit=False)
    revoked: list[int] = []
    seen: list[tuple[int, int]] = []

    def on_revoke(consumer: Consumer, partitions: list[ClientPartition]) -> None:
        consumer.commit(
            offsets=[ClientPartition(topic, each.partition, 7, "text") for each in partitions],
            asynchronous=True,
        )
        revoked.extend(each.partition for each in partitions)
        seen.append((threading.get_ident(), len(consumer.assignment())))

    with closing(Consumer(conf)) as first, closing(Consumer(conf)) as second:
        first.subscribe([topic], on_revoke=on_revoke)
        eventually(lambda: bool(first.consume(1, 0.1)) and len(first.assignment()) == 2, 60.0)
        second.subscribe([topic])
        for _ in range(12):
            second.poll(0.1)
        assert seen == [], "the second has been there for 1 s; nobody has polled the first"
        backlog = 0
        deadline = time.monotonic() + 60
        while not seen and time.monotonic() < deadline:
            backlog += len(first.consume(1, 0.1))
            second.poll(0.02)  # ten seconds for those: on a busy machine the first is told late
        assert backlog < 500, "it did not queue up behind the thousands that are fetched"
        ((thread, assigned),) = seen
        given_up = set(revoked)
        assert thread == threading.get_ident()
        assert assigned == 2, "inside, everything was still assigned"
        left = {each.partition for each in first.assignment()}
        assert protocol == "eager" or left == {0, 1} - given_up, "the binding unassigned"
        eventually(
            lambda: (first.consume(1, 0.02), second.poll(0.02), second.assignment())[2] != [], 60.0
        )
        found = second.committed(both(topic), timeout=30)
    lands = {each.partition: (each.offset, each.metadata) for each in found if each.offset >= 0}
    assert lands == dict.fromkeys(given_up, (7, "text"))


@pytest.mark.parametrize("protocol", ["cooperative", "kip-848"])
def test_a_revoke_of_ours_lands_with_its_set_and_never_polls(
    real_cluster: Cluster, topic: str, eventually: Eventually, protocol: str
) -> None:
    """Nothing else commits here, so that nothing runs again is the work of the revoke alone."""
    inside = threading.Event()
    polled_inside: list[str] = []

    class Watched(
        around_revoke(lambda *_: inside.set(), lambda *_: inside.clear())  # type: ignore[misc]
    ):
        def poll(self, timeout: float) -> Record | None:
            if inside.is_set():
                polled_inside.append("poll")
            return super().poll(timeout)  # type: ignore[no-any-return]

        def consume(self, count: int) -> list[Record]:
            if inside.is_set():
                polled_inside.append("consume")
            return super().consume(count)  # type: ignore[no-any-return]

    real_cluster.create_topic(topic, 2)
    written = MemoryLedger("producer")
    for partition in range(2):
        slow = b"slow-%d" % partition
        records = [(slow if at % 3 == 0 else b"key-%d" % at, b"") for at in range(150)]
        write(real_cluster, topic, records, written, partition=partition)
    hurry = threading.Event()

    def handler(record: Any) -> None:
        if record.key().startswith(b"slow"):
            hurry.wait(0.3)

    conf = group_conf(real_cluster, group_name(), protocol)
    options: dict[str, Any] = {"workers": 8, "commit_interval": 3_600.0}
    first = Member(conf, [topic], handler, client=Watched, **options).start()
    eventually(lambda: first.done() >= 100, 60.0)
    second = Member(conf, [topic], handler, name="second", workers=8).start()
    eventually(lambda: len(second.assigned) == 1 and len(first.assigned) == 1, 60.0)
    hurry.set()
    eventually(lambda: first.done() + second.done() == 300, 60.0)
    assert second.stop() == 0
    assert first.stop() == 0
    assert_clean(written, first.ledger, second.ledger)
    assert polled_inside == []
    assert any(sets_before_the_revoke(first.ledger)), "a set went with a position"


# --- what goes on meanwhile ---


def test_nothing_is_fetched_until_a_revoke_callback_returns(
    topic: str, eventually: Eventually
) -> None:
    """Not for the partitions that stay either (cooperative, KIP-429)."""
    with EmbeddedCluster() as cluster:
        cluster.create_topic(topic, 2)
        conf = group_conf(cluster, group_name(), "cooperative", enable_auto_commit=False)
        conf["fetch.wait.max.ms"] = 50
        fetches: list[int] = []
        pause = threading.Event()

        def during(seconds: float) -> int:
            before = cluster.requests()["Fetch"]
            pause.wait(seconds)
            return cluster.requests()["Fetch"] - before

        def on_revoke(_consumer: Consumer, _partitions: list[ClientPartition]) -> None:
            pause.wait(0.3)  # one that was under way when it began
            fetches.append(during(1.0))

        with closing(Consumer(conf)) as first, closing(Consumer(conf)) as second:
            first.subscribe([topic], on_revoke=on_revoke)
            eventually(lambda: (first.poll(0.1), len(first.assignment()))[1] == 2, 60.0)
            cluster.watch_requests()
            first.poll(0.5)
            normally = during(1.0)
            assert normally >= 3
            second.subscribe([topic])
            eventually(lambda: (first.poll(0.05), second.poll(0.05), fetches)[2] != [], 60.0)
        assert fetches[0] == 0


def test_retained_partitions_run_what_the_window_holds_while_a_revoke_waits(
    real_cluster: Cluster, topic: str, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """The running record of the revoked partition ends only after 30 others of the other one.

    Until the revoke begins every handler waits, so that there is something left to run then.
    """
    caplog.set_level("INFO", "kafka_keyshared")
    leaving: set[int] = set()
    revoking = threading.Event()
    meanwhile: Counter[int] = Counter()
    enough = {partition: threading.Event() for partition in range(2)}
    begun = threading.Semaphore(0)

    def before(_client: AuditedClient, partitions: list[TopicPartition]) -> None:
        leaving.update(each.partition for each in partitions)
        revoking.set()

    def handler(record: Any) -> None:
        if record.key().startswith(b"waits"):
            begun.release()
            enough[record.partition()].wait(60)
            return
        revoking.wait(60)
        if record.partition() not in leaving:
            meanwhile[record.partition()] += 1
            if meanwhile[record.partition()] >= 30:
                for event in enough.values():
                    event.set()

    real_cluster.create_topic(topic, 2)
    written = MemoryLedger("producer")
    for partition in range(2):
        write(real_cluster, topic, [(b"waits-%d" % partition, b"")], written, partition=partition)
    conf = group_conf(real_cluster, group_name(), "cooperative")
    options: dict[str, Any] = {"workers": 8, "revoke_deadline": 30.0}
    client = around_revoke(before)
    first = Member(conf, [topic], handler, client=client, **options).start()
    for _ in range(2):
        assert begun.acquire(timeout=60)
    for partition in range(2):
        records = [(b"key-%d-%d" % (partition, at % 97), b"") for at in range(500)]
        write(real_cluster, topic, records, written, partition=partition)
    eventually(lambda: first.sub.window.records == 1_002, 60.0)
    second = Member(conf, [topic], lambda record: None, name="second").start()
    eventually(lambda: len(second.assigned) == 1, 60.0)
    assert sum(meanwhile.values()) >= 30
    assert "past the deadline" not in caplog.text
    total = len(written.events)
    eventually(lambda: first.done() + second.done() >= total, 60.0)
    assert second.stop() == 0
    assert first.stop() == 0
    assert_clean(written, first.ledger, second.ledger)


# --- members without partitions ---


@pytest.mark.parametrize("unsubscribes", [False, True])
def test_a_close_without_partitions_leaves_a_cooperative_member_behind_unless_it_unsubscribes(
    real_cluster: Cluster, topic: str, eventually: Eventually, unsubscribes: bool
) -> None:
    """In the other protocols the client sends a LeaveGroup anyway."""
    real_cluster.create_topic(topic, 1)
    group = group_name()
    conf = group_conf(real_cluster, group, "cooperative", enable_auto_commit=False)
    conf["session.timeout.ms"] = 45_000
    joined = threading.Event()
    with closing(Consumer(conf)) as first, closing(Consumer(conf)) as second:
        first.subscribe([topic])
        eventually(lambda: (first.poll(0.1), first.assignment())[1] != [], 60.0)
        second.subscribe([topic], on_assign=lambda *_: joined.set())
        eventually(lambda: (first.poll(0), second.poll(0), joined.is_set())[2], 60.0)
        idle = second if first.assignment() else first
        eventually(lambda: members(real_cluster, group) == 2, 60.0)
        if unsubscribes:
            idle.unsubscribe()
        idle.close()
        if unsubscribes:
            eventually(lambda: members(real_cluster, group) == 1, 20.0)
        else:
            assert members(real_cluster, group) == 2


@every_protocol
def test_a_member_of_ours_without_partitions_leaves_its_group(
    real_cluster: Cluster, topic: str, eventually: Eventually, protocol: str
) -> None:
    """Else the next rebalance would wait for it until its session is over."""
    real_cluster.create_topic(topic, 1)
    group = group_name()
    conf = group_conf(real_cluster, group, protocol)
    if protocol != "kip-848":
        conf["session.timeout.ms"] = 45_000
    with ExitStack() as stack:
        both_of_us = [Member(conf, [topic], lambda record: None, name=name) for name in "ab"]
        for member in both_of_us:
            member.start()
            stack.callback(member.stop)
        eventually(lambda: members(real_cluster, group) == 2, 60.0)
        eventually(lambda: sum(len(each.assigned) for each in both_of_us) == 1, 60.0)
        (idle,) = [each for each in both_of_us if not each.assigned]
        assert idle.stop() == 0
        eventually(lambda: members(real_cluster, group) == 1, 20.0)


# --- partitions that are lost ---


def test_max_poll_exceeded_arrives_as_a_message_before_on_lost(
    real_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    real_cluster.create_topic(topic, 1)
    events: list[str] = []
    shortest = 1_000 if isinstance(real_cluster, RealCluster) else 6_000
    with bare(
        real_cluster,
        group_name(),
        session_timeout_ms=shortest,
        max_poll_interval_ms=shortest,
    ) as consumer:
        consumer.subscribe(
            [topic],
            on_assign=lambda *_: events.append("assigned"),
            on_revoke=lambda *_: events.append("revoked"),
            on_lost=lambda *_: events.append("lost"),
        )
        eventually(lambda: (consumer.poll(0.1), events)[1] == ["assigned"], 60.0)
        threading.Event().wait(shortest / 1_000 + 1.5)

        def again() -> bool:
            message = consumer.poll(0.1)
            if message is not None and (error := message.error()) is not None:
                events.append(error.name())
            return events.count("assigned") == 2

        eventually(again, 60.0)
    assert events[:4] == ["assigned", "_MAX_POLL_EXCEEDED", "lost", "assigned"]


@pytest.mark.parametrize("protocol", ["cooperative", "kip-848"])
def test_a_member_that_was_thrown_out_has_lost_its_partitions(
    real_cluster: Cluster, topic: str, eventually: Eventually, protocol: str
) -> None:
    """Its heartbeats and commits are answered UNKNOWN_MEMBER_ID; it commits nothing and rejoins."""
    real_cluster.create_topic(topic, 1)
    written = MemoryLedger("producer")
    write(real_cluster, topic, numbered(40), written)
    group = group_name()
    clients: list[AuditedClient] = []

    class Known(AuditedClient):
        def consume(self, count: int) -> list[Record]:
            if not clients:
                clients.append(self)
            return super().consume(count)

    release = threading.Event()

    def handler(record: Any) -> None:
        if int(record.value()) == 30:
            release.wait(60)

    conf = group_conf(real_cluster, group, protocol)
    member = Member(conf, [topic], handler, client=Known, revoke_deadline=1.0).start()
    eventually(lambda: 30 in starts(member.ledger) and member.position() > 0, 60.0)
    throw_out(real_cluster.bootstrap, group, clients[0].consumer.memberid() or "")
    changes = [event for event in member.ledger.events if isinstance(event, OwnershipChanged)]
    assert [each.change for each in changes] == ["assigned"]
    eventually(
        lambda: (
            [event.change for event in member.ledger.events if isinstance(event, OwnershipChanged)]
            == ["assigned", "lost", "assigned"]
        ),
        60.0,
    )
    release.set()
    eventually(lambda: member.position() == 40, 60.0)
    assert member.stop() == 0
    verdict = judged(written, member.ledger)
    assert verdict.lost.count == 0
    assert verdict.commits_without_ownership.count == 0
    assert verdict.commits_past_unsettled.count == 0
    assert verdict.duplicates_after_commit.count == 0


def test_a_revoke_that_is_answered_unknown_member_has_committed_nothing(
    real_cluster: Cluster, topic: str, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """The group has moved on: what this member had settled runs again at the new owner."""
    real_cluster.create_topic(topic, 2)
    written = MemoryLedger("producer")
    for partition in range(2):
        write(real_cluster, topic, numbered(50), written, partition=partition)
    group = group_name()

    def before(client: AuditedClient, _partitions: list[TopicPartition]) -> None:
        if not thrown:
            thrown.append(client.consumer.memberid() or "")
            throw_out(real_cluster.bootstrap, group, thrown[0])
            go.set()

    thrown: list[str] = []
    conf = client_conf(real_cluster, group)
    options: dict[str, Any] = {"commit_interval": 3_600.0}
    client = around_revoke(before)
    begun, go = threading.Event(), threading.Event()

    def handler(record: Any) -> None:
        if int(record.value()) == 49:
            begun.set()
            go.wait(60)

    first = Member(conf, [topic], handler, client=client, **options).start()
    assert begun.wait(60)
    before_it = first.position()
    second = Member(conf, [topic], lambda record: None, name="second").start()
    eventually(lambda: bool(thrown) and len(second.assigned) >= 1, 60.0)
    write(real_cluster, topic, numbered(20), written)
    everything = len(written.events)
    eventually(lambda: covered(first, second) == everything, 60.0)
    assert second.stop() == 0
    assert first.stop() == 0
    assert before_it == 0, "nothing had been committed before the revoke"
    refused = [
        event
        for event in first.ledger.events
        if isinstance(event, CommitAnswered) and not event.accepted
    ]
    assert refused
    assert "a rebalance has completed" in caplog.text
    verdict = judged(written, first.ledger, second.ledger)
    assert verdict.lost.count == 0
    assert verdict.commits_past_unsettled.count == 0
    assert verdict.duplicates_after_commit.count == 0


def covered(*members: Member) -> int:
    """Return the sum of the highest positions that the broker accepted from any of them."""
    highest: dict[TopicPartition, int] = {}
    for member in members:
        for partition, position in member.committed.copy().items():
            highest[partition] = max(highest.get(partition, 0), position)
    return sum(highest.values())


# --- the coordinator goes away ---


def as_stored(ledger: MemoryLedger) -> MemoryLedger:
    """Return the ledger without the answers to commits that an earlier one was stored over.

    What is on its way to a coordinator that dies the client sends again by itself: the last commit
    of a revoke first and the one before behind it, as was seen beside busy loops. A revoke cannot
    wait for that, so what settled between the two runs again.
    """
    place = {each.commit: each.partition for each in ledger.events if isinstance(each, CommitSent)}
    lowest: dict[int, int] = {}
    events: list[Event] = []
    for event in reversed(ledger.events):
        if isinstance(event, CommitAnswered) and event.accepted:
            later = lowest.setdefault(place[event.commit], event.commit)
            if later < event.commit:
                continue
            lowest[place[event.commit]] = event.commit
        events.append(event)
    stored = MemoryLedger()
    stored.events[:] = reversed(events)
    return stored


def test_an_answer_to_a_commit_that_was_stored_over_counts_for_nothing() -> None:
    ledger = MemoryLedger("first")
    begun = list(ledger.events)
    sent = [CommitSent(number, "t", number % 2, number, (), number) for number in (1, 2, 3)]
    answers = [CommitAnswered(number, True, 10 + number) for number in (3, 2, 1)]
    ledger.events += [*sent, *answers]
    assert as_stored(ledger).events == [*begun, *sent, *answers[1:]], "1 and 3 are of one partition"


def test_a_synchronous_commit_waits_for_a_coordinator_that_is_gone(
    three_brokers: RealCluster, topic: str, eventually: Eventually
) -> None:
    """Why nothing in the owner commits synchronously: a revoke would outlast its deadline."""
    three_brokers.create_topic(topic, 1)
    group = group_name()
    broker, _ = coordinator(three_brokers.bootstrap, group)
    times: list[float] = []

    def on_revoke(consumer: Consumer, _partitions: list[ClientPartition]) -> None:
        three_brokers.kill(broker)
        for asynchronous in (True, False):
            began = time.monotonic()
            try:
                consumer.commit(
                    offsets=[ClientPartition(topic, 0, 0)],
                    asynchronous=asynchronous,
                )
            except KafkaException as error:
                # How the wait ends depends on how soon another broker takes the group over.
                assert not asynchronous, error
            times.append(time.monotonic() - began)

    try:
        with bare(three_brokers, group) as consumer:
            consumer.subscribe([topic], on_revoke=on_revoke)
            eventually(lambda: (consumer.poll(0.1), consumer.assignment())[1] != [], 60.0)
            consumer.unsubscribe()
            eventually(lambda: (consumer.poll(0.1), len(times))[1] == 2, 90.0)
    finally:
        three_brokers.restart(broker)
    returned_at_once, waited = times
    assert waited > 1.5
    assert returned_at_once < waited / 2


def test_topic_ids_are_told_although_the_broker_that_was_asked_is_gone(
    three_brokers: RealCluster, topic: str, eventually: Eventually
) -> None:
    """Without the id, commit metadata is ignored after a while, and settled records run again."""
    three_brokers.create_topic(topic, 1)
    admin = KeptAdmin({"bootstrap.servers": three_brokers.bootstrap})
    ids = KafkaTopicIds(admin, [topic]).answer(60.0)
    assert ids
    asked = admin.list_topics(timeout=60.0).controller_id
    three_brokers.kill(asked)
    try:
        eventually(lambda: KafkaTopicIds(admin, [topic]).answer(5.0) == ids, 60.0)
    finally:
        three_brokers.restart(asked)
        admin.close()


def test_a_revoke_whose_coordinator_is_gone_ends_in_time_and_loses_nothing(
    three_brokers: RealCluster,
    topic: str,
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    three_brokers.create_topic(topic, 2)
    written = MemoryLedger("producer")
    for partition in range(2):
        write(three_brokers, topic, numbered(200), written, partition=partition)
    group = group_name()
    broker, _ = coordinator(three_brokers.bootstrap, group)
    begun: list[str] = []
    ended: list[str] = []

    def before(_client: AuditedClient, _partitions: list[TopicPartition]) -> None:
        if not begun:
            three_brokers.kill(broker)
        begun.append("revoke")

    def after(_client: AuditedClient, _partitions: list[TopicPartition]) -> None:
        ended.append("revoke")

    def handler(record: Any) -> None:
        threading.Event().wait(0.01)

    conf = client_conf(three_brokers, group) | {"log_level": 2, "reconnect.backoff.max.ms": 500}
    options: dict[str, Any] = {"revoke_deadline": 20.0}
    client = around_revoke(before, after)
    try:
        first = Member(conf, [topic], handler, client=client, **options).start()
        eventually(lambda: first.done() >= 20, 60.0)
        second = Member(conf, [topic], handler, name="second").start()
        eventually(lambda: bool(ended), 60.0)
        eventually(lambda: covered(first, second) == 400, 120.0)
        assert second.stop() == 0
        assert first.stop() == 0
    finally:
        three_brokers.restart(broker)
    revokes = [each.message for each in caplog.records if each.message.startswith("revoked ")]
    assert revokes
    assert "past the deadline" not in caplog.text, "it had only to wait for records of 10 ms"
    verdict = judged(written, first.ledger, second.ledger)
    assert verdict.lost.count == 0
    assert verdict.order_violations.count == 0
    assert verdict.commits_past_unsettled.count == 0
    assert verdict.commits_without_ownership.count == 0
    stored = [as_stored(each.ledger) for each in (first, second)]
    assert judged(written, *stored).duplicates_after_commit.count == 0

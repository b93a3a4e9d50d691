"""Faults of brokers, played by an embedded cluster: nothing is lost, and nothing spins."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.observability.audit.ledger import CommitAnswered, MemoryLedger
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from kafka_keyshared.testing.clusters.faults import error_code
from tests.conftest import Eventually
from tests.support.bare_client import bare, start_at
from tests.support.live_cluster import (
    Member,
    assert_clean,
    await_coordinator,
    client_conf,
    committed,
    group_name,
    numbered,
    slow,
    starts,
    write,
)

PAUSE = threading.Event()
BROKERS = (1, 2, 3)


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    """Three brokers whose faults disturb no other test."""
    with EmbeddedCluster(brokers=3) as cluster:
        yield cluster


def quiet_conf(cluster: EmbeddedCluster, group: str, **more: Any) -> dict[str, Any]:
    """Settings of a member that finds a broker soon when it is back, and says little of it."""
    conf = client_conf(cluster, group, reconnect_backoff_max_ms=200, **more)
    return conf | {"log_level": 2}


@pytest.mark.parametrize(
    ("error", "retried_by_the_client"),
    [
        ("COORDINATOR_NOT_AVAILABLE", True),
        ("NOT_COORDINATOR", True),
        ("REBALANCE_IN_PROGRESS", False),
        ("OFFSET_METADATA_TOO_LARGE", False),
        ("_TRANSPORT", True),
    ],
)
def test_a_commit_that_is_refused_once_is_made_good_even_if_it_was_the_last(
    cluster: EmbeddedCluster,
    topic: str,
    eventually: Eventually,
    error: str,
    retried_by_the_client: bool,
) -> None:
    cluster.create_topic(topic, 2)
    written = MemoryLedger("producer")
    write(cluster, topic, numbered(100), written)
    group = group_name()
    member = Member(quiet_conf(cluster, group), [topic], slow, commit_interval=0.3).start()
    eventually(lambda: member.position() > 0, 60.0)
    write(cluster, topic, numbered(40), written)
    eventually(lambda: member.done() == 140, 60.0)
    for broker in BROKERS:
        cluster.fail_next("OffsetCommit", error, broker=broker)
    write(cluster, topic, numbered(4), written)
    eventually(lambda: member.done() == 144, 60.0)
    assert member.stop() == 0
    assert member.position() == 144
    assert sum(committed(cluster, group, topic, number)[0] for number in range(2)) == 144
    assert_clean(written, member.ledger)
    left = [cluster.planned("OffsetCommit", broker=broker) for broker in BROKERS]
    assert sorted(left) == [0, 1, 1], "the coordinator has refused, and nobody else was asked"
    answers = [each for each in member.ledger.events if isinstance(each, CommitAnswered)]
    refused = any(not each.accepted for each in answers)
    assert refused is not retried_by_the_client


def test_the_client_repeats_a_commit_behind_a_later_one(
    cluster: EmbeddedCluster, topic: str, eventually: Eventually
) -> None:
    """So the order in which commits are sent is not the one in which they are stored."""
    cluster.create_topic(topic, 1)
    group = group_name()
    cluster.move_coordinator(group, 1)
    answered: list[int] = []

    def on_commit(error: KafkaError | None, partitions: list[ClientPartition]) -> None:
        assert error is None, "what the client repeats by itself it does not tell"
        answered.append(partitions[0].offset)

    with bare(cluster, group, on_commit=on_commit) as consumer:
        await_coordinator(consumer, topic)
        start_at(consumer, topic)
        # The later one must be under way when the earlier is refused: a busy machine may miss it.
        for earlier in range(1, 61, 2):
            answered.clear()
            cluster._push("OffsetCommit", 1, [(error_code("NOT_COORDINATOR"), 50)])
            for position in (earlier, earlier + 1):
                consumer.commit(offsets=[ClientPartition(topic, 0, position)], asynchronous=True)
            eventually(lambda: (consumer.poll(0.05), len(answered))[1] == 2, 60.0)
            if answered == [earlier + 1, earlier]:
                break
    assert answered == [earlier + 1, earlier]
    assert committed(cluster, group, topic)[0] == earlier


@pytest.mark.parametrize("right", ["GROUP", "TOPIC"])
def test_a_commit_that_is_denied_is_sent_again_until_the_right_is_back(
    cluster: EmbeddedCluster,
    topic: str,
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
    right: str,
) -> None:
    cluster.create_topic(topic, 1)
    written = MemoryLedger("producer")
    write(cluster, topic, numbered(50), written)
    group = group_name()
    cluster.fail_next("OffsetCommit", f"{right}_AUTHORIZATION_FAILED", times=1_000)
    member = Member(quiet_conf(cluster, group), [topic], slow).start()
    eventually(lambda: member.done() == 50, 60.0)
    name = f"group {group}" if right == "GROUP" else f"topic {topic}"
    eventually(lambda: f"Grant READ on {name} to" in caplog.text, 60.0)
    assert member.position() == 0
    cluster.heal("OffsetCommit")
    eventually(lambda: member.position() == 50, 60.0)
    assert member.stop() == 0
    assert_clean(written, member.ledger)
    answers = [each for each in member.ledger.events if isinstance(each, CommitAnswered)]
    assert not answers[0].accepted
    assert answers[-1].accepted


@pytest.mark.parametrize(
    "error",
    [
        "NOT_LEADER_FOR_PARTITION",
        "LEADER_NOT_AVAILABLE",
        "UNKNOWN",
        "_TRANSPORT",
    ],
)
def test_a_fetch_that_fails_a_few_times_loses_nothing(
    cluster: EmbeddedCluster, topic: str, eventually: Eventually, error: str
) -> None:
    cluster.create_topic(topic, 2)
    written = MemoryLedger("producer")
    write(cluster, topic, numbered(200), written)
    conf = quiet_conf(cluster, group_name())
    cluster.fail_next("Fetch", error, times=3)
    member = Member(conf, [topic], slow).start()
    eventually(lambda: member.done() >= 100, 60.0)
    cluster.fail_next("Fetch", error, times=2)
    write(cluster, topic, numbered(200), written)
    eventually(lambda: member.position() == 400, 60.0)
    assert member.stop() == 0
    assert_clean(written, member.ledger)


def test_brokers_that_go_and_come_back_lose_nothing_and_nobody_spins(
    cluster: EmbeddedCluster, topic: str, eventually: Eventually
) -> None:
    steps: list[None] = []

    class Counting(Member):
        def _stepped(self, loop: Any) -> None:
            super()._stepped(loop)
            steps.append(None)

    cluster.create_topic(topic, 4)
    written = MemoryLedger("producer")
    write(cluster, topic, numbered(400), written)
    # A session that outlasts the outage, so that the member keeps its partitions.
    conf = quiet_conf(cluster, group_name(), session_timeout_ms=10_000)
    member = Counting(conf, [topic], slow).start()
    eventually(lambda: member.done() >= 100, 60.0)
    cluster.broker_down()
    # What was fetched is processed to the end; then there is nothing to do but wait.
    done = -1
    while done != member.done():
        done = member.done()
        PAUSE.wait(0.5)
    before = len(steps)
    PAUSE.wait(2.0)
    assert len(steps) - before < 200, "an idle loop makes about ten steps a second"
    cluster.broker_up()
    write(cluster, topic, numbered(50), written)
    eventually(lambda: member.position() == 450, 90.0)
    assert member.stop() == 0
    assert_clean(written, member.ledger)


def test_a_coordinator_and_a_leader_that_move_lose_nothing(
    cluster: EmbeddedCluster, topic: str, eventually: Eventually
) -> None:
    cluster.create_topic(topic, 2)
    written = MemoryLedger("producer")
    group = group_name()
    cluster.move_coordinator(group, 1)
    for partition in range(2):
        cluster.move_leader(topic, partition, 2)
    write(cluster, topic, numbered(200), written)
    conf = quiet_conf(cluster, group, session_timeout_ms=10_000)
    member = Member(conf, [topic], slow).start()
    eventually(lambda: member.position() >= 50, 60.0)
    cluster.move_coordinator(group, 3)
    cluster.broker_down(1)
    cluster.move_leader(topic, 1, 3)
    write(cluster, topic, [(b"key-1", b"more")] * 20, written, partition=1)
    write(cluster, topic, numbered(50), written)
    eventually(lambda: member.position() == 270, 90.0)
    assert member.stop() == 0
    cluster.broker_up(1)
    assert_clean(written, member.ledger)


def test_an_answer_out_of_range_runs_nothing_again(
    cluster: EmbeddedCluster, topic: str, eventually: Eventually
) -> None:
    """As a replica that lags behind may give it; the policy ``earliest`` then rewinds."""
    cluster.create_topic(topic, 1)
    written = MemoryLedger("producer")
    write(cluster, topic, numbered(200), written)
    member = Member(quiet_conf(cluster, group_name()), [topic], slow).start()
    eventually(lambda: member.position() == 200, 60.0)
    cluster.fail_next("Fetch", "OFFSET_OUT_OF_RANGE")
    write(cluster, topic, numbered(100), written)
    eventually(lambda: member.position() == 300, 60.0)
    assert member.stop() == 0
    assert_clean(written, member.ledger)


def test_an_answer_out_of_range_skips_nothing(
    cluster: EmbeddedCluster, topic: str, eventually: Eventually
) -> None:
    """The policy ``latest`` leaves out what lies between there and the end of the log."""
    cluster.create_topic(topic, 1)
    written = MemoryLedger("producer")
    write(cluster, topic, [(key, b"x" * 1_000) for key, _ in numbered(3_000)], written)
    # Little at a time, so that much is left to fetch when the answer comes.
    conf = quiet_conf(
        cluster, group_name(), max_partition_fetch_bytes=20_000, queued_max_messages_kbytes=20
    )
    first = Member(conf, [topic], slow, window_records=50).start()
    eventually(lambda: first.position() >= 50, 60.0)
    assert first.stop() == 0
    conf |= {"auto.offset.reset": "latest"}
    go = threading.Event()

    def held(_record: Any) -> None:
        go.wait(60)

    second = Member(conf, [topic], held, name="second", window_records=50).start()
    eventually(lambda: bool(starts(second.ledger)), 60.0)
    cluster.fail_next("Fetch", "OFFSET_OUT_OF_RANGE")
    go.set()

    def behind_them() -> bool:
        write(cluster, topic, numbered(1), written)
        return max(starts(second.ledger)) >= 3_000

    eventually(behind_them, 60.0)
    total = len(written.events)
    eventually(lambda: second.position() == total, 60.0)
    assert second.stop() == 0
    assert_clean(written, first.ledger, second.ledger)

"""`keyshared doctor` against a real broker: a healthy setup, a sick one, and nothing is touched."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafka_keyshared.local.cluster import Cluster
from tests.conftest import Eventually
from tests.support.cli import in_process
from tests.support.live import committed, write


def doctor(
    capsys: pytest.CaptureFixture[str], cluster: Cluster, topic: str, *arguments: object
) -> tuple[int, dict[str, dict[str, str]]]:
    """Return the status and the checks by name."""
    ended = in_process(
        capsys,
        *("doctor", "-b", cluster.bootstrap, "-t", topic, "-g", topic, *arguments, "--json"),
    )
    result: dict[str, Any] = json.loads(ended.out)
    return ended.status, {check["name"]: check for check in result["checks"]}


def make_topic(cluster: Cluster, name: str, partitions: int, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    conf = {key.replace("_", "."): value for key, value in settings.items()}
    wanted = NewTopic(name, partitions, 1, config=conf)
    admin.create_topics([wanted])[name].result(30)
    cluster.create_topic(name, partitions)


def group_state(cluster: Cluster, group: str) -> tuple[str, int]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    described = admin.describe_consumer_groups([group])[group].result(30)
    return described.state.name, len(described.members)


def test_a_healthy_setup_is_told_and_left_as_it_is(
    real_cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make_topic(real_cluster, topic, 3)
    make_topic(real_cluster, f"{topic}.dlq", 1)
    for number in range(3):
        write(real_cluster, topic, [(b"k", b"v")] * (number + 1), partition=number)
    status, found = doctor(
        capsys, real_cluster, topic, "--dlq", "auto", "-X", "auto.offset.reset=earliest"
    )
    assert status == 0
    assert [check["status"] for check in found.values()] == ["skipped"] + ["ok"] * 9
    assert real_cluster.bootstrap in found["broker"]["seen"]
    assert found["topics"]["seen"] == f"{topic}: 3 partitions"
    assert "new, nobody has joined it yet" in found["group"]["seen"]
    assert "3 of 3 partitions, 6 records, start at the beginning" in found["positions"]["seen"]
    assert found["metadata"]["seen"] == "offset.metadata.max.bytes 4096"
    # It has asked and nothing else: no member, no position, no record.
    assert group_state(real_cluster, topic) == ("DEAD", 0)
    assert committed(real_cluster, topic, topic)[0] < 0
    consumer = Consumer({"bootstrap.servers": real_cluster.bootstrap, "group.id": "unused"})
    assert consumer.get_watermark_offsets(ClientPartition(f"{topic}.dlq", 0), 10) == (0, 0)
    consumer.close()


def test_a_sick_setup_is_told_with_reasons(
    real_cluster: Cluster,
    topic: str,
    capsys: pytest.CaptureFixture[str],
    eventually: Eventually,
) -> None:
    """Others run with another assignor; records are gone unread; the dead letters do not fit."""
    make_topic(real_cluster, topic, 2)
    make_topic(real_cluster, f"{topic}.dlq", 1, max_message_bytes="1000", cleanup_policy="compact")
    write(real_cluster, topic, [(b"k", b"v")] * 10, partition=0)
    producer = Producer({"bootstrap.servers": real_cluster.bootstrap})
    # A broker takes what is less than an hour ahead (message.timestamp.after.max.ms).
    ahead = int(time.time() * 1000) + 600_000
    refused: list[object] = []
    producer.produce(
        topic, b"", b"k", 1, timestamp=ahead, on_delivery=lambda error, _: refused.append(error)
    )
    assert producer.flush(30) == 0
    assert refused == [None]
    admin = AdminClient({"bootstrap.servers": real_cluster.bootstrap})
    other = Consumer(
        {
            "bootstrap.servers": real_cluster.bootstrap,
            "group.id": topic,
            "client.id": "an-older-release",
            "partition.assignment.strategy": "cooperative-sticky",
            "enable.auto.commit": False,
        }
    )
    assigned = threading.Event()
    other.subscribe([topic], on_assign=lambda *_: assigned.set())

    def joined() -> bool:
        other.poll(0.1)
        return assigned.is_set()

    eventually(joined, 60.0)
    other.commit(offsets=[ClientPartition(topic, 0, 3)], asynchronous=False)
    deleted = admin.delete_records([ClientPartition(topic, 0, 7)])
    for future in deleted.values():
        future.result(30)
    status, found = doctor(capsys, real_cluster, topic, "--dlq", "auto")
    other.close()
    assert status == 3
    told = [check["status"] for check in found.values()]
    assert told == ["skipped", "ok", "ok", "ok", "warn", "warn", "fail", "warn", "ok", "warn"]
    assert "'cooperative-sticky' (an-older-release at /127.0.0.1)" in found["group"]["why"]
    assert "ours: range,roundrobin" in found["group"]["why"]
    assert found["positions"]["seen"].startswith(f"{topic}: lag 7 (1 of 2 partitions, 1 record, ")
    assert "start at their end" in found["positions"]["why"]
    assert f"{topic}-0: from the committed position 3 on, 4 records" in found["retention"]["why"]
    assert "takes records of 1,000 bytes at most" in found["dlq"]["why"]
    assert "is compacted" in found["dlq"]["why"]
    assert "from now" in found["clock"]["why"]
    status, found = doctor(
        capsys, real_cluster, topic, "-X", "partition.assignment.strategy=cooperative-sticky"
    )
    assert found["group"]["status"] == "ok"
    assert found["dlq"]["status"] == "skipped"


def test_what_is_missing_is_named(
    real_cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, found = doctor(capsys, real_cluster, f"{topic}-nix")
    assert status == 3
    assert f"topic '{topic}-nix' does not exist" in found["topics"]["why"]
    assert found["group"]["status"] == "ok"
    for name in ("positions", "retention", "dlq", "clock"):
        assert found[name]["status"] == "skipped"
    make_topic(real_cluster, topic, 1)
    status, found = doctor(capsys, real_cluster, topic, "--dlq", "auto")
    assert status == 3
    assert f"'{topic}.dlq' does not exist" in found["dlq"]["why"]
    status, found = doctor(capsys, real_cluster, topic, "--dlq", "auto", "--dlq-create")
    assert status == 0
    assert "would be made at start" in found["dlq"]["seen"]


def test_a_pattern_that_reads_its_own_dead_letters(
    real_cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make_topic(real_cluster, topic, 1)
    make_topic(real_cluster, f"{topic}.dlq", 1)
    status, found = doctor(capsys, real_cluster, f"^{topic}", "--dlq", "auto", "--dlq-create")
    assert status == 3
    assert found["topics"]["seen"] == f"^{topic}: 2 topics ({topic}, {topic}.dlq)"
    assert f"'{topic}.dlq' is consumed here too" in found["dlq"]["why"]

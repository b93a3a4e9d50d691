"""`keyshared doctor` against a real broker that is healthy: it says so and touches nothing.

What is not healthy is made so in ``test_doctor_finds.py``.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.cli import in_process
from tests.support.live_cluster import committed, write


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
    real_cluster: Cluster,
    topic: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told_in = f"{topic}.status"
    monkeypatch.setenv("KEYSHARED_GROUP_VIEW_TOPIC", told_in)
    monkeypatch.setenv("KEYSHARED_GROUP_VIEW_CREATE", "true")
    make_topic(real_cluster, topic, 3)
    make_topic(real_cluster, f"{topic}.dlq", 1)
    for number in range(3):
        write(real_cluster, topic, [(b"k", b"v")] * (number + 1), partition=number)
    status, found = doctor(
        capsys, real_cluster, topic, "--dlq", "auto", "-X", "auto.offset.reset=earliest"
    )
    assert status == 0
    left_out = {name for name, check in found.items() if check["status"] == "skipped"}
    # No handler and no instance is named, a group without members and positions cannot stick, and
    # records go by their own key: no sample of keys is read.
    assert left_out == {"handler", "keys", "progress", "instance", "rules", "spark"}
    assert {found[name]["status"] for name in found.keys() - left_out} == {"ok"}
    assert real_cluster.bootstrap in found["broker"]["seen"]
    assert found["topics"]["seen"] == f"{topic}: 3 partitions"
    assert "new, no member has joined it yet" in found["group"]["seen"]
    assert "3 of 3 partitions, 6 records, start at the beginning" in found["positions"]["seen"]
    assert found["metadata"]["seen"] == "offset.metadata.max.bytes 4096"
    assert found["group-view"]["seen"] == f"{told_in}: not there, would be made at start"
    # It has asked and nothing else: no member, no position, no record, no topic.
    assert group_state(real_cluster, topic) == ("DEAD", 0)
    assert committed(real_cluster, topic, topic)[0] < 0
    consumer = Consumer({"bootstrap.servers": real_cluster.bootstrap, "group.id": "unused"})
    assert consumer.get_watermark_offsets(ClientPartition(f"{topic}.dlq", 0), 10) == (0, 0)
    assert told_in not in consumer.list_topics(timeout=30).topics
    consumer.close()

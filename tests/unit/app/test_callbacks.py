"""Rebalance callbacks written for a plain consumer: start positions, commits, unassignments."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_STORED
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared import ConfigError, Consumer, KeyShared
from kafka_keyshared.client.port import LogBounds
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.runtime.start_points import chosen_offset
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.background_apps import Running, running_apps
from tests.support.live_cluster import client_conf, group_name, write

Eventually = Callable[..., None]
Runs = Callable[[KeyShared], Running]
Given = Callable[[Any, list[ClientPartition]], None]

COUNT = 40

running = pytest.fixture(running_apps)


@pytest.fixture
def group(embedded_cluster: Cluster, topic: str) -> dict[str, Any]:
    """The settings of a group whose committed position is at the end of its topic."""
    embedded_cluster.create_topic(topic, 1)
    write(embedded_cluster, topic, [(b"k%d" % (number % 5), b"") for number in range(COUNT)])
    conf = client_conf(embedded_cluster, group_name())
    plain = confluent_kafka.Consumer({**conf, "enable.auto.commit": False})
    plain.commit(offsets=[ClientPartition(topic, 0, COUNT)], asynchronous=False)
    plain.close()
    return conf


def over(conf: dict[str, Any], topic: str, way: str, **callbacks: Any) -> tuple[KeyShared, Any]:
    """An app with these callbacks, and the consumer that they may also know by another name."""
    if way == "app":
        return KeyShared(conf, [topic], workers=2, commit_interval=0.1, **callbacks), None
    consumer = Consumer(conf)
    consumer.subscribe([topic], **callbacks)
    return KeyShared.wrap(consumer, workers=2, commit_interval=0.1), consumer


def assigned_at(offset: int, protocol: str) -> Given:
    def on_assign(consumer: Any, partitions: list[ClientPartition]) -> None:
        for each in partitions:
            each.offset = offset
        if protocol == "eager":
            consumer.assign(partitions)
        else:
            consumer.incremental_assign(partitions)

    return on_assign


def sought_to(offset: int, protocol: str) -> Given:
    def on_assign(consumer: Any, partitions: list[ClientPartition]) -> None:
        assigned_at(OFFSET_STORED, protocol)(consumer, partitions)
        for each in partitions:
            consumer.seek(ClientPartition(each.topic, each.partition, offset))

    return on_assign


@pytest.mark.parametrize(
    ("way", "protocol", "chosen_by"),
    [
        ("app", "eager", assigned_at),
        ("app", "cooperative", sought_to),
        ("wrapped", "eager", sought_to),
        ("wrapped", "cooperative", assigned_at),
    ],
)
def test_a_position_chosen_in_on_assign_is_where_the_partition_starts(
    *,
    way: str,
    protocol: str,
    chosen_by: Callable[[int, str], Given],
    group: dict[str, Any],
    topic: str,
    eventually: Eventually,
    running: Runs,
) -> None:
    strategy = {"partition.assignment.strategy": "cooperative-sticky"}
    conf = group | (strategy if protocol == "cooperative" else {})
    app, consumer = over(conf, topic, way, on_assign=chosen_by(COUNT - 15, protocol))
    handled: list[int] = []
    app.handler(lambda record: handled.append(record.offset()))
    instance = running(app)
    eventually(lambda: len(handled) >= 15, 30.0)
    assert instance.stop() == 0
    assert sorted(handled) == list(range(COUNT - 15, COUNT))
    if consumer is not None:
        consumer.close()


def test_a_group_that_is_rewound_commits_from_there(
    group: dict[str, Any],
    topic: str,
    eventually: Eventually,
    running: Runs,
) -> None:
    app = KeyShared(
        group,
        [topic],
        workers=2,
        commit_interval=0.1,
        on_assign=assigned_at(OFFSET_BEGINNING, "eager"),
        retry={"attempts": 1},
    )
    handled: list[int] = []

    @app.handler
    def handle(record: Any) -> None:
        handled.append(record.offset())
        if record.offset() == 10:
            raise ValueError("it blocks its key")

    instance = running(app)
    eventually(lambda: len(handled) >= COUNT - 6, 60.0)
    assert instance.stop() == 0
    plain = confluent_kafka.Consumer({**group, "enable.auto.commit": False})
    (committed,) = plain.committed([ClientPartition(topic, 0)], 30)
    plain.close()
    assert committed.offset == 10
    assert len(handled) == len(set(handled))


def test_an_assignment_of_other_partitions_ends_the_run_before_anything_is_read(
    group: dict[str, Any], topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    group |= {"auto.offset.reset": "earliest", "group.id": group_name()}

    def on_assign(consumer: Any, partitions: list[ClientPartition]) -> None:
        consumer.assign([])

    app = KeyShared(group, [topic], workers=2, on_assign=on_assign)
    handled: list[int] = []
    app.handler(lambda record: handled.append(record.offset()))
    with pytest.raises(ConfigError, match=r"assign\(nothing\) in on_assign: the group gave"):
        app.run()
    assert handled == []


def test_commits_and_unassignments_in_callbacks_are_done_already(
    group: dict[str, Any],
    topic: str,
    eventually: Eventually,
    running: Runs,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kafka_keyshared")
    said: list[Any] = []

    def on_revoke(consumer: Any, partitions: list[ClientPartition]) -> None:
        said.append(consumer.commit())
        said.append([each.offset for each in consumer.commit(asynchronous=False)])
        consumer.unassign()

    app = KeyShared(
        group,
        [topic],
        workers=2,
        on_assign=assigned_at(COUNT - 5, "eager"),
        on_revoke=on_revoke,
    )
    handled: list[int] = []
    app.handler(lambda record: handled.append(record.offset()))
    instance = running(app)
    eventually(lambda: len(handled) == 5, 60.0)
    assert instance.stop() == 0
    assert said == [None, [COUNT]]
    lines = [each for each in caplog.records if "commit() in on_revoke" in each.getMessage()]
    assert [each.levelname for each in lines] == ["INFO"]
    # On a busy machine the client may say that a broker took long.
    ours = [each for each in caplog.records if each.name != "kafka_keyshared.kafka"]
    assert [each for each in ours if each.levelno >= logging.WARNING] == []


@pytest.mark.parametrize(
    ("offset", "at", "warned"),
    [
        (OFFSET_BEGINNING, 100, False),
        (OFFSET_END, 500, False),
        (-2000 - 30, 470, False),
        (-2000 - 1000, 100, False),
        (250, 250, False),
        (7, 100, True),
        (501, 500, True),
    ],
)
def test_a_chosen_offset_is_one_in_the_log(
    offset: int, at: int, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    partition = TopicPartition("orders", 0)
    assert chosen_offset(partition, offset, LogBounds(100, 500)) == at
    assert (f"orders-0: on_assign chose offset {offset}" in caplog.text) == warned

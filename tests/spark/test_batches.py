"""Batches on a real Spark over a real Kafka, and pods that go on where they end."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from kafka_keyshared import KeyShared
from kafka_keyshared.local.cluster import Cluster
from kafka_keyshared.model import Record
from kafka_keyshared.spark.driver.group import GroupActiveError
from kafka_keyshared.spark.driver.run import Outcome, Wanted, run_batches
from kafka_keyshared.spark.session import Session

PARTITIONS = 3
Eventually = Callable[..., None]


def produce(cluster: Cluster, topic: str, numbers: Iterable[int], keys: int = 20) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5})
    for number in numbers:
        key = None if number % 50 == 49 else f"k{number % keys}"
        producer.produce(topic, key=key, value=b"%d" % number, headers={"n": str(number)})
    assert producer.flush(30) == 0


def noting(place: Path, fails: Callable[[int], bool] = lambda _: False) -> Callable[[Record], None]:
    """A handler that notes each record in a file of its process, and fails where it is told."""
    where = str(place)

    def handle(record: Record) -> None:
        import os
        from pathlib import Path

        number = int(record.value())
        line = f"{record.key()!r} {number} {record.partition()} {record.offset()}\n"
        if fails(number):
            raise ValueError(f"poison {number}")
        with Path(where, f"{os.getpid()}-{record.partition()}.txt").open("a") as file:
            file.write(line)

    return handle


def noted(place: Path) -> list[tuple[str, int, int, int]]:
    found = []
    for file in place.iterdir():
        for line in file.read_text().splitlines():
            key, number, partition, offset = line.split()
            found.append((key, int(number), int(partition), int(offset)))
    return found


def by_key(place: Path) -> dict[tuple[str, str], list[int]]:
    """The numbers of each key that is one, in the order in which a process has run them."""
    found: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for file in place.iterdir():
        for line in file.read_text().splitlines():
            key, number, *_ = line.split()
            if key != "None":
                found[file.name, key].append(int(number))
    return found


def an_app(cluster: Cluster, topic: str, handler: Any, **options: Any) -> KeyShared:
    conf = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": f"g-{topic}",
        "auto.offset.reset": "earliest",
    }
    options.setdefault("workers", 4)
    app = KeyShared(conf, [topic], **options)
    app.handler(handler)
    return app


def wanted(app: KeyShared, **given: Any) -> Wanted:
    options = app.options
    return Wanted(
        app.conf,
        app.topics,
        app.subscription,
        app.worker_specs(),
        options.dlq_topic,
        options.dlq_create,
        options.dlq_format,
        **given,
    )


def run_pod(app: KeyShared, until: Callable[[], bool], eventually: Eventually) -> int:
    statuses: list[int] = []
    thread = threading.Thread(target=lambda: statuses.append(app.run()))
    thread.start()
    try:
        eventually(until, 60)
    finally:
        app.stop()
        thread.join()
    return statuses[0]


def read_all(cluster: Cluster, topic: str) -> list[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    found, ended = [], 0
    consumer.subscribe([topic])
    count = len(consumer.list_topics(topic).topics[topic].partitions)
    while ended < count:
        message = consumer.poll(10)
        assert message is not None
        if message.error() is not None:
            ended += 1
        else:
            found.append(message)
    consumer.close()
    return found


def test_pods_go_on_where_a_batch_has_ended(
    session: Session, real_cluster: Cluster, topic: str, tmp_path: Path, eventually: Eventually
) -> None:
    """Nothing is lost, nothing repeated, and each key stays in order."""
    real_cluster.create_topic(topic, PARTITIONS)
    produce(real_cluster, topic, range(900))
    pods, spark = tmp_path / "pods", tmp_path / "spark"
    pods.mkdir()
    spark.mkdir()
    outcome = run_batches(session.spark, wanted(an_app(real_cluster, topic, noting(spark))))
    assert (outcome.records, outcome.batches, outcome.ended) == (900, 1, "caught_up")
    assert sorted(each[1] for each in noted(spark)) == list(range(900))
    assert all(numbers == sorted(numbers) for numbers in by_key(spark).values())
    produce(real_cluster, topic, range(900, 1_000))
    app = an_app(real_cluster, topic, noting(pods))
    assert run_pod(app, lambda: len(noted(pods)) >= 100, eventually) == 0
    assert sorted(each[1] for each in noted(pods)) == list(range(900, 1_000))


def test_dead_letters_are_those_that_pods_would_write(
    session: Session, real_cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    real_cluster.create_topic(topic, PARTITIONS)
    produce(real_cluster, topic, range(300))
    handler = noting(tmp_path, lambda number: number % 10 == 3)
    options = {"dlq": True, "dlq_create": True, "retry": {"attempts": 2, "backoff": 0.01}}
    outcome = run_batches(session.spark, wanted(an_app(real_cluster, topic, handler, **options)))
    assert (outcome.handled, outcome.dead_lettered, outcome.ended) == (270, 30, "caught_up")
    letters = read_all(real_cluster, f"{topic}.dlq")
    assert sorted(int(each.value()) for each in letters) == list(range(3, 300, 10))
    for letter in letters:
        told = dict(letter.headers())
        assert told["n"] == letter.value()
        assert told["keyshared.error.message"] == b"poison " + letter.value()
        assert told["keyshared.attempts"] == b"2"
        assert told["keyshared.source.topic"] == topic.encode()
        assert told["keyshared.source.group"] == f"g-{topic}".encode()
        assert int(told["keyshared.first.failure"]) > 1_600_000_000_000


def test_a_blocked_key_is_handed_over_with_everything_else_settled(
    session: Session, real_cluster: Cluster, topic: str, tmp_path: Path, eventually: Eventually
) -> None:
    real_cluster.create_topic(topic, PARTITIONS)
    produce(real_cluster, topic, range(400))
    pods, spark = tmp_path / "pods", tmp_path / "spark"
    pods.mkdir()
    spark.mkdir()
    handler = noting(spark, lambda number: number % 20 == 7 and number >= 107)
    options = {"retry": {"attempts": 2, "backoff": 0.01}}
    outcome = run_batches(session.spark, wanted(an_app(real_cluster, topic, handler, **options)))
    left = list(range(107, 400, 20))
    left = [each for each in left if each % 50 != 49]
    assert outcome.ended == "held_up"
    assert sorted(each[1] for each in noted(spark)) == sorted(set(range(400)) - set(left))
    app = an_app(real_cluster, topic, noting(pods), **options)
    assert run_pod(app, lambda: len(noted(pods)) >= len(left), eventually) == 0
    assert [each[1] for each in noted(pods)] == left, "each once, and in order"


def test_an_active_group_is_refused(
    session: Session, real_cluster: Cluster, topic: str, tmp_path: Path, eventually: Eventually
) -> None:
    real_cluster.create_topic(topic, PARTITIONS)
    produce(real_cluster, topic, range(10))
    app = an_app(real_cluster, topic, noting(tmp_path))

    def refused() -> bool:
        if len(noted(tmp_path)) < 10:
            return False
        with pytest.raises(GroupActiveError, match="has 1 member"):
            run_batches(session.spark, wanted(an_app(real_cluster, topic, noting(tmp_path))))
        return True

    assert run_pod(app, refused, eventually) == 0
    assert len(noted(tmp_path)) == 10


def test_batches_follow_one_another_until_all_is_done(
    session: Session, real_cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    real_cluster.create_topic(topic, PARTITIONS)
    produce(real_cluster, topic, range(300))
    told: list[tuple[str, int]] = []

    def watch(what: str, plan: Any, done: Outcome) -> None:
        told.append((what, done.records))

    app = an_app(real_cluster, topic, noting(tmp_path))
    outcome = run_batches(session.spark, wanted(app, most=60), watch)
    assert outcome.records == 300
    assert outcome.batches > 1
    assert told[-1] == ("committed", 300)
    assert sorted(each[1] for each in noted(tmp_path)) == list(range(300))
    assert json.loads(json.dumps(outcome.told()))["left"] == 0

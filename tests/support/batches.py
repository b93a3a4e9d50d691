"""Topics, handlers and pods for the tests of batches on Spark."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from kafka_keyshared import KeyShared
from kafka_keyshared.cli.spark_wanted import wanted_of
from kafka_keyshared.model import Record
from kafka_keyshared.spark.driver.run import SparkRunRequest
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.cli import Ended, in_process, own_modules

PARTITIONS = 3
Eventually = Callable[..., None]


def produce(cluster: Cluster, topic: str, numbers: Iterable[int], keys: int = 20) -> None:
    """Write numbered records; of fifty one has no key."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5})
    for number in numbers:
        key = None if number % 50 == 49 else f"k{number % keys}"
        producer.produce(topic, key=key, value=b"%d" % number, headers={"n": str(number)})
    assert producer.flush(30) == 0


def filled(cluster: Cluster, topic: str, count: int) -> None:
    """Make the topic with so many numbered records in it."""
    cluster.create_topic(topic, PARTITIONS)
    produce(cluster, topic, range(count))


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
    """Return key, number, partition and offset of what was noted."""
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
    """Return an app of the topic's own group, which starts at the beginning."""
    conf = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": f"g-{topic}",
        "auto.offset.reset": "earliest",
    }
    options.setdefault("workers", 4)
    app = KeyShared({**conf, **options.pop("conf", {})}, [topic], **options)
    app.handler(handler)
    return app


def typed_run(
    capsys: pytest.CaptureFixture[str],
    place: Path,
    cluster: Cluster,
    topic: str,
    *arguments: object,
) -> Ended:
    """`keyshared spark run` as it is typed, in this process; the handler is ``place``'s app.py."""
    with own_modules(place):
        return in_process(
            capsys,
            *("spark", "run", "app:handle", "--app-dir", place, "-b", cluster.bootstrap),
            *("-g", f"g-{topic}", "--from-beginning", "--json", *arguments),
        )


def folders(place: Path) -> tuple[Path, Path]:
    """Make the folders in which pods and Spark note what they run."""
    made = place / "pods", place / "spark"
    for each in made:
        each.mkdir()
    return made


def wanted(app: KeyShared, **given: Any) -> SparkRunRequest:
    """Return what the app would run, for Spark."""
    return wanted_of(app, **given)


def run_pod(app: KeyShared, until: Callable[[], bool], eventually: Eventually) -> int:
    """Run the app as a pod until that is so; return its status."""
    statuses: list[int] = []
    thread = threading.Thread(target=lambda: statuses.append(app.run()))
    thread.start()
    try:
        eventually(until, 180)
    finally:
        app.stop()
        thread.join()
    return statuses[0]


def read_all(cluster: Cluster, topic: str) -> list[Any]:
    """Return everything that is in a topic."""
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

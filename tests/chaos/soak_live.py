"""The writer and the onlooker of a soak, both while it goes on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.cimpl import NewPartitions

from kafka_keyshared.model import TopicPartition
from kafka_keyshared.observability.audit.ledger import (
    DROPPED,
    OK,
    SUFFIX,
    DeadLettered,
    Dropped,
    Ended,
    Event,
    MemoryLedger,
    Produced,
    Started,
)
from kafka_keyshared.testing.clusters.cluster import (
    Cluster,
    admin_client,
    await_metadata,
    has_leaders,
)
from tests.chaos.soak_schedule import ALWAYS, BLOCKED, MAIN, Scenario, Stream

Coordinates = tuple[str, int, int]
"""Topic, partition, offset."""

ENOUGH = 120.0
MOST_AT_ONCE = 2_000


def new_partitions(cluster: Cluster, topic: str, count: int) -> None:
    """Let the topic have so many partitions, and return when each has a leader."""
    admin = admin_client(cluster.bootstrap)
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(60)

    def there(metadata: Any) -> bool:
        found = metadata.topics[topic]
        return len(found.partitions) == count and has_leaders(found)

    await_metadata(cluster.bootstrap, there, timeout=60, what=f"partitions of {topic}")


def blocking(topic: str, key: bytes | None) -> bool:
    """Whether records of this key are blocked by what happens in the soak, and may stay undone."""
    return topic == BLOCKED and key is not None and key.startswith(ALWAYS)


class Writer:
    """Writes the streams of all topics, and when the broker had what."""

    def __init__(self, cluster: Cluster, scenario: Scenario) -> None:
        self.ledger = MemoryLedger("producer")
        self.written: dict[TopicPartition, list[tuple[int, int]]] = {}
        self._streams = {topic: Stream(scenario, topic) for topic in (MAIN, BLOCKED)}
        self._counts = dict.fromkeys(self._streams, 0)
        self._failed: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "linger.ms": 5,
                "enable.idempotence": True,
                "queue.buffering.max.kbytes": 512 << 10,
                "topic.metadata.refresh.interval.ms": 2_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 2,
            }
        )

    def grow(self, partitions: int) -> None:
        """The main topic has so many partitions from now on."""
        # The producer refuses a partition that it has not seen yet.
        topic = self._producer.list_topics(MAIN, timeout=30).topics[MAIN]
        assert len(topic.partitions) == partitions, f"{MAIN} has {len(topic.partitions)} partitions"
        self._streams[MAIN].grow(partitions)

    def big_values(self, count: int) -> None:
        """Make so many of the next values big, and write one record that takes long."""
        self._streams[MAIN].big = count
        self._produce(MAIN, [self._streams[MAIN].long_record()])

    def write(self, topic: str, count: int) -> None:
        """Write so many records; the broker need not have them when this returns."""
        self._produce(topic, self._streams[topic].take(min(count, MOST_AT_ONCE)))

    def _produce(self, topic: str, records: list[Any]) -> None:
        for record in records:
            self._counts[topic] += 1
            self._producer.produce(
                topic,
                bytes(record.size),
                record.key,
                -1 if record.partition is None else record.partition,
                on_delivery=self._delivered,
            )
        self._producer.poll(0)

    def serve(self) -> None:
        """Hear what the broker has said."""
        self._producer.poll(0)
        assert not self._failed, f"the soak's own producer failed: {self._failed[:3]}"

    def wait(self) -> None:
        """Wait until the broker has everything."""
        assert self._producer.flush(ENOUGH) == 0, "the broker does not take what is written"
        self.serve()

    def count(self, topic: str) -> int:
        """How many records were written to the topic."""
        return self._counts[topic]

    def owed(self) -> set[Coordinates]:
        """Every record that has to be settled before the end."""
        return {
            (event.topic, event.partition, event.offset)
            for event in self.ledger.events
            if isinstance(event, Produced) and not blocking(event.topic, event.key)
        }

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed.append(error)
            return
        topic, number, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert number is not None
        assert offset is not None
        key: Any = message.key()
        self.ledger.produced(topic, number, offset, key)
        spans = self.written.setdefault(TopicPartition(topic, number), [])
        spans.append((time.monotonic_ns(), offset + 1))


class Watch:
    """Reads the ledgers while they are written: what is settled, by whomever."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}
        self._open: dict[tuple[Path, int], Coordinates] = {}
        self._settled: set[Coordinates] = set()
        self._counts = {MAIN: 0, BLOCKED: 0}
        self._decoder = msgspec.json.Decoder(Event)

    def look(self) -> None:
        """Read what is new."""
        for path in self._directory.glob(f"*{SUFFIX}"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            for event in self._decoder.decode_lines(whole) if whole else ():
                self._note(path, event)

    def _note(self, path: Path, event: Event) -> None:
        if isinstance(event, Started):
            self._open[path, event.attempt] = (event.topic, event.partition, event.offset)
        elif isinstance(event, Ended):
            place = self._open.pop((path, event.attempt), None)
            if place is not None and event.outcome in (OK, DROPPED):
                self._settle(place)
        elif isinstance(event, DeadLettered | Dropped):
            self._settle((event.topic, event.partition, event.offset))

    def _settle(self, place: Coordinates) -> None:
        if place not in self._settled:
            self._settled.add(place)
            self._counts[place[0]] += 1

    def count(self, topic: str) -> int:
        """How many records of the topic are settled."""
        return self._counts[topic]

    def has_all(self, owed: set[Coordinates]) -> bool:
        """Whether all of these are settled."""
        return len(owed) <= len(self._settled) and owed <= self._settled

"""Instances, producers and readers on a live cluster, all of them heard by a ledger."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, TypeAlias

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
)
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafka_keyshared.app.hooks import Hooks
from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.client.topic_ids import id_in
from kafka_keyshared.core.offsets import commit_metadata
from kafka_keyshared.core.offsets.metadata_sections import LogPosition, topic_id_in
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.dlq.envelope import source_of
from kafka_keyshared.lab.demo.ledgers import (
    AuditedClient,
    audited_client,
    on_dead_letter,
    on_rebalance,
)
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.observability.audit.judge import Judgement, judge
from kafka_keyshared.observability.audit.ledger import CommitSent, MemoryLedger, OwnershipChanged
from kafka_keyshared.observability.audit.ledger_wrappers import audited
from kafka_keyshared.runtime.instance_view import InstanceView
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.kafka_requests import NOT_YET

Written: TypeAlias = tuple[bytes | None, bytes | None]
"""Key and value of a record to be written."""

Headers: TypeAlias = list[tuple[str, str | bytes | None]]


def numbered(count: int, keys: int = 13) -> list[tuple[bytes, bytes]]:
    """Return records whose keys take turns; the value says which one it is."""
    return [(b"key-%d" % (number % keys), b"%d" % number) for number in range(count)]


def slow(_record: object) -> None:
    """A handler that takes 4 ms, so that there is something to disturb."""
    _PAUSE.wait(0.004)


_PAUSE = threading.Event()


class AbandonedError(Exception):
    """Ends an instance as a crash would: nothing is drained and nothing is committed."""


def group_name() -> str:
    """Return a group that no other test uses."""
    return f"group-{uuid.uuid4().hex[:12]}"


def client_conf(cluster: Cluster, group: str, **more: Any) -> dict[str, Any]:
    """Return a consumer's settings with which a rebalance takes as little time as it can."""
    return {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        # Each later round of a rebalance on the embedded cluster lasts that long, less a second.
        "session.timeout.ms": 1_500 if cluster.kind == "embedded" else 6_000,
        "heartbeat.interval.ms": 200,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


class Member:
    """One incarnation of an instance, in a thread of its own, with a ledger of its own."""

    def __init__(
        self,
        conf: Mapping[str, Any],
        topics: Sequence[str],
        handler: Callable[..., Any],
        *,
        name: str = "first",
        client: type[AuditedClient] = AuditedClient,
        **options: Any,
    ) -> None:
        self.ledger = MemoryLedger(name)
        self.committed: dict[TopicPartition, int] = {}
        self.assigned: set[TopicPartition] = set()
        self.status: int | None = None
        self.error: BaseException | None = None
        self._abandoned = threading.Event()
        self._tell = on_rebalance(self.ledger)
        hooks = Hooks(
            client=audited_client(self.ledger, self.committed.__setitem__, client),
            rebalanced=self._rebalanced,
            dead_lettered=on_dead_letter(self.ledger),
            stepped=self._stepped,
        )
        options = {"workers": 4, "commit_interval": 0.2, **options}
        self.app = KeyShared(conf, topics, hooks=hooks, **options)
        self.app.handler(audited(handler, self.ledger))
        self._thread = threading.Thread(target=self._run, name=f"member-{name}", daemon=True)

    def start(self) -> Self:
        """Begin to consume."""
        self._thread.start()
        return self

    def stop(self, seconds: float = 60.0) -> int:
        """Stop cleanly and return the exit status."""
        self.app.stop()
        self.join(seconds)
        if self.error is not None:
            raise self.error
        assert self.status is not None
        return self.status

    def abandon(self, seconds: float = 60.0) -> None:
        """End it as a crash would."""
        self._abandoned.set()
        self.join(seconds)
        assert isinstance(self.error, AbandonedError), self.error

    def join(self, seconds: float = 60.0) -> None:
        """Wait for its end."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"{self._thread.name} does not end"

    @property
    def sub(self) -> Subscription:
        """The core's state; only numbers may be read from here."""
        assert self.app.instance is not None, "it has not started"
        return self.app.instance.core.subscriptions["default"]

    def done(self) -> int:
        """Return how many records have settled in this incarnation."""
        if self.app.instance is None:
            return 0
        counts = self.sub.counts
        return counts.ok + counts.dropped + counts.dead_lettered

    def position(self) -> int:
        """Return the sum of the positions that the broker accepted."""
        return sum(self.committed.values())

    def _run(self) -> None:
        try:
            self.status = self.app.run()
        except BaseException as error:  # noqa: BLE001 - raised again by stop()
            self.error = error

    def _rebalanced(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        self._tell(what, partitions)
        if what == "assigned":
            self.assigned = self.assigned.union(partitions)
        else:
            self.assigned = self.assigned.difference(partitions)

    def _stepped(self, _view: InstanceView) -> None:
        if self._abandoned.is_set():
            raise AbandonedError


def made_anew(
    cluster: Cluster,
    topic: str,
    partitions: int,
    eventually: Callable[[Callable[[], bool], float], None],
) -> None:
    """Delete a topic and make it again."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.delete_topics([topic])[topic].result(60)

    def made() -> bool:
        try:
            admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)
        except KafkaException:  # the old one has not quite gone
            return False
        return True

    eventually(made, 60.0)


def write(
    cluster: Cluster,
    topic: str,
    records: Iterable[Written],
    ledger: MemoryLedger | None = None,
    *,
    partition: int = -1,
    headers: Headers | None = None,
) -> None:
    """Write records and wait until the broker has them all."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "linger.ms": 2,
            "enable.idempotence": True,
            "message.max.bytes": 8 << 20,
        }
    )
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)
        elif ledger is not None:
            offset, number = message.offset(), message.partition()
            assert offset is not None
            assert number is not None
            key: Any = message.key()
            ledger.produced(topic, number, offset, key)

    for key, value in records:
        producer.produce(
            topic, value, key, partition, on_delivery=delivered, headers=list(headers or [])
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failed, failed[:3]


def read_all(cluster: Cluster, topic: str, count: int, seconds: float = 30.0) -> list[Message]:
    """Read ``count`` records of a topic from its beginning."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": group_name(), "fetch.wait.max.ms": 50}
    )
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([ClientPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        found: list[Message] = []
        deadline = time.monotonic() + seconds
        while len(found) < count and time.monotonic() < deadline:
            found += [each for each in consumer.consume(500, 0.2) if each.error() is None]
        return found
    finally:
        consumer.close()


def letters(cluster: Cluster, topic: str, count: int) -> MemoryLedger:
    """Read dead letters back into a ledger."""
    ledger = MemoryLedger(f"letters-{topic}")
    for message in read_all(cluster, topic, count):
        headers: Any = message.headers()
        source = source_of(headers)
        assert source is not None, f"a dead letter without a source: {headers}"
        ledger.dead_lettered(*source)
    return ledger


def await_coordinator(consumer: Consumer, topic: str) -> None:
    """Wait until the group's positions are answered; a new cluster refuses that for a moment."""
    pause, deadline = threading.Event(), time.monotonic() + 60
    while True:
        try:
            consumer.committed([ClientPartition(topic, 0)], timeout=30)
        except KafkaException:
            assert time.monotonic() < deadline, "the group has had no coordinator for a minute"
            pause.wait(0.1)
        else:
            return


def committed(cluster: Cluster, group: str, topic: str, partition: int = 0) -> tuple[int, str]:
    """Return what the broker has for a partition: the position and the metadata."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    try:
        # A new cluster, or a broker that had no turn for seconds, has no coordinator for a moment.
        await_coordinator(consumer, topic)
        (found,) = consumer.committed([ClientPartition(topic, partition)], timeout=10)
        return found.offset, found.metadata or ""
    finally:
        consumer.close()


def settled_sets(
    cluster: Cluster, group: str, topic: str, partition: int = 0
) -> tuple[int, Mapping[str, Any]]:
    """Return the committed position, and the settled sets beside it as the next owner reads them.

    A text that its partition's next owner would not believe fails the test.
    """
    position, text = committed(cluster, group, topic, partition)
    id_ = topic_id(cluster, topic) if topic_id_in(text) is not None else None
    decoded = commit_metadata.decode(
        text, LogPosition(TopicPartition(topic, partition), position, id_)
    )
    assert decoded.problem is None, decoded.problem
    return position, decoded.sections


def topic_id(cluster: Cluster, topic: str) -> str | None:
    """Return the id of a topic, None where the brokers have none."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    return id_in(admin.describe_topics(TopicCollection([topic]))[topic].result(30))


def judged(*ledgers: MemoryLedger) -> Judgement:
    """Return the verdict, having seen to it that there was something to judge."""
    verdict = judge(ledgers)
    assert verdict.totals.produced > 0
    assert verdict.totals.attempts > 0
    return verdict


def assert_clean(*ledgers: MemoryLedger) -> Judgement:
    """Judge the run and fail with the verdict in words unless every count is 0."""
    verdict = judged(*ledgers)
    assert verdict.clean, "\n".join(verdict.lines())
    return verdict


def sets_before_the_revoke(ledger: MemoryLedger) -> list[Any]:
    """Return the settled set of each partition's last commit before a partition was revoked."""
    latest: dict[int, CommitSent] = {}
    for event in ledger.events:
        if isinstance(event, CommitSent):
            latest[event.partition] = event
        elif isinstance(event, OwnershipChanged) and event.change == "revoked":
            break
    return [commit.settled for commit in latest.values()]


def starts(ledger: MemoryLedger) -> list[int]:
    """Return the offsets in the order in which their attempts started."""
    return [event.offset for event in ledger.events if type(event).__name__ == "Started"]  # type: ignore[union-attr]


def members(cluster: Cluster, group: str) -> int:
    """Ask the broker how many members the group has; -1 while a new cluster does not tell."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    (found,) = admin.describe_consumer_groups([group]).values()
    try:
        return len(found.result(30).members)
    except KafkaException as error:
        assert error.args[0].code() in NOT_YET, error
        return -1

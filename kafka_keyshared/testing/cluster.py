"""An embedded Kafka for one test: topics, records, and faults for clients.

The faults apply to the clients under test: the user's own consumers and producers, and those of a
:class:`~kafka_keyshared.KeyShared` app. This object writes and reads with its own clients. Arrange
a fault after writing, because otherwise those clients may meet it first.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.errors import BrokerUnavailableError, KeySharedError, TopicMissingError
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from kafka_keyshared.testing.records import Content, Headers, ReceivedRecord, as_bytes, as_headers

Request: TypeAlias = Literal[
    "produce",
    "fetch",
    "list_offsets",
    "metadata",
    "commit",
    "committed",
    "find_coordinator",
    "join_group",
    "sync_group",
    "heartbeat",
    "leave_group",
    "consumer_group_heartbeat",
    "api_versions",
    "offset_for_leader_epoch",
    "init_producer",
    "add_partitions_to_transaction",
    "add_offsets_to_transaction",
    "commit_in_transaction",
    "end_transaction",
]
"""A request of a client to a broker, named after the client's action."""

REQUESTS: Mapping[Request, str] = {
    "produce": "Produce",
    "fetch": "Fetch",
    "list_offsets": "ListOffsets",
    "metadata": "Metadata",
    "commit": "OffsetCommit",
    "committed": "OffsetFetch",
    "find_coordinator": "FindCoordinator",
    "join_group": "JoinGroup",
    "sync_group": "SyncGroup",
    "heartbeat": "Heartbeat",
    "leave_group": "LeaveGroup",
    "consumer_group_heartbeat": "ConsumerGroupHeartbeat",
    "api_versions": "ApiVersions",
    "offset_for_leader_epoch": "OffsetForLeaderEpoch",
    "init_producer": "InitProducerId",
    "add_partitions_to_transaction": "AddPartitionsToTxn",
    "add_offsets_to_transaction": "AddOffsetsToTxn",
    "commit_in_transaction": "TxnOffsetCommit",
    "end_transaction": "EndTxn",
}
"""The name of each request in Kafka's protocol guide."""

_NAMES = {protocol: name for name, protocol in REQUESTS.items()}
_QUIET: Mapping[str, Any] = {
    # Quiet, because a fault's effect on these clients does not belong in the test's output.
    "log_level": 2,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
}
_ASK = 10.0
_CHUNK = 10_000


class EmbeddedKafka:
    """A Kafka inside this process, made in a millisecond; a context manager.

    ``bootstrap`` is the value for ``bootstrap.servers``. Brokers are numbered from 1. A fault that
    moves a role from one broker to another needs at least two brokers. Limits: it keeps about 5 MB
    of a partition and **deletes the oldest beyond that without an error**. A topic that is
    requested before it is created gets 4 partitions. The admin client can neither create topics nor
    describe groups in it, so use :meth:`create_topic`, also for a dead-letter topic.

    Raises :class:`~kafka_keyshared.errors.MissingPartError` when the installed confluent-kafka is
    not the one from its wheel.
    """

    def __init__(self, brokers: int = 1) -> None:
        self._cluster = EmbeddedCluster(brokers)
        self._brokers = brokers
        self._producer: Producer | None = None
        self.bootstrap = self._cluster.bootstrap

    # --- settings ---

    def conf(
        self, group: str = "keyshared-test", more: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return a consumer's settings for this cluster, with ``more`` of the test's own.

        It starts at the beginning of a topic. A rebalance takes the minimum time possible here:
        each later round of a rebalance lasts the session time-out less one second.
        """
        return {
            "bootstrap.servers": self.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 1_500,
            "heartbeat.interval.ms": 200,
            **(more or {}),
        }

    # --- topics and records ---

    def create_topic(self, name: str, partitions: int = 4) -> str:
        """Create a topic and return its name.

        Raises :class:`~kafka_keyshared.errors.ConfigError` when it exists with another number of
        partitions.
        """
        self._cluster.create_topic(name, partitions)
        return name

    def produce(
        self,
        topic: str,
        records: Iterable[tuple[Content, Content]],
        *,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        timeout: float = 30.0,
    ) -> list[tuple[int, int]]:
        """Write (key, value) pairs; return partition and offset of each once all are written.

        A value of None is a tombstone. ``headers``, ``partition`` and ``timestamp`` (milliseconds
        since 1970) apply to all of them. Without a partition the key decides, by confluent-kafka's
        default partitioner. Raises :class:`TopicMissingError` for a topic that was not created.
        Raises :class:`KeySharedError` when a record is not accepted within ``timeout`` seconds, or
        a partition has lost its oldest records to its size limit.
        """
        producer = self._open_producer(topic)
        sent_headers = as_headers(headers) or []
        places: list[tuple[int, int]] = []
        refused: list[KafkaError] = []

        def put(key: Content, value: Content) -> None:
            at = len(places)
            places.append((-1, -1))

            def delivered(error: KafkaError | None, message: Message) -> None:
                if error is not None:
                    refused.append(error)
                else:
                    places[at] = (message.partition() or 0, message.offset() or 0)

            producer.produce(
                topic,
                key=as_bytes(key),
                value=as_bytes(value),
                partition=-1 if partition is None else partition,
                headers=list(sent_headers),
                timestamp=timestamp or 0,
                on_delivery=delivered,
            )

        try:
            for number, (key, value) in enumerate(records, start=1):
                put(key, value)
                if number % _CHUNK == 0:
                    producer.flush(timeout)
        except KafkaException as error:
            refused.append(error.args[0])
        left = producer.flush(timeout)
        if refused or left:
            # Its queue may hold records of this call, which the next call would write.
            self._producer = None
            why = str(refused[0]) if refused else f"no answer within {timeout:g} s"
            raise KeySharedError(
                f"topic {topic!r}: {len(refused) + left} of {len(places)} records were not "
                f"written: {why}; see whether a fault was arranged before writing"
            )
        self._check_kept(topic, {number for number, _ in places})
        return places

    def _open_producer(self, topic: str) -> Producer:
        if self._producer is None:
            conf = {"bootstrap.servers": self.bootstrap, "linger.ms": 1, **_QUIET}
            self._producer = Producer({**conf, "enable.idempotence": True})
        self._require(topic)
        return self._producer

    def _check_kept(self, topic: str, partitions: Iterable[int]) -> None:
        bounds = self._bounds(topic, partitions)
        if gone := [number for number, (low, _) in bounds.items() if low > 0]:
            raise KeySharedError(
                f"topic {topic!r}: the embedded cluster has deleted the oldest records of "
                f"partitions {gone}, because it keeps about 5 MB of each; write less, or spread it "
                "over more partitions"
            )

    def records(
        self, topic: str, *, at_least: int = 0, timeout: float = 30.0
    ) -> list[ReceivedRecord]:
        """Return all records of a topic, by partition and offset.

        Waits until there are ``at_least`` records, so it can also wait for dead letters. Raises
        ``AssertionError`` with the records found when that takes longer than ``timeout`` seconds.
        """
        numbers = self._require(topic)
        with self._reader() as reader:
            # Not OFFSET_BEGINNING, because the client would wait half a second before it queries
            # that offset.
            reader.assign([ClientPartition(topic, each, 0) for each in numbers])
            found: list[Message] = []
            ended: set[int] = set()
            deadline = time.monotonic() + timeout
            while len(ended) < len(numbers) or len(found) < at_least:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(
                        f"topic {topic!r} has {len(found)} records after {timeout:g} s, "
                        f"{at_least} were waited for: {[each.key() for each in found[:20]]}"
                    )
                # One by one, because consume() would wait for the full number of records.
                message = reader.poll(min(left, 0.2))
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition() or 0)
        found.sort(key=lambda each: (each.partition() or 0, each.offset() or 0))
        return found  # type: ignore[return-value] # what a topic gives back has a place

    # --- positions ---

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Return the committed positions, the next offsets to read, of partitions that have one."""
        with self._reader(group) as reader:
            wanted = [ClientPartition(topic, number) for number in self._require(topic)]
            try:
                found = reader.committed(wanted, timeout=_ASK)
            except KafkaException as error:
                raise self._unanswered(f"the positions of group {group!r}", error) from error
        return {each.partition: each.offset for each in found if each.offset >= 0}

    def lag(self, group: str, topic: str) -> int:
        """Return how far the group's committed positions are behind the topic's end, in records."""
        committed = self.committed(group, topic)
        bounds = self._bounds(topic, self._require(topic))
        return sum(high - committed.get(number, low) for number, (low, high) in bounds.items())

    def _bounds(self, topic: str, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        with self._reader() as reader:
            found: dict[int, tuple[int, int]] = {}
            for number in partitions:
                try:
                    bounds = reader.get_watermark_offsets(ClientPartition(topic, number), _ASK)
                except KafkaException as error:
                    raise self._unanswered(f"the end of topic {topic!r}", error) from error
                if bounds is None:
                    raise self._unanswered(f"the end of topic {topic!r}", None)
                found[number] = bounds
            return found

    def _require(self, topic: str) -> list[int]:
        with self._reader() as reader:
            try:
                # All topics, because a query for one topic by its name would create it.
                topics = reader.list_topics(timeout=_ASK).topics
            except KafkaException as error:
                raise self._unanswered(f"topic {topic!r}", error) from error
        if topic not in topics:
            raise TopicMissingError(f"topic {topic!r} does not exist; create it with create_topic")
        return sorted(topics[topic].partitions)

    def _unanswered(self, what: str, error: KafkaException | None) -> BrokerUnavailableError:
        why = f"no answer within {_ASK:g} s" if error is None else str(error.args[0])
        return BrokerUnavailableError(
            f"{what}: {why}; see whether a fault that was arranged is still to come, or a broker "
            "down"
        )

    def _reader(self, group: str | None = None) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group or f"keyshared-reader-{uuid.uuid4().hex[:8]}",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 1,
                **_QUIET,
            }
        )

    # --- faults ---

    def fail_next(
        self, request: Request, error: str | int, *, times: int = 1, broker: int | None = None
    ) -> None:
        """Answer the next ``times`` requests of a kind with an error, from any client.

        ``error`` is one of ``confluent_kafka.KafkaError``, by its name or as the constant.
        ``_TRANSPORT`` is the one that no broker sends; the connection breaks without an answer.
        With a ``broker`` only requests to it count. Raises
        :class:`~kafka_keyshared.errors.ConfigError` for an unknown request or error.
        """
        name = KafkaError(error).name() if isinstance(error, int) else error
        self._cluster.fail_next(self._known(request), name, times=times, broker=broker)

    def delay_next(
        self, request: Request, seconds: float, *, times: int = 1, broker: int | None = None
    ) -> None:
        """Delay the next ``times`` answers of one broker, or of each broker, by ``seconds``."""
        for number in range(1, self._brokers + 1) if broker is None else (broker,):
            self._cluster.delay_next(self._known(request), seconds, times=times, broker=number)

    def heal(self, request: Request | None = None) -> None:
        """Clear the pending errors, for one kind of request or for all.

        Delays, and errors that were arranged for one broker, stay.
        """
        for name in (request,) if request is not None else REQUESTS:
            self._cluster.heal(self._known(name))

    def broker_down(self, broker: int | None = None) -> None:
        """Break all connections of a broker, or of all, and refuse new ones; its data stays."""
        self._cluster.broker_down(broker)

    def broker_up(self, broker: int | None = None) -> None:
        """Accept connections again at a broker, or at all."""
        self._cluster.broker_up(broker)

    def move_coordinator(self, group: str, broker: int) -> None:
        """Make another broker the coordinator of a group; its members must find it again."""
        self._cluster.move_coordinator(group, broker)

    def move_leader(self, topic: str, partition: int, broker: int) -> None:
        """Make another broker the leader of a partition."""
        self._cluster.move_leader(topic, partition, broker)

    def fail_topic(self, topic: str, error: str | int | None) -> None:
        """Return an error for a topic in all metadata, until called with None."""
        name = KafkaError(error).name() if isinstance(error, int) else error
        self._cluster.fail_topic(topic, name)

    def watch_requests(self) -> None:
        """Count the requests of all clients from now on, for :meth:`requests`."""
        self._cluster.watch_requests()

    def requests(self) -> Counter[str]:
        """Return how many requests of each kind came since :meth:`watch_requests`."""
        counted: Counter[str] = Counter()
        for protocol, times in self._cluster.requests().items():
            counted[_NAMES.get(protocol, protocol)] += times
        return counted

    def _known(self, request: Request) -> str:
        # An unknown name is passed on, and the error then lists all known names.
        return REQUESTS.get(request, request)

    # --- lifecycle ---

    def close(self) -> None:
        """Stop the brokers; clients that are still connected lose their connections."""
        self._producer = None
        self._cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

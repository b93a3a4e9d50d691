"""The interface of every local cluster: address, topic creation, shutdown."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafka_keyshared.errors import BrokerUnavailableError, ConfigError, KeySharedError

if TYPE_CHECKING:
    from confluent_kafka.admin._metadata import ClusterMetadata, TopicMetadata

ClusterKind = Literal["embedded", "real"]

_ASK_AGAIN_AFTER = 0.05
_ONE_ANSWER = 2.0


class Cluster(ABC):
    """A Kafka cluster reachable over plain TCP on this machine; a context manager.

    ``bootstrap`` is the value for ``bootstrap.servers`` and does not change while the cluster
    lives. ``kind`` describes its storage. An ``embedded`` cluster keeps about 5 MB per partition
    and silently deletes the oldest beyond that. A ``real`` one keeps everything.
    """

    kind: ClusterKind
    bootstrap: str

    def create_topic(self, name: str, partitions: int, *, timeout: float = 30.0) -> None:
        """Create a topic and return once every partition is visible and has a leader.

        An existing topic with this many partitions is left as it is. ``timeout`` is in seconds.
        Raises :class:`ConfigError` when the name or the number is refused or the topic exists with
        another number. Raises :class:`BrokerUnavailableError` when the time is over.
        """
        if partitions < 1:
            raise ConfigError(
                f"topic {name!r}: {partitions} partitions asked for; give a number of at least 1"
            )
        created = self._create(name, partitions, timeout)

        def shown(metadata: ClusterMetadata) -> bool:
            topic = metadata.topics.get(name)
            if topic is None or not topic.partitions:
                return False
            if not created and len(topic.partitions) != partitions:
                raise ConfigError(
                    f"topic {name!r} exists with {len(topic.partitions)} partitions, {partitions} "
                    "were asked for; choose another name or delete the topic"
                )
            return len(topic.partitions) == partitions and has_leaders(topic)

        await_metadata(self.bootstrap, shown, timeout=timeout, what=f"topic {name!r}")

    @abstractmethod
    def _create(self, name: str, partitions: int, timeout: float) -> bool:
        """Create the topic; return False when a topic of that name exists."""

    @abstractmethod
    def close(self) -> None:
        """Release everything that this object started; a second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def has_leaders(topic: TopicMetadata) -> bool:
    """Return whether every partition of the topic can be written to and read from now."""
    return all(partition.leader >= 0 for partition in topic.partitions.values())


def admin_client(bootstrap: str) -> AdminClient:
    """Return a quiet admin client with fast reconnects, for a broker that is starting."""
    return AdminClient(
        {
            "bootstrap.servers": bootstrap,
            # A refused connection is normal while a broker starts, so it is not logged.
            "log_level": 2,
            # librdkafka backs off up to 10 s by default, longer than a broker takes to start.
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
        }
    )


def await_metadata(
    bootstrap: str,
    ready: Callable[[ClusterMetadata], bool],
    *,
    timeout: float,
    what: str,
    check: Callable[[], None] | None = None,
) -> ClusterMetadata:
    """Query the metadata of all topics until ``ready`` accepts it, and return it.

    All topics are queried because a request that names a topic creates it on an embedded cluster.
    ``timeout`` is in seconds. ``check`` is called between two queries and may raise to end the
    wait. Raises :class:`BrokerUnavailableError` naming ``what`` when the time is over.
    """
    admin = admin_client(bootstrap)
    deadline = time.monotonic() + timeout
    last = "the metadata never showed it"
    while (left := deadline - time.monotonic()) > 0:
        if check is not None:
            check()
        try:
            metadata = admin.list_topics(timeout=min(_ONE_ANSWER, left))
        except KafkaException as refused:
            last = str(refused.args[0])
        else:
            if ready(metadata):
                return metadata
            last = "the metadata never showed it"
        time.sleep(_ASK_AGAIN_AFTER)
    raise BrokerUnavailableError(
        f"{what} at {bootstrap}: not ready after {timeout:.0f} s ({last}); "
        "see whether the machine is overloaded and try again with more time"
    )


def create_by_admin(bootstrap: str, name: str, partitions: int, timeout: float) -> bool:
    """Create a topic with the cluster's default replication; return False if it exists.

    Raises :class:`ConfigError` when the broker refuses the name or the number, and
    :class:`BrokerUnavailableError` when it does not answer.
    """
    # Kept in a variable, because a garbage-collected client drops its unanswered requests.
    admin = admin_client(bootstrap)
    created = admin.create_topics(
        [NewTopic(name, num_partitions=partitions, replication_factor=-1)],
        operation_timeout=timeout,
        request_timeout=timeout,
    )
    try:
        created[name].result(timeout + 1)
    except KafkaException as refused:
        error: KafkaError = refused.args[0]
        if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        if error.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
            raise BrokerUnavailableError(
                f"topic {name!r}: {bootstrap} did not answer within {timeout:.0f} s ({error})"
            ) from refused
        raise ConfigError(f"topic {name!r} was refused by {bootstrap}: {error}") from refused
    except TimeoutError as late:
        raise BrokerUnavailableError(
            f"topic {name!r}: {bootstrap} did not answer within {timeout:.0f} s"
        ) from late
    return True


def closed_error(what: str) -> KeySharedError:
    """Return the error for a call on a closed object."""
    return KeySharedError(f"{what} is closed; make a new one")

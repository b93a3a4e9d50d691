"""A Kafka cluster inside this process: librdkafka's mock cluster through ctypes.

It comes with the confluent-kafka wheel, starts in milliseconds and needs neither Java nor Docker.
Groups, cooperative rebalance, commit metadata and transactions work. Limits: a topic that is
requested before it is created gets 4 partitions. The admin client cannot create topics, describe
groups or look up timestamps. **The oldest data of a partition beyond 5 MB is deleted without an
error**.
"""

from __future__ import annotations

import atexit
import ctypes
import os

from confluent_kafka import KafkaError

from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.testing.clusters.cluster import Cluster, closed_error
from kafka_keyshared.testing.clusters.faults import ClusterFaults
from kafka_keyshared.testing.clusters.native import native

_PRODUCER = 0


class EmbeddedCluster(ClusterFaults, Cluster):
    """A cluster of ``brokers`` mock brokers that lives and dies with this object.

    A group forms at once. Each later round of its rebalance (a cooperative one has two) lasts the
    members' ``session.timeout.ms`` less one second. Set 1,500 ms there, not the default of 45 s. A
    process that is forked from this one can use the cluster but not close it.
    :class:`.faults.Faults` has the faults that can be injected. Raises :class:`MissingPartError`
    when the installed librdkafka has no mock cluster.
    """

    kind = "embedded"

    def __init__(self, brokers: int = 1) -> None:
        if brokers < 1:
            raise ConfigError(f"EmbeddedCluster(brokers={brokers}): at least 1 is needed")
        self._native = native()
        self._brokers = brokers
        self._owner = os.getpid()
        self._client = self._new_client()
        self._cluster: int | None = self._native.mock_cluster_new(self._client, brokers)
        if self._cluster is None:
            self._native.destroy(self._client)
            raise KeySharedError(
                "librdkafka did not start its mock cluster; see whether loopback ports and file "
                "descriptors are left on this machine"
            )
        # By default a group waits 3 s for more members before its first assignment.
        self._native.mock_group_initial_rebalance_delay_ms(self._cluster, 0)
        self.bootstrap = self._native.mock_cluster_bootstraps(self._cluster).decode()
        atexit.register(self.close)

    def _new_client(self) -> int:
        """Return the client instance that owns the mock cluster; it never connects."""
        reason = ctypes.create_string_buffer(512)
        conf = self._native.conf_new()
        # Level 4 leaves out the warning that this client has no broker to connect to.
        self._native.conf_set(conf, b"log_level", b"4", reason, len(reason))
        client: int | None = self._native.new(_PRODUCER, conf, reason, len(reason))
        if client is None:
            raise KeySharedError(
                f"librdkafka refused a client for the embedded cluster: {reason.value.decode()}"
            )
        return client

    def _handle(self) -> int:
        if self._cluster is None:
            raise closed_error("the embedded cluster")
        return self._cluster

    def _create(self, name: str, partitions: int, timeout: float) -> bool:  # noqa: ARG002 - at once
        code: int = self._native.mock_topic_create(
            self._handle(), name.encode(), partitions, min(3, self._brokers)
        )
        if code == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        if code:
            raise ConfigError(
                f"topic {name!r} was refused by the embedded cluster: {KafkaError(code).str()}"
            )
        return True

    def close(self) -> None:
        """Stop the brokers; clients that are still connected lose their connections."""
        if self._cluster is None or os.getpid() != self._owner:
            return
        atexit.unregister(self.close)
        cluster, self._cluster = self._cluster, None
        self._native.mock_cluster_destroy(cluster)
        self._native.destroy(self._client)

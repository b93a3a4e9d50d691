"""A Kafka cluster inside this process: librdkafka's mock cluster, reached with ctypes.

It comes with the confluent-kafka wheel, starts in milliseconds and needs neither Java nor Docker.
Groups, cooperative rebalance, commit metadata and transactions work. What does not: topics are
created with 4 partitions when somebody names them first, the admin client cannot create topics,
describe groups or look up timestamps, and **the oldest data of a partition beyond 5 MB is deleted
without an error**. librdkafka declares this part of itself experimental, so every symbol is looked
up by name at the first use and a missing one is named.
"""

from __future__ import annotations

import atexit
import ctypes
import os
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from confluent_kafka import KafkaError

from kafka_keyshared.errors import ConfigError, KeySharedError, MissingPartError
from kafka_keyshared.local.cluster import Cluster, closed_error

_PRODUCER = 0
_HANDLE = ctypes.c_void_p

SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "rd_kafka_conf_new": (_HANDLE, ()),
    "rd_kafka_conf_set": (
        ctypes.c_int,
        (_HANDLE, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t),
    ),
    "rd_kafka_new": (_HANDLE, (ctypes.c_int, _HANDLE, ctypes.c_char_p, ctypes.c_size_t)),
    "rd_kafka_destroy": (None, (_HANDLE,)),
    "rd_kafka_mock_cluster_new": (_HANDLE, (_HANDLE, ctypes.c_int)),
    "rd_kafka_mock_cluster_destroy": (None, (_HANDLE,)),
    "rd_kafka_mock_cluster_bootstraps": (ctypes.c_char_p, (_HANDLE,)),
    "rd_kafka_mock_topic_create": (
        ctypes.c_int,
        (_HANDLE, ctypes.c_char_p, ctypes.c_int, ctypes.c_int),
    ),
    "rd_kafka_mock_group_initial_rebalance_delay_ms": (None, (_HANDLE, ctypes.c_int32)),
}
"""Result and argument types of every function that is used, by its name in the library."""


class Native(NamedTuple):
    """The functions of :data:`SIGNATURES`, typed and callable, by their names without prefix."""

    conf_new: Callable[..., Any]
    conf_set: Callable[..., Any]
    new: Callable[..., Any]
    destroy: Callable[..., Any]
    mock_cluster_new: Callable[..., Any]
    mock_cluster_destroy: Callable[..., Any]
    mock_cluster_bootstraps: Callable[..., Any]
    mock_topic_create: Callable[..., Any]
    mock_group_initial_rebalance_delay_ms: Callable[..., Any]


def bind(library: ctypes.CDLL) -> Native:
    """Look up every function in ``library``.

    Raises :class:`MissingPartError` naming the first function that is not there.
    """
    functions: dict[str, Callable[..., Any]] = {}
    for name, (result, arguments) in SIGNATURES.items():
        try:
            function = getattr(library, name)
        except AttributeError as absent:
            raise MissingPartError(
                f"the embedded cluster needs {name}, which the librdkafka behind {library._name} "
                "does not export; install confluent-kafka from its wheel for Linux or macOS "
                "(pip install --only-binary :all: 'confluent-kafka>=2.16.1'), or use a real broker"
            ) from absent
        function.restype = result
        function.argtypes = arguments
        functions[name.removeprefix("rd_kafka_")] = function
    return Native(**functions)


@cache
def native() -> Native:
    """The library that ``confluent_kafka`` itself runs on.

    The extension module is opened, not a file that looks like librdkafka: symbols are searched in
    it and then in what it was linked with. So the library is never loaded a second time, whether it
    came in a wheel for Linux or macOS or with the system. Raises :class:`MissingPartError`.
    """
    from confluent_kafka import cimpl

    path = getattr(cimpl, "__file__", None)
    if path is None:
        raise MissingPartError(
            "the embedded cluster needs confluent_kafka's compiled module as a file, and "
            f"{cimpl!r} has none; install confluent-kafka from its wheel"
        )
    try:
        library = ctypes.CDLL(path)
    except OSError as failure:
        raise MissingPartError(
            f"the embedded cluster cannot open {path}: {failure}; reinstall confluent-kafka"
        ) from failure
    return bind(library)


class EmbeddedCluster(Cluster):
    """A cluster of ``brokers`` mock brokers that lives and dies with this object.

    A group forms at once, but each later round of its rebalance (a cooperative one has two) lasts
    the members' ``session.timeout.ms`` less one second: give them 1,500 ms there, not the default
    of 45 s. A process that is forked from this one can talk to the cluster but not close it. Raises
    :class:`MissingPartError` when the installed librdkafka has no mock cluster.
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
        """The client instance that the mock cluster keeps its books in; it never connects."""
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

    def _create(self, name: str, partitions: int, timeout: float) -> bool:  # noqa: ARG002 - at once
        if self._cluster is None:
            raise closed_error("the embedded cluster")
        code: int = self._native.mock_topic_create(
            self._cluster, name.encode(), partitions, min(3, self._brokers)
        )
        if code == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        if code:
            raise ConfigError(
                f"topic {name!r} was refused by the embedded cluster: {KafkaError(code).str()}"
            )
        return True

    def close(self) -> None:
        """Stop the brokers; clients that are still connected see them go away."""
        if self._cluster is None or os.getpid() != self._owner:
            return
        atexit.unregister(self.close)
        cluster, self._cluster = self._cluster, None
        self._native.mock_cluster_destroy(cluster)
        self._native.destroy(self._client)

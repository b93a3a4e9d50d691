"""Apache Kafka on this machine, from its Maven jars.

It needs neither Docker nor an installation. ``python -m kafka_keyshared.testing.clusters.broker``
starts one broker. It prints ``Kafka at 127.0.0.1:9092 (Ctrl-C stops it)`` once the broker can be
used. At the end it deletes the broker's data.
"""

from __future__ import annotations

import argparse
import atexit
import base64
import os
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.testing.clusters import jars as kafka_jars
from kafka_keyshared.testing.clusters.cluster import (
    Cluster,
    await_metadata,
    closed_error,
    create_by_admin,
    has_leaders,
)
from kafka_keyshared.testing.clusters.guard import ProcessGuard
from kafka_keyshared.testing.clusters.node import (
    LOOPBACK,
    BrokerSettings,
    Node,
    NodeAddress,
    free_ports,
    port_is_free,
)

if TYPE_CHECKING:
    from confluent_kafka.admin._metadata import ClusterMetadata

DEFAULT_PORT = 9092


class RealCluster(Cluster):
    """Kafka in KRaft mode: ``brokers`` processes in a temporary directory, on loopback ports.

    ``port`` is that of the first broker, else a free one. Ports and data stay the same over
    :meth:`stop`, :meth:`kill` and :meth:`restart`. ``timeout`` is in seconds and bounds every
    start. ``settings`` are given to every broker on top of our own; None there means the broker's
    own default. ``measured`` brokers run as fast as they can, with a slower start; the others are
    for short runs. The processes end with this one, however it ends. Raises
    :class:`MissingPartError` when Java or the jars are missing, and :class:`ConfigError` when the
    port is taken. Raises :class:`BrokerUnavailableError` or :class:`KeySharedError` with the
    broker's log when a broker does not start.
    """

    kind = "real"

    def __init__(
        self,
        brokers: int = 1,
        *,
        port: int | None = None,
        jars: Path | None = None,
        timeout: float = 90.0,
        settings: BrokerSettings = MappingProxyType({}),
        measured: bool = False,
    ) -> None:
        if brokers < 1:
            raise ConfigError(f"RealCluster(brokers={brokers}): at least 1 is needed")
        if port is not None and not 0 < port < 65_536:
            raise ConfigError(f"RealCluster(port={port}): ports are numbered 1 to 65535")
        if port is not None and not port_is_free(port):
            raise ConfigError(
                f"{LOOPBACK}:{port} is taken; end what listens there or choose another port"
            )
        java = kafka_jars.java()
        jars = jars or kafka_jars.require_jars()
        self._timeout = timeout
        self._owner = os.getpid()
        self._closed = False
        ports = free_ports(2 * brokers)
        if port is not None:
            ports[0] = port
        addresses = [
            NodeAddress(index + 1, ports[2 * index], ports[2 * index + 1])
            for index in range(brokers)
        ]
        self.bootstrap = ",".join(address.bootstrap for address in addresses)
        self.directory = Path(tempfile.mkdtemp(prefix="keyshared-kafka-"))
        self._guard = ProcessGuard(self.directory)
        self._nodes: list[Node] = []
        atexit.register(self.close)
        try:
            for address in addresses:
                place = self.directory / f"broker-{address.node_id}"
                node = Node(
                    java, jars, place, address, addresses, settings=settings, measured=measured
                )
                self._nodes.append(node)
            self._format()
            self.restart()
        except BaseException:
            self.close()
            raise

    def _format(self) -> None:
        # The tool refuses a name that begins with "-", as one in 64 random names would.
        cluster_id = "k" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
        with ThreadPoolExecutor(len(self._nodes)) as pool:
            for _ in pool.map(lambda node: node.format(cluster_id), self._nodes):
                pass

    @property
    def pids(self) -> list[int]:
        """The process ids of the running brokers."""
        return [node.pid for node in self._nodes if node.pid is not None]

    def stop(self, broker: int | None = None) -> None:
        """Stop the broker with this number (from 1), or all, cleanly (SIGTERM); the data stays."""
        for node in self._chosen(broker):
            node.stop(self._guard)

    def kill(self, broker: int | None = None) -> None:
        """Kill the broker with this number (from 1), or all, as a crash would (SIGKILL)."""
        for node in self._chosen(broker):
            node.kill(self._guard)

    def restart(self, broker: int | None = None) -> None:
        """Start the broker with this number, or all, at the same port with the same data.

        A broker that still runs is stopped first. Returns when the cluster knows all brokers that
        should run, and every partition that can have a leader has one.
        """
        chosen = self._chosen(broker)
        for node in chosen:
            node.stop(self._guard)
            node.start(self._guard)
        # Each broker is queried itself, because the others show a killed broker until its session
        # ends.
        for node in chosen:
            self._await_ready(node.address.bootstrap)

    def check(self) -> None:
        """Raise :class:`KeySharedError` with its log if a broker ended without being stopped."""
        for node in self._nodes:
            node.check()

    def _await_ready(self, bootstrap: str) -> None:
        expected = {node.address.node_id for node in self._nodes if node.running}
        everyone = len(expected) == len(self._nodes)

        def ready(metadata: ClusterMetadata) -> bool:
            if not expected <= set(metadata.brokers):
                return False
            return not everyone or all(has_leaders(topic) for topic in metadata.topics.values())

        try:
            await_metadata(
                bootstrap,
                ready,
                timeout=self._timeout,
                what="the Kafka broker",
                check=self.check,
            )
        except KeySharedError as failure:
            logs = "\n".join(node.log_tail() for node in self._nodes if node.running)
            raise type(failure)(f"{failure}\n{logs}".rstrip()) from failure

    def _chosen(self, broker: int | None) -> list[Node]:
        if self._closed:
            raise closed_error("the Kafka cluster")
        if broker is None:
            return self._nodes
        for node in self._nodes:
            if node.address.node_id == broker:
                return [node]
        raise ConfigError(f"there is no broker {broker}; they are numbered 1 to {len(self._nodes)}")

    def _create(self, name: str, partitions: int, timeout: float) -> bool:
        if self._closed:
            raise closed_error("the Kafka cluster")
        return create_by_admin(self.bootstrap, name, partitions, timeout)

    def close(self) -> None:
        """Kill the brokers and delete their data; a second call does nothing."""
        if self._closed or os.getpid() != self._owner:
            return
        self._closed = True
        atexit.unregister(self.close)
        for node in self._nodes:
            node.kill(self._guard)
        self._guard.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m kafka_keyshared.testing.clusters.broker",
        description="Start Apache Kafka on this machine until Ctrl-C; its data is then deleted.",
    )
    parser.add_argument(
        "--port",
        type=int,
        help=f"where it listens (default: {DEFAULT_PORT}, or any free port when that is taken)",
    )
    parser.add_argument("--brokers", type=int, default=1, help="how many (default: 1)")
    parser.add_argument(
        "--address-only", action="store_true", help="print nothing but the bootstrap address"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a cluster in the foreground; return the exit status."""
    options = _parser().parse_args(arguments)
    # Both signals raise KeyboardInterrupt, which also ends a start early.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    port = options.port
    if port is None and port_is_free(DEFAULT_PORT):
        port = DEFAULT_PORT
    try:
        if kafka_jars.find_jars() is None:
            sys.stderr.write(f"Fetching Apache Kafka {kafka_jars.KAFKA_VERSION} (54 MB, once)\n")
        jars = kafka_jars.fetch_jars()
        alone = options.brokers == 1  # a user may measure it
        with RealCluster(options.brokers, port=port, jars=jars, measured=alone) as cluster:
            line = cluster.bootstrap
            sys.stdout.write(
                f"{line}\n" if options.address_only else f"Kafka at {line} (Ctrl-C stops it)\n"
            )
            sys.stdout.flush()
            while True:
                cluster.check()
                time.sleep(0.5)
    except KeyboardInterrupt:
        return 0
    except KeySharedError as failure:
        sys.stderr.write(f"{failure}\n")
        return failure.exit_code


if __name__ == "__main__":
    sys.exit(main())

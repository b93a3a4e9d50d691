"""One Apache Kafka process: its directory, settings, start and stop."""

from __future__ import annotations

import random
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.testing.clusters.guard import ProcessGuard

LOOPBACK = "127.0.0.1"
_STOP_TIMEOUT = 30.0
_FORMAT_TIMEOUT = 120.0
_TAIL_LINES = 25

# Three brokers on one machine start in 7 s with these and in 10 to 14 s without (two cores). One
# broker takes 4 to 5 s of processor time until it has served a few members, and 8 to 9 s without.
# Brokers whose throughput is measured keep the JVM's own choice.
_QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

# Below the range of ports for outgoing connections (from 32768 on Linux, from 49152 on macOS). A
# client that reconnects to a dead broker's port within that range can be connected to itself. Then
# the broker cannot have its port back.
_PORTS = range(20_000, 32_000)


def port_is_free(port: int) -> bool:
    """Return whether a server could listen at this port of the loopback interface now."""
    with socket.socket() as probe:
        # As the JVM does, because connections of a killed broker may linger at its port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """Return free ports, chosen at random so that two processes rarely choose the same."""
    chosen: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        if len(chosen) == count:
            return chosen
        if port_is_free(port):
            chosen.append(port)
    raise KeySharedError(
        f"no {count} free ports between {_PORTS.start} and {_PORTS.stop} on {LOOPBACK}; "
        "end some of what listens there"
    )


@dataclass(frozen=True)
class NodeAddress:
    """The addresses of one node: for clients and brokers, and as controller."""

    node_id: int
    port: int
    controller_port: int

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return f"{LOOPBACK}:{self.port}"


BrokerSettings = Mapping[str, str | int | None]
"""Settings of a broker by name; None leaves the broker its own default."""


def server_properties(
    address: NodeAddress,
    all_nodes: Sequence[NodeAddress],
    data: Path,
    settings: BrokerSettings = MappingProxyType({}),
) -> str:
    """Return the settings of one node that is broker and controller (KRaft combined mode, KIP-500).

    They differ from those of a production cluster to save time in tests. Groups form at once,
    session time-outs may be short, internal topics are small, and no data expires. ``settings``
    override them.
    """
    copies = min(3, len(all_nodes))
    voters = ",".join(f"{node.node_id}@{LOOPBACK}:{node.controller_port}" for node in all_nodes)
    wanted: dict[str, str | int | Path | None] = {
        "process.roles": "broker,controller",
        "node.id": address.node_id,
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://{address.bootstrap},"
        f"CONTROLLER://{LOOPBACK}:{address.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{address.bootstrap}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": data,
        "default.replication.factor": copies,
        "min.insync.replicas": max(1, copies - 1),
        "auto.create.topics.enable": "false",
        # A broker that was killed may not rejoin before its old session has ended.
        "broker.heartbeat.interval.ms": 500,
        "broker.session.timeout.ms": 3000,
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 500,
        # The same for the protocol of KIP-848, in which a member learns of a change by its
        # heartbeat.
        "group.consumer.min.heartbeat.interval.ms": 200,
        "group.consumer.heartbeat.interval.ms": 500,
        "offsets.topic.num.partitions": 4,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.num.partitions": 4,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": max(1, copies - 1),
        "share.coordinator.state.topic.num.partitions": 1,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": max(1, copies - 1),
        "log.retention.ms": -1,
        "log.retention.bytes": -1,
        # The default takes 128 MiB of heap at start, for topics that are small here.
        "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
    }
    wanted.update(settings)
    return "".join(f"{name}={value}\n" for name, value in wanted.items() if value is not None)


class Node:
    """A broker process in ``directory``, which keeps its data, settings and log.

    The data outlives :meth:`stop` and :meth:`kill`; :meth:`start` uses it again. A ``measured``
    broker takes longer to start and is faster after a while.
    """

    def __init__(
        self,
        java: str,
        jars: Path,
        directory: Path,
        address: NodeAddress,
        all_nodes: Sequence[NodeAddress],
        *,
        settings: BrokerSettings = MappingProxyType({}),
        measured: bool = False,
    ) -> None:
        self.address = address
        self.log = directory / "broker.log"
        self._java = java
        self._class_path = str(jars / "*")
        self._tuning = () if measured else _QUICK_START
        self._properties = directory / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True)
        self._properties.write_text(
            server_properties(address, all_nodes, directory / "data", settings)
        )

    def format(self, cluster_id: str) -> None:
        """Prepare the storage, which KRaft requires once before the first start.

        Raises :class:`KeySharedError` with the output of the tool.
        """
        command = [self._java, *_QUICK_START, "-cp", self._class_path]
        command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "kafka.tools.StorageTool"]
        command += ["format", "-t", cluster_id, "-c", str(self._properties)]
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=_FORMAT_TIMEOUT, check=False
        )
        if ran.returncode != 0:
            raise KeySharedError(
                f"Kafka's storage tool ended with status {ran.returncode} in "
                f"{self._properties.parent}; see whether the disk is full and the jars are "
                f"complete.\n{ran.stderr or ran.stdout}"
            )

    def start(self, guard: ProcessGuard) -> None:
        """Start the process and return at once; it listens some seconds later."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._java,
                    *self._tuning,
                    "-Xms256m",
                    "-Xmx1g",
                    "-XX:+ExitOnOutOfMemoryError",
                    "-Djava.awt.headless=true",
                    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                    "-Dorg.slf4j.simpleLogger.showDateTime=true",
                    "-cp",
                    self._class_path,
                    "kafka.Kafka",
                    str(self._properties),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C in a terminal must reach this process only, which then stops the broker. It
                # gets no session of its own, because Linux schedules each session as one
                # (autogroup). In one case that let a broker wait for 15 s beside two busy loops.
                process_group=0,
            )
        guard.watch(self._process.pid)

    @property
    def running(self) -> bool:
        """Whether the process exists; it need not listen yet."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The process id, or None when it is not running."""
        return self._process.pid if self._process is not None and self.running else None

    def check(self) -> None:
        """Raise :class:`KeySharedError` with the end of the log when the process has ended."""
        if self._process is not None and not self.running:
            raise KeySharedError(
                f"broker {self.address.node_id} at {self.address.bootstrap} ended with "
                f"status {self._process.returncode}; the end of its log says why:\n"
                f"{self.log_tail()}"
            )

    def log_tail(self) -> str:
        """Return the last lines that the process wrote."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-_TAIL_LINES:]) or "(it wrote nothing)"

    def stop(self, guard: ProcessGuard) -> None:
        """End the process cleanly (SIGTERM); kill it when that takes longer than 30 s."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reap(guard)

    def kill(self, guard: ProcessGuard) -> None:
        """End the process at once (SIGKILL), as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._reap(guard)

    def _reap(self, guard: ProcessGuard) -> None:
        if self._process is not None:
            self._process.wait()
            guard.forget(self._process.pid)
            self._process = None

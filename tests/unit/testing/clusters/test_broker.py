"""The parts of a real cluster that can be judged without starting one."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from kafka_keyshared.errors import (
    BrokerUnavailableError,
    ConfigError,
    KeySharedError,
    MissingPartError,
)
from kafka_keyshared.testing.clusters import external, jars
from kafka_keyshared.testing.clusters.broker import RealCluster, main
from kafka_keyshared.testing.clusters.cluster import Cluster
from kafka_keyshared.testing.clusters.guard import ProcessGuard, watched_at_end
from kafka_keyshared.testing.clusters.node import (
    Node,
    NodeAddress,
    free_ports,
    port_is_free,
    server_properties,
)

Eventually = Callable[[Callable[[], bool], float], None]

ONE = [NodeAddress(1, 20_001, 20_002)]
THREE = [NodeAddress(number, 20_000 + number, 21_000 + number) for number in (1, 2, 3)]


def settings(address: NodeAddress, nodes: list[NodeAddress]) -> dict[str, str]:
    text = server_properties(address, nodes, Path("/data"))
    return dict(line.split("=", 1) for line in text.splitlines())


def played_java(directory: Path, body: str) -> str:
    """A command that stands where java stands, so that a node's ways out can be seen."""
    file = directory / "java"
    file.write_text(f"#!{sys.executable}\nimport sys, time\n{body}\n")
    file.chmod(0o755)
    return str(file)


def test_one_node_is_broker_and_controller_on_loopback_only() -> None:
    found = settings(ONE[0], ONE)
    assert found["process.roles"] == "broker,controller"
    assert found["listeners"] == "PLAINTEXT://127.0.0.1:20001,CONTROLLER://127.0.0.1:20002"
    assert found["controller.quorum.voters"] == "1@127.0.0.1:20002"
    assert found["group.initial.rebalance.delay.ms"] == "0"
    assert found["auto.create.topics.enable"] == "false"
    assert found["log.retention.ms"] == found["log.retention.bytes"] == "-1"
    copies = {name: value for name, value in found.items() if "replication.factor" in name}
    assert set(copies.values()) == {"1"}
    assert len(copies) == 4


def test_three_nodes_vote_and_keep_three_copies() -> None:
    found = settings(THREE[1], THREE)
    assert found["node.id"] == "2"
    assert found["controller.quorum.voters"] == (
        "1@127.0.0.1:21001,2@127.0.0.1:21002,3@127.0.0.1:21003"
    )
    assert found["offsets.topic.replication.factor"] == "3"
    assert found["min.insync.replicas"] == "2"


def test_ports_are_free_distinct_and_never_those_of_outgoing_connections() -> None:
    ports = free_ports(6)
    assert len(set(ports)) == 6
    assert all(20_000 <= port < 32_000 for port in ports)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", ports[0]))
        taken.listen()
        assert not port_is_free(ports[0])
        assert port_is_free(ports[1])


def test_a_taken_port_is_refused_before_anything_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port} is taken"):
            RealCluster(port=port)
    for wrong in (0, 65_536):
        with pytest.raises(ConfigError, match="1 to 65535"):
            RealCluster(port=wrong)
    with pytest.raises(ConfigError, match="at least 1"):
        RealCluster(brokers=0)


def test_missing_jars_say_how_to_get_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(jars.JARS_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(jars, "java", lambda: "java")
    with pytest.raises(
        MissingPartError, match=r"python -m kafka_keyshared\.testing\.clusters\.jars"
    ):
        RealCluster()


def test_the_command_reports_a_missing_part_and_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(jars.JARS_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        assert main([]) == 1
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    said = capsys.readouterr()
    assert "install Maven" in said.err
    assert said.out == ""


@pytest.mark.parametrize("measured", [False, True])
def test_a_node_starts_quickly_unless_it_is_measured(tmp_path: Path, measured: bool) -> None:
    java = played_java(tmp_path, "print(*sys.argv)")
    node = Node(java, tmp_path, tmp_path / "node", ONE[0], ONE, measured=measured)
    guard = ProcessGuard(tmp_path / "guarded")
    node.start(guard)
    assert node._process is not None
    node._process.wait(30)
    node.kill(guard)
    guard.close()
    assert ("TieredStopAtLevel=1" in node.log_tail()) is not measured


def test_a_node_that_ends_by_itself_shows_its_log(tmp_path: Path) -> None:
    java = played_java(tmp_path, "print('address in use')\nsys.exit(3)")
    guard = ProcessGuard(tmp_path / "guarded")
    node = Node(java, tmp_path, tmp_path / "node", ONE[0], ONE)
    assert not node.running
    node.start(guard)
    assert node._process is not None
    node._process.wait(30)
    with pytest.raises(KeySharedError, match=r"(?s)broker 1.*status 3.*address in use"):
        node.check()
    node.stop(guard)
    node.check()
    guard.close()


def test_storage_that_cannot_be_prepared_shows_what_the_tool_said(tmp_path: Path) -> None:
    java = played_java(tmp_path, "print('no space left', file=sys.stderr)\nsys.exit(1)")
    node = Node(java, tmp_path, tmp_path / "node", ONE[0], ONE)
    with pytest.raises(KeySharedError, match=r"(?s)status 1.*no space left"):
        node.format("an-id")


def test_stopping_asks_and_killing_does_not(tmp_path: Path, eventually: Eventually) -> None:
    body = """
import signal
signal.signal(signal.SIGTERM, lambda *_: (print("asked to stop", flush=True), sys.exit(0)))
print("up", flush=True)
time.sleep(600)
"""
    guard = ProcessGuard(tmp_path / "guarded")
    node = Node(played_java(tmp_path, body), tmp_path, tmp_path / "node", ONE[0], ONE)
    for end in (node.stop, node.kill):
        node.log.write_text("")
        node.start(guard)
        assert node.pid is not None
        eventually(lambda: "up" in node.log.read_text(), 30)
        end(guard)
        assert node.pid is None
        assert ("asked to stop" in node.log.read_text()) == (end == node.stop)
    guard.close()


def test_the_guard_knows_what_is_left_to_kill() -> None:
    assert watched_at_end([b"watch 11\n", b"watch 12\n", b"forget 11\n"]) == {12}
    assert watched_at_end([]) == set()


OWNER = """
import pathlib, subprocess, sys, os
from kafka_keyshared.testing.clusters.guard import ProcessGuard
directory = pathlib.Path(sys.argv[1])
directory.mkdir()
guard = ProcessGuard(directory)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
guard.watch(child.pid)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("end", ["killed", "exits"])
def test_the_guard_tidies_up_behind_an_owner(
    tmp_path: Path, end: str, eventually: Eventually
) -> None:
    directory = tmp_path / "data"
    owner = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", OWNER, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert owner.stdin is not None
    assert owner.stdout is not None
    with owner:
        assert owner.stdout.readline() == b"ready\n"
        if end == "killed":
            owner.kill()
        else:
            owner.stdin.close()
        # The child has inherited this pipe, so its end is the end of owner and child.
        assert owner.stdout.read() == b""
    eventually(lambda: not directory.exists(), 30)


def test_a_forked_child_does_not_keep_the_guard_waiting(tmp_path: Path) -> None:
    script = """
import os, pathlib, sys, warnings
warnings.simplefilter("ignore")
from kafka_keyshared.testing.clusters.guard import ProcessGuard
guard = ProcessGuard(pathlib.Path(sys.argv[1]))
here, there = os.pipe()
child = os.fork()
if child == 0:
    os.close(there)
    os.read(here, 1)
    os._exit(0)
guard.close()
os.close(there)
os.waitpid(child, 0)
print("closed")
"""
    ran = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "data")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.stdout, ran.returncode) == ("closed\n", 0), ran.stderr


def test_nobody_at_the_address_is_an_error_that_names_it() -> None:
    (port,) = free_ports(1)
    with pytest.raises(BrokerUnavailableError, match=f"127.0.0.1:{port}: not ready after 1 s"):
        external.external_cluster(f"127.0.0.1:{port}", timeout=1.0)


def test_an_external_cluster_is_left_alone(embedded_cluster: Cluster) -> None:
    cluster = external.external_cluster(embedded_cluster.bootstrap)
    assert (cluster.kind, cluster.bootstrap) == ("real", embedded_cluster.bootstrap)
    cluster.close()
    with pytest.raises(KeySharedError, match="is closed"):
        cluster.create_topic("late", 1)
    external.external_cluster(embedded_cluster.bootstrap).close()


def test_a_container_is_started_used_and_stopped(embedded_cluster: Cluster) -> None:
    """Against the library's real class, whose signatures the stand-in keeps."""
    from testcontainers.community.kafka import KafkaContainer

    container = mock.create_autospec(KafkaContainer, instance=True)
    container.with_kraft.return_value = container
    container.start.return_value = container
    container.get_bootstrap_server.return_value = embedded_cluster.bootstrap
    made = mock.create_autospec(KafkaContainer, return_value=container)
    with mock.patch("testcontainers.community.kafka.KafkaContainer", made):
        cluster = external.testcontainers_cluster(timeout=77)
    made.assert_called_once_with()
    container.with_kraft.assert_called_once_with()
    container.start.assert_called_once_with(timeout=77)
    assert cluster.bootstrap == embedded_cluster.bootstrap
    container.stop.assert_not_called()
    cluster.close()
    cluster.close()
    container.stop.assert_called_once_with()


def test_a_container_that_does_not_answer_is_stopped() -> None:
    from testcontainers.community.kafka import KafkaContainer

    container = mock.create_autospec(KafkaContainer, instance=True)
    container.with_kraft.return_value.start.return_value = container
    container.get_bootstrap_server.side_effect = KeySharedError("no port")
    made = mock.create_autospec(KafkaContainer, return_value=container)
    with (
        mock.patch("testcontainers.community.kafka.KafkaContainer", made),
        pytest.raises(KeySharedError, match="no port"),
    ):
        external.testcontainers_cluster()
    container.stop.assert_called_once_with()


def test_a_missing_container_engine_or_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{port}")
    with pytest.raises(MissingPartError, match="running Docker engine"):
        external.testcontainers_cluster()
    monkeypatch.setitem(sys.modules, "testcontainers.community.kafka", None)
    with pytest.raises(MissingPartError, match="pip install 'testcontainers'"):
        external.testcontainers_cluster()

"""Single requests of the Kafka protocol, for what no Python client lets one ask.

Layouts are those of Kafka's protocol guide, in their oldest versions that brokers still take: a
request is size, key, version, correlation id, client id and body.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable

from confluent_kafka import KafkaError

from kafka_keyshared.model import TopicPartition

NOT_YET = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
_OFFSET_COMMIT, _FIND_COORDINATOR, _LEAVE_GROUP = 8, 10, 13


def coordinator(bootstrap: str, group: str) -> tuple[int, str]:
    """Ask for a group's coordinator: its broker's number and its address."""

    def ask() -> tuple[int, bytes]:
        any_broker, *_ = bootstrap.split(",")
        answer = _ask(any_broker, _FIND_COORDINATOR, 0, _text(group.encode()))
        return struct.unpack_from(">h", answer)[0], answer

    answer = _when_ready("FindCoordinator", ask)
    node, length = struct.unpack_from(">ih", answer, 2)
    host = answer[8 : 8 + length].decode()
    (port,) = struct.unpack_from(">i", answer, 8 + length)
    return node, f"{host}:{port}"


def commit_as_written(
    bootstrap: str, group: str, at: TopicPartition, position: int, metadata: bytes
) -> None:
    """Commit for a group without members, with just these bytes as metadata.

    confluent-kafka would add a NUL to them, as no other client does.
    """
    no_generation, no_retention = struct.pack(">i", -1) + _text(b""), struct.pack(">q", -1)
    body = _text(group.encode()) + no_generation + no_retention
    body += struct.pack(">i", 1) + _text(at.topic.encode())
    body += struct.pack(">iiq", 1, at.partition, position) + _text(metadata)

    def ask() -> tuple[int, bytes]:
        answer = _ask(coordinator(bootstrap, group)[1], _OFFSET_COMMIT, 2, body)
        return struct.unpack(">h", answer[-2:])[0], answer

    _when_ready("OffsetCommit", ask)


def throw_out(bootstrap: str, group: str, member: str) -> None:
    """Make a member leave its group without asking it; it hears UNKNOWN_MEMBER_ID from then on."""
    address = coordinator(bootstrap, group)[1]
    answer = _ask(address, _LEAVE_GROUP, 0, _text(group.encode()) + _text(member.encode()))
    (error,) = struct.unpack(">h", answer)
    assert error == 0, f"LeaveGroup: error {error}"


def _when_ready(what: str, ask: Callable[[], tuple[int, bytes]]) -> bytes:
    """Ask until the coordinator is there and has read its log; both take a new cluster a moment."""
    pause, deadline = threading.Event(), time.monotonic() + 60
    while True:
        error, answer = ask()
        if error == 0:
            return answer
        assert error in NOT_YET, f"{what}: error {error}"
        assert time.monotonic() < deadline, f"{what}: still error {error} after a minute"
        pause.wait(0.05)


def _text(content: bytes) -> bytes:
    return struct.pack(">h", len(content)) + content


def _ask(address: str, key: int, version: int, body: bytes) -> bytes:
    """Send one request and return the body of its answer."""
    host, port = address.rsplit(":", 1)
    request = struct.pack(">hhi", key, version, 1) + _text(b"raw") + body
    with socket.create_connection((host, int(port)), 30) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as answers:
            (size,) = struct.unpack(">i", answers.read(4))
            answer = answers.read(size)
    assert len(answer) == size, "the broker closed the connection"
    return answer[4:]

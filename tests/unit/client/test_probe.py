"""What a listener is, tried by itself where the client does not say it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

import pytest

from kafka_keyshared.client.probe import is_mute
from kafka_keyshared.testing.clusters.node import free_ports

WAIT = 30.0


def hangs_up(taken: socket.socket) -> None:
    """End the connection."""


def answers(taken: socket.socket) -> None:
    """Answer a request."""
    assert taken.recv(14)[4:8] == b"\0\x12\0\0", "ApiVersions, version 0"
    taken.sendall(b"\0\0\0\0")


@pytest.mark.parametrize("does", [hangs_up, answers])
def test_a_listener_that_ends_the_connection_or_answers_is_not_mute(
    does: Callable[[socket.socket], None],
) -> None:
    def serve() -> None:
        taken, _ = listener.accept()
        with taken:
            does(taken)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve)
        serving.start()
        assert not is_mute(f"127.0.0.1:{listener.getsockname()[1]}", WAIT)
        serving.join(WAIT)


def test_one_that_does_neither_is_mute() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert is_mute(f"127.0.0.1:{listener.getsockname()[1]},other:1", 0.2)


def test_where_nobody_listens_nothing_is_mute() -> None:
    (port,) = free_ports(1)
    assert not is_mute(f"127.0.0.1:{port}", WAIT)

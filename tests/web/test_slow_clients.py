"""Who asks slowly, often or nonsense: records are handled meanwhile, and probes answered."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kafka_keyshared import KeyShared
from kafka_keyshared.logs import Seldom, log_of
from kafka_keyshared.observability.web import http_limits
from kafka_keyshared.observability.web.admin import slow_request_timeout
from kafka_keyshared.observability.web.admin.server import CONNECTIONS_MOST
from kafka_keyshared.observability.web.http_limits import WAITING_MOST
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.http_scrapes import get, running
from tests.support.live_cluster import client_conf, group_name, numbered, write

Eventually = Callable[..., None]

WAIT = 60.0
HALF = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"


class Serving:
    """An instance with both ports, and how many records it has handled."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster, self._topic = cluster, topic
        cluster.create_topic(topic, 2)
        self.app = KeyShared(
            client_conf(cluster, group_name()), [topic], http_port=0, console_port=0
        )
        self.done = 0
        self._lock = threading.Lock()

        @self.app.handler
        def handle(record: Any) -> None:
            with self._lock:
                self.done += 1

    def write(self, count: int) -> None:
        write(self._cluster, self._topic, numbered(count))

    @property
    def ports(self) -> tuple[int, int]:
        assert self.app.http is not None
        assert self.app.admin is not None
        return self.app.http.port, self.app.admin.port


@pytest.fixture
def serving(embedded_cluster: Cluster, topic: str) -> Iterator[Serving]:
    made = Serving(embedded_cluster, topic)
    with running(made.app):
        yield made


@pytest.fixture
def opened() -> Iterator[Callable[[int, bytes], socket.socket]]:
    """What opens a connection and sends no whole request; they are closed at the end."""
    with ExitStack() as stack:

        def open_(port: int, text: bytes) -> socket.socket:
            asked = stack.enter_context(socket.create_connection(("127.0.0.1", port), WAIT))
            asked.sendall(text)
            return asked

        yield open_


def ended(asked: socket.socket) -> bool:
    """Wait for the end of a connection that nothing was asked of."""
    try:
        return asked.recv(1) == b""
    except ConnectionResetError:
        return True


def test_half_open_connections_keep_neither_records_nor_probes_waiting(
    serving: Serving,
    opened: Callable[[int, bytes], socket.socket],
    eventually: Eventually,
) -> None:
    http, admin = serving.ports
    first = opened(http, HALF)
    # More than either port takes at once, and none of them ever asks for anything.
    half = [opened(http, HALF if number % 2 else b"") for number in range(2 * WAITING_MOST)]
    for _ in range(CONNECTIONS_MOST + 20):
        opened(admin, HALF)
    serving.write(200)
    eventually(lambda: serving.done == 200, WAIT)
    for path in ("livez", "readyz", "metrics"):
        assert get(f"http://127.0.0.1:{http}/{path}")[0] == 200
    assert ended(first), "the oldest made room"
    half[-1].sendall(b"\r\n")
    assert half[-1].recv(12) == b"HTTP/1.1 200", "the newest are waited for"


def test_who_asks_byte_by_byte_is_hung_up_on(
    monkeypatch: pytest.MonkeyPatch,
    embedded_cluster: Cluster,
    topic: str,
    opened: Callable[[int, bytes], socket.socket],
) -> None:
    for module in (http_limits, slow_request_timeout):
        monkeypatch.setattr(module, "ASKED_WITHIN", 0.3)
    serving = Serving(embedded_cluster, topic)
    with running(serving.app):
        for port in serving.ports:
            slow, over = opened(port, HALF), threading.Event()

            def drip(slow: socket.socket = slow, over: threading.Event = over) -> None:
                while not over.wait(0.02):
                    try:
                        slow.sendall(b"x")
                    except OSError:
                        return

            dripping = threading.Thread(target=drip)
            dripping.start()
            try:
                assert ended(slow), "it never paused for as long as that, and never asked"
            finally:
                over.set()
                dripping.join()


def test_a_flood_of_what_is_no_http_is_a_line(
    serving: Serving,
    opened: Callable[[int, bytes], socket.socket],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    few = Seldom(log_of("kafka_keyshared.web"), lambda: now[0])
    monkeypatch.setattr(slow_request_timeout, "_seldom", few)
    caplog.set_level(logging.WARNING)

    def garbage(count: int) -> None:
        for _ in range(count):
            asked = opened(serving.ports[1], b"\x16\x03\x01 no http\r\n\r\n")
            assert asked.recv(12) == b"HTTP/1.1 400"
            asked.close()

    garbage(50)
    now[0] = 61.0
    garbage(1)
    lines = [each.getMessage() for each in caplog.records if "Invalid HTTP" in each.getMessage()]
    assert lines == [
        "admin API: Invalid HTTP request received.",
        "admin API: Invalid HTTP request received. (49 lines like this left out)",
    ]

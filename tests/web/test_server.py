"""The endpoints of a running instance, over HTTP, on the embedded cluster."""

from __future__ import annotations

import http.client
import json
import logging
import re
import shutil
import socket
import subprocess
import threading
import urllib.error
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from kafka_keyshared import KeyShared
from kafka_keyshared.clock import Clock
from kafka_keyshared.observability.web.commands import Acting
from kafka_keyshared.observability.web.metric_catalog import FAMILIES
from kafka_keyshared.observability.web.prometheus_collector import SERVED_FOR, Exposition
from kafka_keyshared.observability.web.server import HttpServer, Probes
from kafka_keyshared.runtime.status_board import SILENT_MAX, StatusBoard
from kafka_keyshared.status import Status
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.http_scrapes import OPEN_METRICS, get, running, samples, scraped
from tests.support.live_cluster import client_conf, group_name, write

Eventually = Callable[..., None]


@pytest.fixture
def app(embedded_cluster: Cluster, topic: str) -> KeyShared:
    """An instance with one key that is blocked, over 2 partitions of 100 records in all."""
    embedded_cluster.create_topic(topic, 2)
    write(embedded_cluster, topic, [(b"key-%d" % (n % 10), b"v" * 20) for n in range(100)])
    conf = client_conf(embedded_cluster, group_name(), statistics_interval_ms=200)
    app = KeyShared(
        conf,
        [topic],
        workers=2,
        commit_interval=0.2,
        retry={"attempts": 2, "backoff": 0.001},
        http_port=0,
        show_keys=True,
    )

    @app.handler
    def handle(record: Any) -> None:
        if record.key() == b"key-7":
            raise ValueError("this key always fails")

    return app


def settled(url: str, topic: str) -> bool:
    found = scraped(url)
    return (
        found.get(("keyshared_records_processed_total", ("ok", topic))) == 90
        and found.get(("keyshared_rdkafka_fetchq_records", ())) is not None
        and found.get(("keyshared_closed_lanes", ("blocked",))) == 1
        and sum(v for (n, _), v in found.items() if n == "keyshared_backlog_records") == 10
    )


def test_the_metrics_of_a_run_tell_what_happened(
    app: KeyShared, topic: str, eventually: Eventually
) -> None:
    with running(app) as url:
        eventually(lambda: settled(url, topic), 60)
        status, content_type, text = get(f"{url}/metrics")
        found = samples(text)
    assert status == 200
    assert content_type.startswith("text/plain")
    assert found["keyshared_records_fetched_total", (topic,)] == 100
    assert found["keyshared_attempts_total", ("failed", topic)] == 2
    assert found["keyshared_attempts_total", ("ok", topic)] == 90
    assert found["keyshared_record_retries_total", ("ValueError", topic)] == 1
    assert found["keyshared_process_duration_seconds_count", ()] == 92
    assert found["keyshared_unsettled_records", ()] == 10
    assert found["keyshared_hottest_key_records", ()] == 10
    assert found["keyshared_partitions_assigned", ()] == 2
    assert found["keyshared_workers", ("thread", "idle")] == 2
    assert found["keyshared_rebalances_total", ("assigned",)] >= 1
    assert found["keyshared_commits_total", ("accepted",)] >= 1
    owned = [value for (name, _), value in found.items() if name == "keyshared_worker_slots_ratio"]
    assert sum(owned) == pytest.approx(1.0)
    lags = sum(v for (name, _), v in found.items() if name == "keyshared_lag_records")
    assert lags >= 10, "the lag counts from the committed position, over what is settled beyond it"
    assert ("process_resident_memory_bytes", ()) in found


def test_the_status_names_the_blocked_key_and_what_blocks_it(
    app: KeyShared, topic: str, eventually: Eventually
) -> None:
    with running(app) as url:

        def blocked() -> Any:
            code, content_type, text = get(f"{url}/status")
            if code == 503:  # before the first heartbeat
                return []
            assert (code, content_type) == (200, "application/json")
            return json.loads(text)["subscriptions"][0]["blocked"]

        eventually(lambda: blocked() != [], 60)
        (found,) = blocked()
        status = msgspec.json.decode(get(f"{url}/status")[2], type=Status)
    assert found["topic"] == topic
    assert found["key"].startswith("key-")
    assert found["attempts"] == 2
    assert re.fullmatch(r"\w+ at tests/web/test_server\.py:\d+: .+", found["error"])
    assert found["seconds"] >= 0
    assert status.version == 1
    assert status.phase == "running"


@pytest.fixture
def answering() -> Iterator[HttpServer]:
    """The endpoints of an instance that has just begun, on a loopback address."""
    board = StatusBoard(Clock())
    probes = Probes(board.live, board.ready, board.read, Acting("t" * 16, lambda order: ("", {})))
    server = HttpServer("127.0.0.1", 0, Exposition(board.read), probes)
    assert server.start()
    yield server
    server.close()


def asked(server: HttpServer, method: str, path: str, **headers: str) -> int:
    """The status of an answer; headers are named with underscores."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_status_shows_no_key_stack_or_error_message_unless_keys_may_be_shown(
    embedded_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    embedded_cluster.create_topic(topic, 1)
    write(embedded_cluster, topic, [(b"SECRET-%d" % (n % 5), b"v") for n in range(60)])
    app = KeyShared(
        client_conf(embedded_cluster, group_name()),
        [topic],
        workers=2,
        retry={"attempts": 2, "backoff": 0.001},
        http_port=0,
    )
    held = threading.Event()

    @app.handler
    def handle(record: Any) -> None:
        if record.key() == b"SECRET-3":
            raise ValueError(f"no such customer: {record.key()}")
        if record.key() == b"SECRET-4":
            assert held.wait(60)

    found: list[Any] = []

    def is_blocked() -> bool:
        code, _, text = get(f"{url}/status?pending")
        found[:] = [] if code == 503 else [json.loads(text)["subscriptions"][0], text]
        return bool(found and found[0]["blocked"])

    with running(app) as url:
        eventually(is_blocked, 60)
        held.set()
    sub, text = found
    assert "SECRET" not in text
    assert re.fullmatch(r"ValueError at tests/web/test_server\.py:\d+", sub["blocked"][0]["error"])
    assert (sub["errors"][0]["error"], sub["errors"][0]["message"]) == ("ValueError", "")


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({"Host": "attacker.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
    ],
)
def test_no_web_page_may_ask_for_the_status_or_give_an_order(
    answering: HttpServer, headers: dict[str, str], refused: int
) -> None:
    token = {"Authorization": f"Bearer {'t' * 16}", "Content_Length": "0"}
    assert asked(answering, "GET", "/status") == 503, "it has just begun"
    assert asked(answering, "GET", "/status", **headers) == refused
    order = "/api/v1/actions/pause"
    assert asked(answering, "POST", order, **token) == 200
    assert asked(answering, "POST", order, **token, **headers) == refused
    assert asked(answering, "GET", "/metrics", **headers) == 200, "scrapers ask by any name"
    assert asked(answering, "GET", "/livez", **headers) in {200, 503}, "probes ask by any name"


@pytest.mark.parametrize(
    "request_head",
    [
        b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n",
        b"HEAD /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n"
        b"Content-Length: %d\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nX: %d\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /api/v1/actions/pause HTTP/1.1\r\nHost: 127.0.0.1\r\nX: %d\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n",
        b"POST /api/v1/actions/pause HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n"
        b"Content-Length: %d\r\n\r\n",
    ],
)
def test_a_body_is_never_answered_as_a_request_of_its_own(
    answering: HttpServer, request_head: bytes
) -> None:
    hidden = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with socket.create_connection(("127.0.0.1", answering.port), timeout=30) as connection:
        connection.sendall(request_head % len(hidden) + hidden)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.startswith(b"HTTP/1.1 400 ")


def test_before_the_first_heartbeat_there_is_no_status() -> None:
    board = StatusBoard(Clock())
    server = HttpServer(
        "127.0.0.1", 0, Exposition(board.read), Probes(board.live, board.ready, board.read)
    )
    assert server.start()
    try:
        assert get(f"{server.url}/status")[0] == 503
    finally:
        server.close()


def test_every_metric_of_the_table_is_exposed(
    app: KeyShared, topic: str, eventually: Eventually
) -> None:
    with running(app) as url:
        eventually(lambda: settled(url, topic), 60)
        text = get(f"{url}/metrics")[2]
    exposed = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert {family.name for family in FAMILIES} <= exposed


def test_without_partitions_no_sample_has_that_label(
    embedded_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    embedded_cluster.create_topic(topic, 1)
    conf = client_conf(embedded_cluster, group_name())
    app = KeyShared(conf, [topic], workers=1, http_port=0, partition_metrics=False)
    app.handler(lambda record: None)
    with running(app) as url:
        eventually(lambda: scraped(url).get(("keyshared_partitions_assigned", ())) == 1, 60)
        assert 'partition="' not in get(f"{url}/metrics")[2]


def test_promtool_finds_nothing_to_object_to(
    app: KeyShared, topic: str, eventually: Eventually
) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is missing: install the package prometheus")
    with running(app) as url:
        eventually(lambda: settled(url, topic), 60)
        text = get(f"{url}/metrics")[2]
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    planted = subprocess.run(
        [promtool, "check", "metrics"],
        input=text.replace("keyshared_commits_total", "keyshared_commits_count"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert planted.returncode != 0, "promtool objects to nothing at all"


def test_openmetrics_is_spoken_to_whoever_asks_for_it(app: KeyShared) -> None:
    with running(app) as url:
        _, content_type, text = get(f"{url}/metrics", OPEN_METRICS)
    assert content_type.startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")


def test_it_is_ready_with_its_partitions_and_not_before_nor_at_the_end(
    embedded_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    embedded_cluster.create_topic(topic, 1)
    write(embedded_cluster, topic, [(b"k", b"v")])
    began, release = threading.Event(), threading.Event()
    app = KeyShared(client_conf(embedded_cluster, group_name()), [topic], workers=1, http_port=0)

    @app.handler
    def handle(record: Any) -> None:
        began.set()
        release.wait(60)

    with running(app) as url:
        assert get(f"{url}/livez")[0] == 200
        eventually(lambda: get(f"{url}/readyz")[0] == 200, 60)
        assert began.wait(60)
        app.stop()
        eventually(lambda: get(f"{url}/readyz") == (503, TEXT, "stopping\n"), 60)
        assert get(f"{url}/livez")[0] == 200, "a stop must not look like a hang"
        release.set()


TEXT = "text/plain; charset=utf-8"


def test_it_is_not_ready_before_the_group_gave_it_its_partitions() -> None:
    board = StatusBoard(Clock())
    assert board.ready() == (False, "starting")
    board.phase = "running"
    assert not board.ready().ok
    board.joined = True
    assert board.ready().ok


def test_it_is_not_alive_once_the_control_loop_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    board = StatusBoard(Clock())
    board.phase = "running"
    assert board.live().ok
    board.beat_at -= SILENT_MAX + 1
    health = board.live()
    assert not health.ok
    assert "has had no heartbeat for 31 s" in health.reason
    board.phase = "stopping"
    assert board.live().ok, "the stop has a deadline of its own"


def test_a_taken_port_is_said_and_the_records_are_consumed(
    embedded_cluster: Cluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    embedded_cluster.create_topic(topic, 1)
    write(embedded_cluster, topic, [(b"k", b"v")])
    handled = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as taken, caplog.at_level(logging.ERROR):
        port = taken.getsockname()[1]
        conf = client_conf(embedded_cluster, group_name())
        app = KeyShared(conf, [topic], workers=1, http_port=port)
        app.handler(lambda record: handled.set())
        thread = threading.Thread(target=app.run, daemon=True)
        thread.start()
        assert handled.wait(60)
        app.stop()
        thread.join(60)
    assert not thread.is_alive()
    (said,) = [each.getMessage() for each in caplog.records if each.name == "kafka_keyshared.web"]
    assert f"cannot listen at http://127.0.0.1:{port}" in said
    assert "records are consumed all the same" in said


def test_other_paths_are_told_what_there_is() -> None:
    board = StatusBoard(Clock())
    server = HttpServer(
        "127.0.0.1", 0, Exposition(board.read), Probes(board.live, board.ready, board.read)
    )
    assert server.start()
    try:
        status, _, text = get(f"{server.url}/")
        assert (status, text) == (404, "there are /metrics, /livez, /readyz and /status\n")
        status, _, text = get(f"{server.url}/metrics?x=1")
        assert status == 200
        assert "keyshared_build_info{" in text, "before the first status there is this at least"
    finally:
        server.close()
        server.close()
    with pytest.raises(urllib.error.URLError):
        get(f"{server.url}/livez")


def test_the_text_is_made_once_for_each_status(app: KeyShared, eventually: Eventually) -> None:
    with running(app):
        eventually(lambda: app.status() is not None, 60)
        status = app.status()
        assert status is not None
        asked, now = [], 0.0

        def read() -> Any:
            asked.append(1)
            return status

        exposition = Exposition(read, clock=lambda: now)
        first, now = exposition.text("")[0], now + 2 * SERVED_FOR
        assert exposition.text("")[0] is first
        status = msgspec.structs.replace(status)
        assert exposition.text("")[0] is not first
        assert len(asked) == 3


def test_an_answer_goes_out_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second piece would wait until the client has acknowledged the first: 40 ms."""
    pieces: list[bytes] = []

    def sendall(self: socket.socket, data: bytes) -> None:
        if self.getsockname()[1] == server.port:
            pieces.append(bytes(data))
        send(self, data)

    board = StatusBoard(Clock())
    server = HttpServer(
        "127.0.0.1", 0, Exposition(board.read), Probes(board.live, board.ready, board.read)
    )
    assert server.start()
    send = socket.socket.sendall
    monkeypatch.setattr(socket.socket, "sendall", sendall)
    try:
        _, _, text = get(f"{server.url}/metrics")
    finally:
        server.close()
    (answer,) = pieces
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\n" + text.encode())

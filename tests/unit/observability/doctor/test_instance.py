"""What the doctor learns from the status of an instance, and from what is none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import msgspec
import pytest

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.observability.doctor import instance_checks
from kafka_keyshared.observability.doctor.findings import Check, CheckStatus, FindingKind, page_of
from kafka_keyshared.observability.doctor.instance import ask_status, status_address
from kafka_keyshared.status import Status as InstanceStatus
from kafka_keyshared.testing.clusters.node import free_ports
from tests.support.doctor_survey import URL, blocked, instance, partition, worker


def judged(held_after: float = 60.0, **told: Any) -> Check:
    return instance_checks.instance(URL, instance(**told), "billing", held_after)


# --- the judgement ---


def test_an_instance_that_gets_on_is_fine() -> None:
    check = judged(workers=[worker(0, 17, 2.0), worker(1)], partitions=[partition(0, 1_203)])
    assert check.status is CheckStatus.OK
    assert check.seen == (
        f"{URL}: running, group billing, 1 partition, 1 of 2 workers busy, lag 1,203, the longest "
        "running record is orders-1@17 for 2 s on worker-0"
    )


def test_blocked_keys_are_named_with_record_time_and_error() -> None:
    check = judged(lanes={"blocked": 20, "waiting": 3}, blocked=[blocked(n) for n in range(10)])
    assert (check.status, check.page) == (CheckStatus.FAIL, page_of("key-blocked"))
    named = "key 'customer-0' at orders-1@0 for 12 min (5 attempts, last: KeyError at app.py:6"
    assert f"20 keys are blocked: {named}" in check.why
    assert "and 15 more" in check.why
    assert "fix the handler and restart" in check.cure
    assert "3 keys waiting, 20 keys blocked" in check.seen


def test_a_blocked_key_that_the_instance_hides_is_named_by_its_slot() -> None:
    hidden = blocked(0) | {"key": None, "slot": 0xDF75}
    keyless = blocked(1) | {"key": None, "slot": None}
    check = judged(lanes={"blocked": 2}, blocked=[hidden, keyless])
    assert "2 keys are blocked: a key of slot 0xdf75 at orders-1@0 for 12 min" in check.why
    assert "; a record without a key at orders-1@1 for " in check.why


def test_a_record_that_runs_for_too_long_is_named_the_longest_first() -> None:
    check = judged(workers=[worker(0, 17, 61.0), worker(1, 20, 200.0)])
    assert (check.status, check.page) == (CheckStatus.FAIL, page_of("record-running-long"))
    assert "2 records running for longer than 60 s: orders-1@20 for 3 min on worker-1" in check.why
    assert judged(300.0, workers=[worker(0, 17, 61.0)]).status is CheckStatus.OK


def test_it_is_said_what_becomes_of_the_other_keys_of_a_worker_that_is_held_up() -> None:
    apart = worker(0, 17, 61.0) | {"detached": True, "leased": 1, "runs": 1}
    keeps = worker(3, 20, 200.0) | {"queued": 7, "leased": 3, "runs": 1}
    alone = worker(4, 21, 300.0) | {"leased": 1, "runs": 1}
    check = judged(workers=[apart, keeps, alone])
    assert "orders-1@17 for 61 s on worker-0 (other keys go on)" in check.why
    assert "orders-1@20 for 3 min on worker-3 (9 records wait for it there)" in check.why
    assert check.why.startswith("3 records running for longer than 60 s: orders-1@21 for 5 min on")
    assert "worker-4, " in check.why


def test_what_holds_partitions_back_is_seen() -> None:
    full, own = "the window is full", "what it has received holds it back"
    check = judged(partitions=[partition(0, 9, full), partition(1, 9, full, own)])
    assert "nothing is fetched from orders-0, orders-1 for now: the window is full" in check.seen
    assert f"nothing is fetched from orders-1 for now: {own}" in check.seen
    assert check.status is CheckStatus.OK, "a full window is what back-pressure looks like"


@pytest.mark.parametrize(
    ("told", "page", "said"),
    [
        ({"phase": "stopping"}, "not-ready", "stopping"),
        ({"joined": False}, "not-ready", "it has not been given partitions yet"),
        ({"group": "other"}, "other-group", "of the group other, not of billing"),
    ],
)
def test_an_instance_that_is_not_the_one_or_not_ready(
    told: dict[str, Any], page: str, said: str
) -> None:
    check = judged(**told)
    assert (check.status, check.page) == (CheckStatus.WARN, page_of(page))
    assert said in check.why


# --- the address, and what answers there ---


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("8787", URL),
        ("127.0.0.1:8787", URL),
        ("http://127.0.0.1:8787", URL),
        ("http://127.0.0.1:8787/", URL),
        (URL, URL),
        ("https://host/app-1", "https://host/app-1/status"),
        ("[::1]:8787", "http://[::1]:8787/status"),
    ],
)
def test_an_address_as_it_is_typed(text: str, address: str) -> None:
    assert status_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "http://", "ftp://host", "host:99999", "host:port", "file:///x"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--status-url .*: give the address of an"):
        status_address(text)


@contextmanager
def serving(code: int, text: bytes) -> Iterator[str]:
    """Something that answers every request so."""

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, name="serving")
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/status"
        finally:
            server.shutdown()
            thread.join(60)


def newer(value: InstanceStatus) -> bytes:
    return msgspec.json.encode({**msgspec.to_builtins(value), "version": 2, "workers": "more"})


@pytest.mark.parametrize(
    ("code", "text", "kind", "said"),
    [
        (
            200,
            lambda: newer(instance()),
            FindingKind.OTHER_STATUS,
            "of version 2, and this release reads",
        ),
        (
            200,
            lambda: b"<html>\n<b>welcome\x1b[2J",
            FindingKind.NOT_AN_INSTANCE,
            "<html> <b>welcome",
        ),
        (200, lambda: b'{"status": "green"}', FindingKind.NOT_AN_INSTANCE, '"green"'),
        (
            200,
            lambda: b'{"version": 1, "group": "g"}',
            FindingKind.NOT_AN_INSTANCE,
            "gives no status",
        ),
        (200, lambda: b"\xff\xfe", FindingKind.NOT_AN_INSTANCE, "gives no status"),
        (200, lambda: b"", FindingKind.NOT_AN_INSTANCE, "(nothing)"),
        (404, lambda: b"not here", FindingKind.NOT_AN_INSTANCE, "404 not here"),
        (
            503,
            lambda: b"it has only just begun: no status yet",
            FindingKind.NOT_READY,
            "only just begun",
        ),
        (503, lambda: b"upstream is away", FindingKind.NOT_AN_INSTANCE, "503 upstream is away"),
    ],
)
def test_what_is_no_status_is_said_in_one_line(
    code: int, text: Callable[[], bytes], kind: FindingKind, said: str
) -> None:
    with serving(code, text()) as url:
        answer = ask_status(url, 30.0)
    assert answer.status is None
    assert answer.wrong is not None
    assert answer.wrong.kind is kind
    assert said in answer.wrong.why
    assert answer.wrong.why.isprintable()
    assert answer.wrong.cure


def test_a_status_is_read_whatever_a_later_release_has_added_to_it() -> None:
    value = msgspec.to_builtins(instance())
    with serving(200, msgspec.json.encode({**value, "weather": "fine"})) as url:
        assert ask_status(url, 30.0).status == instance()


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy of the environment is not asked for it either."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    answer = ask_status(f"http://127.0.0.1:{free_ports(1)[0]}/status")
    assert answer.wrong is not None
    assert answer.wrong.kind is FindingKind.INSTANCE_SILENT
    assert "Connection refused" in answer.wrong.why
    assert "--http-port" in answer.wrong.cure

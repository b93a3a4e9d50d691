"""Reports that are requested over HTTP: the request, its token, and the use of the answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kafka_keyshared.observability.web.commands import NAME_HEADER
from kafka_keyshared.observability.web.group import pull_reports
from kafka_keyshared.observability.web.group.pull_reports import Address, AddressesEar, address_of
from kafka_keyshared.observability.web.group.report import MOST_BYTES, packed
from tests.support.instance_reports import GROUP, report


class _Handler(BaseHTTPRequestHandler):
    server: Any

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        self.server.askers.append(self.headers.get(NAME_HEADER))
        status, body = self.server.answer
        self.send_response(status)
        if status == 302:
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/elsewhere")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Any]:
    made: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    made.asked, made.askers, made.answer = [], [], (200, packed(report("b", 0)))
    thread = threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join(30)


def heard(server: Any, token: str | None = None) -> tuple[list[str], tuple[str, ...]]:
    """Who has answered, and what is wrong, after one round."""
    ear = AddressesEar([f"127.0.0.1:{server.server_port}"], GROUP, token)
    try:
        found = [each.report for each in ear.hear(0.0)]
        assert ear.caught_up
        assert ear.hear(0.0) == [], "it is not yet time again"
        return [each.name for each in found if each is not None], ear.troubles
    finally:
        ear.close()


def test_a_report_is_asked_for_with_the_own_token(server: Any) -> None:
    assert heard(server, "secret") == (["b"], ())
    assert heard(server) == (["b"], ())
    assert server.asked == [("/api/v1/report", "Bearer secret"), ("/api/v1/report", None)]


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (401, b'{"refused": "this needs the token"}', "401: this needs the token"),
        (404, b"Not Found", "404: Not Found"),
        (503, b"it has only just begun\n", "503: it has only just begun"),
        (200, b"<html>", "no report: not a report"),
        (200, b" " * (MOST_BYTES + 1), "it answers more than 262,144 bytes"),
        (200, packed(report("b", group="shipping")), "it is of the group 'shipping'"),
    ],
)
def test_what_is_no_report_is_told_with_the_address(
    status: int, body: bytes, why: str, server: Any
) -> None:
    server.answer = (status, body)
    names, (trouble,) = heard(server)
    assert names == []
    assert trouble.startswith(f"127.0.0.1:{server.server_port}: ")
    assert why in trouble


def test_nobody_is_led_to_another_address(server: Any) -> None:
    server.answer = (302, b"")
    names, (trouble,) = heard(server)
    assert (names, [path for path, _ in server.asked]) == ([], ["/api/v1/report"])
    assert ": 302: " in trouble


def test_a_name_means_all_of_its_addresses_but_not_any_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def resolved(host: str, port: int, **_more: Any) -> list[Any]:
        if host == "unknown":
            raise OSError("Name or service not known")
        return [(0, 0, 0, "", (f"10.0.0.{n}", port)) for n in (1, 2, 3, 3)]

    tried: list[Address] = []

    def answer(_ear: AddressesEar, address: Address) -> str:
        tried.append(address)
        return f"{address}: no"

    monkeypatch.setattr("socket.getaddrinfo", resolved)
    monkeypatch.setattr(AddressesEar, "_ask", answer)
    monkeypatch.setattr(pull_reports, "MOST", 2)
    ear = AddressesEar(["billing-headless:8788", "unknown:1"], GROUP, None)
    try:
        assert ear.hear(0.0) == []
    finally:
        ear.close()
    assert sorted(tried) == [("10.0.0.1", 8788), ("10.0.0.2", 8788)]
    assert ear.troubles[0] == "unknown: the name is not known: Name or service not known"
    assert ear.troubles[1].startswith("3 addresses, of which 2 are asked; not 10.0.0.3:8788")


def test_one_that_a_name_has_forgotten_is_asked_until_it_answers_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A service forgets a pod as soon as it is to stop, and what that says last is to be heard."""
    named, there = ["10.0.0.1", "10.0.0.2"], {"10.0.0.1", "10.0.0.2"}
    now = [1_000.0]

    def resolved(_host: str, port: int, **_more: Any) -> list[Any]:
        return [(0, 0, 0, "", (each, port)) for each in named]

    def answer(_ear: AddressesEar, address: Address) -> Any:
        return report(address.host) if address.host in there else f"{address}: no"

    monkeypatch.setattr("socket.getaddrinfo", resolved)
    monkeypatch.setattr(AddressesEar, "_ask", answer)
    ear = AddressesEar(["billing-headless:8788"], GROUP, None, clock=lambda: now[0])

    def round_() -> list[str]:
        now[0] += pull_reports.EVERY
        return [each.report.name for each in ear.hear(0.0) if each.report is not None]

    try:
        assert round_() == ["10.0.0.1", "10.0.0.2"]
        named.remove("10.0.0.2")
        assert round_() == round_() == ["10.0.0.1", "10.0.0.2"]
        there.remove("10.0.0.2")
        assert round_() == ["10.0.0.1"]
        assert ear.troubles == (), "it was not expected any more"
        there.add("10.0.0.2")
        assert round_() == ["10.0.0.1"], "the address may be another's by now"
    finally:
        ear.close()


def test_it_says_who_asks(server: Any) -> None:
    ear = AddressesEar([f"127.0.0.1:{server.server_port}"], GROUP, None, "b-1-0")
    try:
        assert len([*ear.hear(0.0)]) == 1
    finally:
        ear.close()
    assert server.askers == ["b-1-0"]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.3:8788", ("10.0.0.3", 8788)),
        ("http://billing-headless:80", ("billing-headless", 80)),
        ("[::1]:8788", ("::1", 8788)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert address_of(text) == address
    assert str(address_of(text)) == text.removeprefix("http://")

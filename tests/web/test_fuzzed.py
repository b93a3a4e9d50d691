"""Many random requests to the admin API: none breaks it, none changes anything without the token.

They go to the application itself, without a socket, so that a lot of them take little time.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from typing import Any

import pytest

from kafka_keyshared.observability.web.admin.app import application
from kafka_keyshared.observability.web.admin.feed import OF_GROUP, PARTS, Feed
from kafka_keyshared.observability.web.command_list import VERBS
from kafka_keyshared.observability.web.commands import ACTIONS, FILTERS, RANGES, Acting
from kafka_keyshared.observability.web.group.report import Who, report_of
from kafka_keyshared.observability.web.group.subscribe import GroupListener
from kafka_keyshared.observability.web.group.view import Looker
from kafka_keyshared.observability.web.guard import RequestGuard
from kafka_keyshared.observability.web.snapshot import SnapshotOrigin
from kafka_keyshared.status import Status
from tests.support.doctor_survey import instance

TOKEN = "0123456789abcdef"
REQUESTS = 100_000

METHODS = ("GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "get", "X")
PATHS = (
    *(f"/api/v1/{part}" for part in (*PARTS, *OF_GROUP, "what-if", "openapi.json", "nothing", "")),
    *(ACTIONS + verb for verb in (*VERBS, "", "stop", "../ranges", "pause/", "\x00", "é")),
    *(RANGES, FILTERS, "/", "//", "/api", "/api/v1/actions", "/../etc/passwd", "*"),
)
BODIES = (
    *(b"", b"{}", b"[]", b"null", b"{", b"\xff\xfe", b'{"a":' * 2_000, b" " * 70_000),
    *(b'{"workers":8}', b'{"workers":-1}', b'{"workers":1e99}', b'{"level":"debug"}'),
    *(b'{"at":"orders-3@17"}', b'{"key":"\\u0000"}', b'{"topics":["orders"]}'),
    *(b'{"first":0,"last":9,"worker":"a"}', b'{"slot":65535,"worker":null}', b'{"timeout":NaN}'),
)
VALUES = (
    *("127.0.0.1:8788", "localhost", "attacker.example", "[::1]", "[", ":", "", "\x00", "é" * 200),
    *("0", "-1", "99999999999999999999", "1e3", "chunked", "null", "cross-site", "same-origin"),
    *(f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer", "Bearer ", TOKEN, f"Bearer {TOKEN[:-1]}"),
)
HEADERS = ("host", "origin", "authorization", "content-length", "sec-fetch-site", "x-keyshared-as")


class Asked:
    """Takes orders, and counts them."""

    def __init__(self) -> None:
        self.orders: list[Any] = []

    def __call__(self, order: Any) -> tuple[str, dict[str, Any]]:
        self.orders.append(order)
        return "done", {"ranges": {}, "filters": {}}


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def app(asked: Asked) -> Any:
    status: Status = instance()
    about = SnapshotOrigin(
        host="h", pid=1, version="0", python="3", librdkafka="2", topics=("orders",), dlq={}
    )
    feed = Feed(lambda: status, about, (), keys=False)
    guard, acting = RequestGuard("127.0.0.1", TOKEN), Acting(TOKEN, asked)
    who = Who("h-1-0", "h", "h", 1, "", "0")
    group = GroupListener(
        lambda: report_of(status, who, 5.0), None, Looker("billing", "h-1-0", "h")
    )
    return application(feed, guard, acting, group, threading.Event())


async def answered(app: Any, method: str, path: str, headers: Any, body: bytes) -> int:
    """The HTTP status that a request is answered with; its body comes in two parts.

    Then the client is gone, which is what ends an answer that would go on for ever.
    """
    parts = [body[: len(body) // 2], body[len(body) // 2 :]]
    found: list[int] = []

    async def receive() -> Any:
        if not parts:
            return {"type": "http.disconnect"}
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            found.append(message["status"])

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"workers=8",
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 5),
        "server": ("127.0.0.1", 8788),
    }
    await app(scope, receive, send)
    (status,) = found
    return status


def made(chance: random.Random) -> tuple[str, str, list[tuple[bytes, bytes]], bytes]:
    method = "POST" if chance.random() < 0.5 else chance.choice(METHODS)
    path, body = chance.choice(PATHS), chance.choice(BODIES)
    if chance.random() < 0.2:
        path = "/api/v1/" + "".join(chance.choices("./%:@é\x7f\\ab?", k=chance.randrange(30)))
    if chance.random() < 0.2:
        body = chance.randbytes(chance.randrange(200))
    headers = {"host": "127.0.0.1:8788"} if chance.random() < 0.8 else {}
    for name in chance.choices(HEADERS, k=chance.randrange(3)):
        headers[name] = chance.choice(VALUES)
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    return method, path, encoded, body


def test_no_random_request_breaks_it_or_changes_anything(app: Any, asked: Asked) -> None:
    chance = random.Random(7)

    async def ask() -> Counter[int]:
        found: Counter[int] = Counter()
        for number in range(REQUESTS):
            request = made(chance)
            status = await answered(app, *request)
            found[status] += 1
            assert status < 500, (number, request)
        return found

    found = asyncio.run(ask())
    assert not asked.orders, "nobody had the token"
    assert {200, 401, 403, 404, 413, 421} <= set(found), "each rule was met"


def test_with_the_token_what_is_no_order_changes_nothing_either(app: Any, asked: Asked) -> None:
    chance = random.Random(8)
    shown = [(b"host", b"localhost"), (b"authorization", b"Bearer " + TOKEN.encode())]

    async def ask() -> Counter[int]:
        found: Counter[int] = Counter()
        for _ in range(REQUESTS // 10):
            method, path, _, body = made(chance)
            status = await answered(app, method, path, shown, body)
            found[status] += 1
            assert status < 500, (method, path, body)
        return found

    found = asyncio.run(ask())
    assert found[200] >= len(asked.orders) > 0
    assert found[400] > 0
    assert {type(order) for order in asked.orders} <= {each.order for each in VERBS.values()}

"""Orders over HTTP: who may give them, what is refused, and that nothing is done then."""

from __future__ import annotations

import http.client
import json
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared.clock import Clock
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.observability.web.command_list import VERBS, FilterOrder, RangeOrder
from kafka_keyshared.observability.web.commands import (
    ACTIONS,
    FILTERS,
    MOST_BYTES,
    RANGES,
    Acting,
    read_token,
)
from kafka_keyshared.observability.web.prometheus_collector import Exposition
from kafka_keyshared.observability.web.server import HttpServer, Probes
from kafka_keyshared.runtime.status_board import StatusBoard

TOKEN = "0123456789abcdef"
ORDER = {"first": 0, "last": 9, "worker": "worker-1"}


class Asked:
    """Takes orders, and does with each what the test says."""

    def __init__(self) -> None:
        self.orders: list[Any] = []
        self.raises: Exception | None = None

    def __call__(self, order: Any) -> tuple[str, dict[str, Any]]:
        self.orders.append(order)
        if self.raises is not None:
            raise self.raises
        if isinstance(order, RangeOrder):
            return "it has", {"ranges": {str(order.worker): f"{order.first}-{order.last}"}}
        if isinstance(order, FilterOrder):
            return "it takes", {"filters": {order.worker: order.patterns}}
        return "done", {"of": type(order).__name__}


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def url(asked: Asked) -> Iterator[str]:
    yield from served(Acting(TOKEN, asked))


def served(acting: Acting | None) -> Iterator[str]:
    board = StatusBoard(Clock())
    probes = Probes(board.live, board.ready, board.read, acting)
    server = HttpServer("127.0.0.1", 0, Exposition(board.read), probes)
    assert server.start()
    yield server.url
    server.close()


def post(
    url: str, what: Any, token: str | None = TOKEN, path: str = RANGES, **headers: str
) -> tuple[int, str]:
    """Status and text of what is answered; ``what`` is sent as it is where it is bytes."""
    body = what if isinstance(what, bytes) else json.dumps(what).encode()
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    given = {} if token is None else {"Authorization": f"Bearer {token}"}
    connection.request("POST", path, body, {**given, **headers})
    answer = connection.getresponse()
    try:
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_an_order_with_the_token_is_done_and_answered(url: str, asked: Asked) -> None:
    status, text = post(url, ORDER)
    assert (status, json.loads(text)) == (200, {"ranges": {"worker-1": "0-9"}})
    status, _ = post(url, {**ORDER, "take_over": True, "timeout": 1.5})
    assert status == 200
    assert asked.orders == [
        RangeOrder(first=0, last=9, worker="worker-1"),
        RangeOrder(first=0, last=9, worker="worker-1", take_over=True, timeout=1.5),
    ]


def test_filters_are_ordered_as_ranges_are(url: str, asked: Asked) -> None:
    what = {"worker": "worker-1", "patterns": ["ship-*", "é?"]}
    status, text = post(url, what, path=FILTERS)
    assert (status, json.loads(text)) == (200, {"filters": {"worker-1": ["ship-*", "é?"]}})
    assert asked.orders == [FilterOrder(worker="worker-1", patterns=("ship-*", "é?"))]
    assert post(url, what, None, path=FILTERS)[0] == 401
    status, text = post(url, {"worker": "worker-1", "patterns": "ship-*"}, path=FILTERS)
    assert status == 400
    assert "give JSON with worker and patterns" in text
    asked.raises = KeySharedError("there is none")
    assert post(url, what, path=FILTERS) == (409, "there is none\n")


@pytest.mark.parametrize("token", [None, "", "0123456789abcde", TOKEN + "x", "\xe9" * 16])
def test_without_the_token_nothing_is_done(url: str, asked: Asked, token: str | None) -> None:
    status, text = post(url, ORDER, token)
    assert (status, asked.orders) == (401, [])
    assert "'Authorization: Bearer'" in text
    assert TOKEN not in text


def test_another_kind_of_authorization_is_none(url: str, asked: Asked) -> None:
    assert post(url, ORDER, None, Authorization=f"Basic {TOKEN}")[0] == 401
    assert post(url, ORDER, None, Authorization=TOKEN)[0] == 401
    assert not asked.orders


def test_an_instance_without_a_token_takes_no_orders() -> None:
    for url in served(None):
        status, text = post(url, ORDER)
        assert status == 403
        assert text.startswith("this instance takes no orders: it runs without http_token_file; ")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "give JSON with first, last and worker"),
        (b"\xff\xfe", "give JSON with first, last and worker"),
        ({"first": 0, "last": 9}, "missing required field `worker`"),
        ({**ORDER, "first": "0"}, "Expected `int`"),
        ({**ORDER, "timeout": 0}, "Expected `float`"),
        ({**ORDER, "force": True}, "unknown field `force`"),
        ([], "Expected `object`"),
    ],
)
def test_what_is_no_order_is_refused(url: str, asked: Asked, body: Any, said: str) -> None:
    status, text = post(url, body)
    assert (status, asked.orders) == (400, [])
    assert said in text


def test_an_order_that_is_too_long_is_not_read(url: str, asked: Asked) -> None:
    assert post(url, b"", **{"Content-Length": str(MOST_BYTES + 1)})[0] == 400
    assert post(url, b"", **{"Content-Length": "-1"})[0] == 400
    assert not asked.orders


def test_another_path_is_told_where_orders_are_taken(url: str, asked: Asked) -> None:
    for path in ("/status", "/api/v1/range", "/"):
        status, text = post(url, ORDER, path=path)
        assert status == 404
        assert text.startswith(
            f"orders are taken at {ACTIONS}VERB; there is pause, resume, quiesce"
        )
    assert not asked.orders


@pytest.mark.parametrize(
    ("raised", "status", "said"),
    [
        (KeySharedError("it overlaps"), 409, "it overlaps\n"),
        (TimeoutError("not done"), 504, "not done\n"),
    ],
)
def test_what_the_instance_refuses_is_said(
    url: str, asked: Asked, raised: Exception, status: int, said: str
) -> None:
    asked.raises = raised
    assert post(url, ORDER) == (status, said)


# --- the verbs ---

GIVEN: dict[str, dict[str, Any]] = {
    "pause": {"topics": ["orders"]},
    "resume": {"partitions": [["orders", 3]]},
    "quiesce": {},
    "scale": {"workers": 8},
    "assign": ORDER,
    "move": {"slot": 7, "worker": "worker-1"},
    "filter": {"worker": "worker-1", "patterns": ["a*"]},
    "unblock": {"at": "orders-3@17"},
    "drop": {"key": "a"},
    "dead-letter": {"at": "orders-3@17"},
    "lift-dlq-limit": {},
    "letters": {"most": 20},
    "replay": {"at": "0:17", "execute": True},
    "log-level": {"level": "debug"},
}


def test_every_verb_has_an_order_of_its_own(url: str, asked: Asked) -> None:
    assert list(GIVEN) == list(VERBS)
    for verb, what in GIVEN.items():
        status, text = post(url, what, path=ACTIONS + verb)
        assert (status, json.loads(text)["verb"]) == (200, verb)
        assert type(asked.orders[-1]) is VERBS[verb].order
    assert len({type(each) for each in asked.orders}) == len(VERBS)


def test_a_verb_that_is_refused_says_why_as_json(url: str, asked: Asked) -> None:
    path = ACTIONS + "scale"
    for what in ({}, {"workers": 0}, {"workers": "8"}, {"workers": 8, "at_once": True}, b"{"):
        status, text = post(url, what, path=path)
        assert (status, [*json.loads(text)]) == (400, ["refused"])
        assert "give JSON with workers" in text
    assert post(url, {"workers": 8}, None, path=path)[0] == 401
    assert not asked.orders
    asked.raises = KeySharedError("it has members")
    told = post(url, {"workers": 8}, path=path)
    assert (told[0], json.loads(told[1])) == (409, {"refused": "it has members"})


def test_who_asks_is_in_the_log_and_no_key(
    url: str, asked: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kafka_keyshared.web")
    name = {"X-Keyshared-As": "anna" + "x" * 100}
    assert post(url, {"key": "of-a-patient"}, path=ACTIONS + "drop", **name)[0] == 200
    assert f"order drop of 'anna{'x' * 60}' at 127.0.0.1 is done" in caplog.messages
    asked.raises = KeySharedError("there is none")
    post(url, {"key": "of-a-patient"}, path=ACTIONS + "drop")
    assert "order drop of 127.0.0.1 refused" in caplog.messages
    assert "of-a-patient" not in caplog.text
    assert TOKEN not in caplog.text


# --- the token ---


def test_the_token_is_what_stands_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"  {TOKEN}\n\n")
    assert read_token(str(path)) == TOKEN


@pytest.mark.parametrize(
    "text", ["", "short", "two words of a token", "0123456789abcde\x07f", "é" * 20]
)
def test_a_file_without_a_token_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="http_token_file=") as refused:
        read_token(str(path))
    assert not text or text not in str(refused.value), "it may be a secret all the same"


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"http_token_file=.*No such file"):
        read_token(str(tmp_path / "nothing"))

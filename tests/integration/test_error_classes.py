"""Retries by the class of an error, and the attempt that a handler knows, in every pool."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared import Backoff, DeadLetter, KeyShared, Record, attempt_of, never
from kafka_keyshared.testing import EmbeddedKafka, running

POOLS = ["thread:2", "asyncio:8", "process:1"]
AWAY, BAD, FINE = b"away", b"bad", b"fine"


class AwayError(ConnectionError):
    """A dependency does not answer."""


class BadError(Exception):
    """A record that nobody can read."""


def note(folder: str, record: Record) -> None:
    """Write down the attempt, where the test can read it whichever process this is."""
    attempt = attempt_of(record)
    name = record.key().decode()
    with (Path(folder) / f"{name}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps([attempt.number, attempt.of, attempt.last_error]) + "\n")


def fate(record: Record) -> None:
    """Fail as the key says: a dependency is away for three attempts, or the record is bad."""
    note(record.value().decode(), record)
    if record.key() == AWAY and attempt_of(record).number <= 3:
        raise AwayError("no answer")
    if record.key() == BAD:
        raise BadError("what is it")


async def awaited_fate(record: Record) -> None:
    fate(record)


@pytest.fixture
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as cluster:
        cluster.create_topic("orders", 1)
        cluster.create_topic("orders.dlq", 1)
        yield cluster


def noted(folder: Path, key: bytes) -> list[Any]:
    text = (folder / f"{key.decode()}.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("workers", POOLS)
def test_classes_decide_and_the_handler_knows_its_attempt(
    workers: str, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    folder = str(tmp_path)
    kafka.produce("orders", [(key.decode(), folder) for key in (AWAY, BAD, FINE)])
    app = KeyShared(
        kafka.conf("billing"),
        ["orders"],
        workers=workers,
        dlq=True,
        retry={"attempts": 2, "backoff": 0.01},
        retry_on={ConnectionError: Backoff(forever=True, first=0.01), BadError: never},
    )
    app.handler(awaited_fate if "asyncio" in workers else fate)
    with running(app, timeout=60) as run:
        run.wait_settled()
    away = "AwayError: no answer"
    assert noted(tmp_path, AWAY) == [[1, 2, ""], *([each, None, away] for each in (2, 3, 4))]
    assert noted(tmp_path, BAD) == [[1, 2, ""]]
    assert noted(tmp_path, FINE) == [[1, 2, ""]]
    (letter,) = kafka.records("orders.dlq", at_least=1)
    headers = dict(letter.headers() or [])
    assert (letter.key(), headers["keyshared.attempts"]) == (BAD, b"1")
    assert headers["keyshared.error.type"] == b"BadError"


def test_an_outage_costs_no_dead_letter_and_records_go_on_soon_after_it(
    kafka: EmbeddedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    """With one attempt: without the breaker every record would be a dead letter at once."""
    back = threading.Event()
    done: list[Any] = []

    def handle(record: Record) -> None:
        if record.value() == b"poison":
            raise DeadLetter("poison")
        if not back.is_set():
            raise AwayError("no answer")
        done.append(record.offset())

    kafka.produce("orders", [(f"key-{each}", "order") for each in range(500)])
    kafka.produce("orders", [("key-7", "poison")])
    app = KeyShared(
        kafka.conf("billing"),
        ["orders"],
        workers=4,
        dlq=True,
        retry={"attempts": 1},
        wait_on=[ConnectionError],
    )
    app.handler(handle)
    with running(app, timeout=60) as run:
        run._wait(lambda: "waits for a dependency" in caplog.text, "no outage was noticed")
        back.set()
        run.wait_settled()
    assert sorted(done) == list(range(500))
    assert [each.key() for each in kafka.records("orders.dlq", at_least=1)] == [b"key-7"]
    assert "goes on after" in caplog.text


def test_with_default_retries_a_port_that_is_closed_costs_no_dead_letter(
    kafka: EmbeddedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    """Records of many keys come all the time; the handler calls a service that goes away."""
    server = listening()
    address = server.getsockname()
    done: list[bytes] = []

    def handle(record: Record) -> None:
        socket.create_connection(address, 5).close()
        done.append(record.key())

    def write(first: int, count: int) -> None:
        kafka.produce("orders", [(f"key-{first + each}", "order") for each in range(count)])

    app = KeyShared(kafka.conf("billing"), ["orders"], workers=16, dlq=True, breaker=True)
    app.handler(handle)
    with running(app, timeout=60) as run:
        write(0, 400)
        run.wait_settled()
        server.close()
        write(400, 400)
        run._wait(lambda: "waits for a dependency" in caplog.text, "no outage was noticed")
        write(800, 400)
        run._wait(lambda: waiting(app), "the status does not say so")
        server = listening(address)
        run.wait_settled()
    server.close()
    assert len(done) == len(set(done)) == 1_200
    assert kafka.records("orders.dlq") == []


def waiting(app: KeyShared) -> bool:
    status = app.status()
    return status is not None and status.subscriptions[0].waiting is not None


def listening(address: tuple[str, int] = ("127.0.0.1", 0)) -> socket.socket:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(address)
    server.listen(1_024)
    return server

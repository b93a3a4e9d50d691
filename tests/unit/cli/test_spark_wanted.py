"""Apps for Spark: handlers that it cannot call are refused by name, and nothing is left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared import KeyShared
from kafka_keyshared.cli.spark_wanted import wanted_of
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.model import Record
from kafka_keyshared.spark.driver.run import SparkRunRequest
from tests.support.cli import in_process, own_modules

CONF = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}

MADE = """
from kafka_keyshared import KeyShared
app = KeyShared({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}, ["t"])
"""
BATCHES = f"""{MADE}
@app.batch_handler(size=10)
def store(records): ...
"""
COROUTINE = f"""{MADE}
@app.handler
async def fetch(record): ...
"""
OF_A_CLASS = f"""{MADE}
@app.batch_handler(size=10)
class Store:
    def handle(self, records): ...
"""

SHAPES = {
    "batches": (BATCHES, "app", (), "batch handler store: Spark calls a handler with one record"),
    "batches of a class": (OF_A_CLASS, "app", (), "batch handler Store: Spark calls a handler"),
    "its function alone": (BATCHES, "store", ("-t", "t"), "store takes several records at a time"),
    "its function, written down": (
        *(BATCHES, "store"),
        ("-t", "t", "--audit-log", "log"),
        "store takes several records at a time",
    ),
    "a coroutine": (COROUTINE, "app", (), "workers='asyncio:1000': Spark's tasks call a handler"),
    "no handler": (MADE, "app", (), "the app has no handler for Spark to call"),
    "members": (
        MADE.replace('["t"]', '["t"], workers="pull"'),
        *("app", ()),
        "workers='pull': Spark's tasks call a handler",
    ),
    "a server": (BATCHES, "store", ("--console-port", "0"), "--console-port: a run on Spark has"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_handler_that_spark_cannot_call_is_one_line_before_anything_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    shape: str,
) -> None:
    source, name, more, told = SHAPES[shape]
    (tmp_path / "shapes.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    named = ("-b", "127.0.0.1:1", "-g", "g") if name != "app" else ()
    with own_modules(tmp_path):
        ended = in_process(
            capsys, "spark", "run", f"shapes:{name}", "--app-dir", tmp_path, *named, *more
        )
    assert (ended.status, ended.out) == (2, "")
    (line,) = ended.err.splitlines()
    assert told in line


def an_app(**options: Any) -> KeyShared:
    app = KeyShared(CONF, ["t"], **options)
    app.handler(lambda record: None)
    return app


def test_a_program_that_has_batches_is_refused_as_the_command_line_is() -> None:
    app = KeyShared(CONF, ["t"], workers=2)

    @app.batch_handler(size=10)
    def store(records: list[Record]) -> None: ...

    with pytest.raises(ConfigError, match=r"batch handler .*store: Spark calls a handler with one"):
        wanted_of(app)
    by_hand: SparkRunRequest = replace(wanted_of(an_app()), settings=app.subscription)
    with pytest.raises(ConfigError, match="one record after the other"):
        by_hand.check()
    by_hand = replace(by_hand, settings=SubscriptionSettings(workers=("worker-0",)))
    by_hand.check()


EFFECTS: dict[str, tuple[dict[str, Any], str]] = {
    "http_port": ({"http_port": 0}, "http_port: no effect on Spark: a Spark run has no server"),
    "ack_timeout": ({"ack_timeout": 30.0}, "ack_timeout=30 s: no effect on Spark: a task waits"),
    "processes": ({"workers": "process:2"}, "ack_timeout=60 s: no effect on Spark"),
    "on_stuck": ({"on_stuck": "exit", "ack_timeout": 9}, "ack_timeout=9 s, on_stuck: no effect"),
    "stop_timeout": ({"stop_timeout": 60.0}, "stop_timeout: no effect on Spark: positions are"),
    "detach_after": (
        {"detach_after": 1.0},
        "detach_after: no effect on Spark: a task is one worker",
    ),
    "callbacks": (
        {"on_assign": lambda *_: None, "on_lost": lambda *_: None},
        "on_assign, on_lost: no effect on Spark: the driver has the partitions",
    ),
    "dlq_limit": ({"dlq": True, "dlq_limit": True}, "dlq_limit across workers: no effect"),
}


@pytest.mark.parametrize("what", EFFECTS)
def test_what_has_no_effect_on_spark_is_told(caplog: pytest.LogCaptureFixture, what: str) -> None:
    options, told = EFFECTS[what]
    wanted_of(an_app(**options)).check()
    (line,) = [each.getMessage() for each in caplog.records]
    assert line.startswith(told)


def test_an_app_that_says_nothing_special_is_taken_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wanted_of(an_app(workers=3, dlq=True, weights={"worker-1": 2.0})).check()
    assert caplog.records == []


def test_invariants_are_checked_where_the_app_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for checked in (False, True):
        assert wanted_of(an_app(check_invariants=checked)).check_invariants is checked


def test_handlers_get_decoded_records_there_too() -> None:
    """And the functions that decode travel with the handler."""
    seen: list[Any] = []
    app = KeyShared(CONF, ["t"], workers=1, value_deserializer=lambda data, _: data.decode())
    app.handler(lambda record: seen.append(record.value()))
    make: Callable[[], Any] = wanted_of(app).specs[0].make
    from kafka_keyshared.testing import record

    make().handle(record("k", b"text", topic="t"))
    assert seen == ["text"]

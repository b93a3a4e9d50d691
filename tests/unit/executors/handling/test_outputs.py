"""What a handler hands out, and that nothing of it goes nowhere."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared import Output
from kafka_keyshared.cli.output_sinks import checked_place, outputs_to, whole_place
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.executors.handling.handlers import maker
from kafka_keyshared.executors.handling.outcome_mapping import error_in
from kafka_keyshared.executors.handling.outputs import (
    OutputTarget,
    identity,
    outputs_taken,
    place_of,
)
from kafka_keyshared.model import Drop, Record
from kafka_keyshared.testing import record

RECORD = record("k", b"v", topic="orders", partition=3, offset=17)


class Taken:
    def __init__(self) -> None:
        self.values: list[Any] = []

    def __call__(self, _: Record, outputs: Sequence[Output]) -> None:
        self.values += [each.value for each in outputs]


@pytest.mark.parametrize(
    ("returned", "taken"),
    [
        (Output("a"), [b"a"]),
        ([Output("a"), Output(None)], [b"a", None]),
        ((Output(b"\xff"),), [b"\xff"]),
        ([], []),
    ],
)
def test_outputs_are_taken_and_the_record_is_done(returned: Any, taken: list[Any]) -> None:
    class Handler:
        """Says what it is."""

        def handle(self, _: Record) -> Any:
            return returned

    for handler in (lambda _: returned, Handler):
        take = Taken()
        made = maker(outputs_taken(handler, take))()
        assert made.handle(RECORD) is None
        assert take.values == taken
    assert outputs_taken(Handler, take).__doc__ == "Says what it is."


def test_outputs_of_a_coroutine_are_taken_aside() -> None:
    on: list[int] = []

    def take(_: Record, outputs: Sequence[Output]) -> None:
        on.append(threading.get_ident())

    async def handle(_: Record) -> Output:
        return Output("a")

    class Handler:
        async def handle(self, _: Record) -> Any:
            return [Output("a")]

    async def verdict(_: Record) -> Drop:
        return Drop()

    for handler in (handle, Handler):
        made = maker(outputs_taken(handler, take), "asyncio")()
        assert asyncio.run(made.handle(RECORD)) is None
    assert isinstance(asyncio.run(outputs_taken(verdict, take)(RECORD)), Drop)
    assert len(on) == 2
    assert threading.get_ident() not in on


def test_a_verdict_stays_a_verdict_and_what_raises_hands_out_nothing() -> None:
    take = Taken()
    assert isinstance(outputs_taken(lambda _: Drop(), take)(RECORD), Drop)

    def fail(_: Record) -> None:
        raise ValueError

    with pytest.raises(ValueError):
        outputs_taken(fail, take)(RECORD)
    assert take.values == []


def test_an_output_with_nowhere_to_go_is_a_failed_attempt() -> None:
    for returned in (Output("a"), [Output("a")]):
        error = error_in(returned)
        assert isinstance(error, TypeError)
        assert "nothing says where it is to go: give --outputs" in str(error)
    with pytest.raises(TypeError, match="something else in it"):
        error_in([Output("a"), "b"])


def test_an_output_is_bytes_or_text() -> None:
    made = Output("ä", "k", [("name", "ö"), ("none", None)])
    assert (made.value, made.key) == ("ä".encode(), b"k")
    assert made.headers == (("name", "ö".encode()), ("none", None))
    wrong: Any
    for wrong in ({"a": 1}, 5):
        with pytest.raises(TypeError, match="bytes, text or None"):
            Output(wrong)
        with pytest.raises(TypeError, match="bytes, text or None"):
            Output("v", wrong)
        with pytest.raises(TypeError, match="bytes, text or None"):
            Output("v", headers=[("h", wrong)])


def test_a_place_is_a_topic_or_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert place_of("topic:bills") == OutputTarget("topic", "bills")
    assert place_of("parquet:s3a://b/bills") == OutputTarget("parquet", "s3a://b/bills")
    assert place_of("bills") == place_of("json:bills") == OutputTarget("json", "bills")
    assert place_of("s3a://b/bills") == OutputTarget("json", "s3a://b/bills")
    for wrong in ("", "topic:", "parquet:"):
        with pytest.raises(ConfigError, match="--outputs"):
            place_of(wrong)
    monkeypatch.chdir(tmp_path)
    assert whole_place(place_of("bills")).name == str(tmp_path / "bills")
    for same in (place_of("topic:bills"), place_of("parquet:s3a://b/bills")):
        assert whole_place(same) == same
    with pytest.raises(ConfigError, match="the handler reads that topic"):
        checked_place("topic:orders", {}, ["orders"])


def test_a_pod_writes_json_lines_that_name_the_record(tmp_path: Path) -> None:
    place = place_of(str(tmp_path / "bills"))
    with outputs_to(place, {}) as take:
        take(RECORD, [Output('{"a": 1}', "k", [("h", "1")]), Output(None)])
        (file,) = (tmp_path / "bills").iterdir()
        lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines == [
        {
            "output": "orders-3@17/0",
            "key": {"text": "k"},
            "value": {"json": {"a": 1}},
            "headers": [{"name": "h", "value": {"text": "1"}}],
        },
        {"output": "orders-3@17/1", "key": None, "value": None, "headers": []},
    ]
    assert lines[0]["output"] == identity(RECORD, 0)


def test_a_place_that_a_pod_cannot_write_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ConfigError, match="give a writable folder"),
        outputs_to(place_of(str(tmp_path / "file")), {}),
    ):
        pass
    with (
        pytest.raises(ConfigError, match="too late for a record of a pod"),
        outputs_to(place_of("parquet:x"), {}),
    ):
        pass

"""``keyshared config``: what is in force, what cannot work, and the schema; never a broker."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from confluent_kafka import Consumer

from kafka_keyshared.client import probe
from kafka_keyshared.client import standalone as outsider
from kafka_keyshared.config.secrets import MASK
from tests.support.cli import Ended, in_process, own_modules
from tests.support.setting_values import GIVEN, SETTINGS, as_toml

HANDLERS = """
print("imported")
from kafka_keyshared import KeyShared

def handle(record): ...

def two(one, other): ...

def on_error(error): ...

app = KeyShared(
    {
        "bootstrap.servers": "127.0.0.1:1",
        "group.id": "g",
        "sasl.password": "hunter2",
        "error_cb": on_error,
    },
    ["t"],
    workers=3,
)
"""
COMPLETE = ("-b", "127.0.0.1:1", "-g", "g", "-t", "t")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with handlers and a file; nothing that a command sets up outlives the test."""
    (tmp_path / "handlers_of_config.py").write_text(HANDLERS)
    (tmp_path / "keyshared.toml").write_text(as_toml({**GIVEN, "retry.attempts": 3}))
    monkeypatch.chdir(tmp_path)
    logger = logging.getLogger("kafka_keyshared")
    handlers, level = list(logger.handlers), logger.level
    with own_modules(tmp_path):
        yield tmp_path
    logger.handlers, logger.level = handlers, level


def _json(ended: Ended) -> Any:
    return json.loads(ended.out)


# --- show ---


def test_show_prints_every_setting_with_its_origin(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEYSHARED_WORKERS", "8")
    monkeypatch.setenv("KEYSHARED_KAFKA_FETCH_MIN_BYTES", "2")
    arguments = ("config", "show", "--config", "keyshared.toml", "-g", "mine", "-X", "debug=cgrp")
    ended = in_process(capsys, *arguments, "--json")
    assert (ended.status, ended.err) == (0, "")
    shown = _json(ended)
    assert list(shown["settings"]) == list(SETTINGS)
    assert shown["settings"]["workers"] == {"value": 8, "origin": "KEYSHARED_WORKERS"}
    assert shown["settings"]["group"] == {"value": "mine", "origin": "-g"}
    assert shown["settings"]["bootstrap"] == {"value": "x:1", "origin": "keyshared.toml"}
    attempts = {"value": 3, "origin": "[retry] in keyshared.toml"}
    assert shown["settings"]["retry.attempts"] == attempts
    assert shown["settings"]["stop_timeout"] == {"value": 25.0, "origin": "default"}
    assert shown["kafka"]["debug"] == {"value": "cgrp", "origin": "-X"}
    assert shown["kafka"]["fetch.wait.max.ms"] == {"value": 50, "origin": "default"}
    variable = "KEYSHARED_KAFKA_FETCH_MIN_BYTES"
    assert shown["kafka"]["fetch.min.bytes"] == {"value": "2", "origin": variable}
    assert yaml.safe_load(in_process(capsys, *arguments, "-o", "yaml").out) == shown
    table = in_process(capsys, *arguments).out
    for text in ("KEYSHARED_WORKERS", "[retry] in keyshared.toml", "not set", "false", "debug"):
        assert text in table


def test_the_environment_names_the_file_and_a_flag_another(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "other.toml").write_text("workers = 5")
    monkeypatch.setenv("KEYSHARED_CONFIG", "keyshared.toml")
    shown = _json(in_process(capsys, "config", "show", "--json"))
    assert shown["settings"]["topics"] == {"value": ["t"], "origin": "keyshared.toml"}
    shown = _json(in_process(capsys, "config", "show", "--json", "--config", "other.toml"))
    assert shown["settings"]["topics"] == {"value": [], "origin": "default"}
    assert shown["settings"]["workers"] == {"value": 5, "origin": "other.toml"}


def test_a_flag_that_is_not_given_takes_nothing_away(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {**GIVEN, "dlq": True, "dlq_create": True, "http_port": 8787, "workers": 3}
    (place / "full.toml").write_text(as_toml(values))
    shown = _json(in_process(capsys, "config", "show", "--json", "--config", "full.toml"))
    for name, value in values.items():
        assert shown["settings"][name] == {"value": value, "origin": "full.toml"}


def test_show_of_an_app_shows_its_own_settings(capsys: pytest.CaptureFixture[str]) -> None:
    ended = in_process(capsys, "config", "show", "handlers_of_config:app", "--json")
    shown = _json(ended)
    origin = "handlers_of_config:app"
    assert shown["settings"]["workers"] == {"value": 3, "origin": origin}
    assert shown["settings"]["topics"] == {"value": ["t"], "origin": origin}
    assert shown["settings"]["http_port"] == {"value": None, "origin": "default"}
    assert shown["kafka"]["sasl.password"] == {"value": MASK, "origin": origin}
    assert shown["kafka"]["error_cb"] == {"value": "on_error", "origin": origin}
    assert shown["kafka"]["fetch.wait.max.ms"]["origin"] == "default"
    assert "imported" in ended.err


def test_show_refuses_what_a_run_would(capsys: pytest.CaptureFixture[str]) -> None:
    ended = in_process(capsys, "config", "show", "--workers", "0")
    assert (ended.status, ended.out) == (2, "")
    assert "workers is from --workers" in ended.err


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
@pytest.mark.parametrize("source", ["file", "environment", "flag"])
def test_no_output_shows_a_secret(
    place: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    output: str,
) -> None:
    secrets = {
        "sasl.password": "hunter2-a",
        "ssl.key.pem": "hunter2-b",
        "sasl.oauthbearer.client.secret": "hunter2-c",
        "sasl.oauthbearer.config": "principal=me secret=hunter2-d",
    }
    flags: list[str] = ["-X", "sasl.username=me", "-o", output]
    for name, value in secrets.items():
        if source == "environment":
            variable = f"KEYSHARED_KAFKA_{name.upper().replace('.', '_')}"
            monkeypatch.setenv(variable, value)
        elif source == "flag":
            flags += ["-X", f"{name}={value}"]
    if source == "file":
        table = as_toml({}) + "\n".join(f'"{name}" = "{each}"' for name, each in secrets.items())
        (place / "secret.toml").write_text(f"[kafka]\n{table}\n")
        flags += ["--config", "secret.toml"]
    shown = in_process(capsys, "config", "show", *flags)
    assert shown.status == 0
    assert shown.out.count(MASK) == len(secrets)
    checked = in_process(capsys, "config", "check", *COMPLETE, *flags)
    broken = in_process(capsys, "config", "check", *COMPLETE, *flags, "-X", "debug=nothing")
    assert broken.status == 2
    for text in (*shown, *checked, *broken):
        assert "hunter2" not in str(text)


@pytest.mark.parametrize(
    "pair", ["sasl.password:hunter2", "sasl.password hunter2", "=hunter2", "sasl.pasword=hunter2"]
)
def test_a_mistyped_flag_does_not_show_the_secret_in_it(
    capsys: pytest.CaptureFixture[str], pair: str
) -> None:
    ended = in_process(capsys, "config", "check", *COMPLETE, "-X", pair)
    assert ended.status == 2
    assert "hunter2" not in ended.err


# --- check ---


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A port that hears of everybody who connects to it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def test_check_needs_no_broker_and_asks_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, listener: socket.socket
) -> None:
    made: list[dict[str, Any]] = []

    class Watched(Consumer):
        def __init__(self, conf: dict[str, Any]) -> None:
            made.append(conf)
            super().__init__(conf)

    monkeypatch.setattr(outsider, "Consumer", Watched)
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    ended = in_process(
        capsys,
        *("config", "check", "handlers_of_config:handle", "--config", "keyshared.toml"),
        *("-b", address, "--dlq", "auto"),
    )
    assert ended.status == 0
    assert ended.out.startswith("ok: ")
    # It could connect later than this test can wait for.
    assert made
    assert address not in str(made)
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_check_tells_all_that_a_run_would_refuse(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "wrong.toml").write_text('topics = ["t"]\nwrkers = 1\n[retry]\nattempts = 0\n')
    monkeypatch.setenv("KEYSHARED_ON_STUCK", "explode")
    arguments = (
        *("config", "check", "handlers_of_config:two", "--config", "wrong.toml"),
        *("-g", "g", "-X", "enable.auto.commit=true", "-X", "acks=1"),
    )
    ended = in_process(capsys, *arguments, "--json")
    assert ended.status == 2
    told = _json(ended)
    assert told["ok"] is False
    assert [each["settings"] for each in told["faults"]] == [
        ["wrkers"],
        ["retry.attempts"],
        ["on_stuck"],
        ["enable.auto.commit"],
        ["bootstrap"],
        ["handler"],
    ]
    origins = {"retry.attempts": "from [retry] in wrong.toml"}
    assert told["faults"][1]["origins"] == origins
    names, acks = told["notes"]
    assert names.startswith("the settings are workers, dlq, ")
    assert acks == "acks has an effect on producers only"
    text = in_process(capsys, *arguments)
    assert text.out == ""
    assert "6 settings cannot be used:" in text.err
    assert "note: acks has an effect on producers only" in text.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no broker is named: give -b host:port, bootstrap in the file, or KEYSHARED_BOOTSTR"),
        ((*COMPLETE, "--config", "none.toml"), "none.toml: No such file"),
        ((*COMPLETE, "--dlq", "t"), "the dead letters of 't' would go to 't'"),
        ((*COMPLETE, "--dlq-create"), "dlq_create is from --dlq-create, dlq is the default"),
        ((*COMPLETE, "-X", "fetch.max.bytes=1000"), "fetch.max.bytes is from -X"),
        (
            (*COMPLETE, "-X", "security.protocol=SSL", "-X", "ssl.ca.location=/none.pem"),
            "ssl.ca.location is from -X",
        ),
        (
            (*COMPLETE, "-X", "security.protocol=SASL_SSL", "-X", "sasl.mechanism=FOO"),
            "Unsupported SASL mechanism: FOO",
        ),
        (("handlers_of_config:two", *COMPLETE), "handler two(one, other)"),
        (("handlers_of_config:none", *COMPLETE), "has no 'none'"),
        (("handlers_of_config:app", "-g", "g"), "leave out -g"),
    ],
)
def test_check_refuses_what_a_run_would(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    said: str,
) -> None:
    Path("keyshared.toml").unlink()
    ended = in_process(capsys, "config", "check", *arguments)
    assert (ended.status, ended.out) == (2, "")
    assert said in ended.err
    handler = () if arguments and ":" in arguments[0] else ("handlers_of_config:handle",)
    monkeypatch.setattr(probe.require_broker, "__defaults__", (0.2,))
    ran = in_process(capsys, "run", *handler, *arguments)
    assert ran.status == 2
    assert said in ran.err


def test_check_of_an_app_looks_at_its_own_settings(capsys: pytest.CaptureFixture[str]) -> None:
    ended = in_process(capsys, "config", "check", "handlers_of_config:app", "-o", "yaml")
    assert ended.status == 0
    assert yaml.safe_load(ended.out) == {"ok": True, "faults": [], "notes": []}


# --- schema, and what a run does with the environment ---


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    ended = in_process(capsys, "config", "schema")
    schema = _json(ended)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert ended.err == ""
    assert schema["properties"]["workers"]["description"]


def test_a_run_takes_its_settings_from_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe.require_broker, "__defaults__", (0.2,))
    monkeypatch.setenv("KEYSHARED_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setenv("KEYSHARED_GROUP", "g")
    monkeypatch.setenv("KEYSHARED_TOPICS", "t")
    ended = in_process(capsys, "run", "handlers_of_config:handle")
    assert ended.status == 1
    assert "no broker answered at 127.0.0.1:1" in ended.err
    monkeypatch.setenv("KEYSHARED_STOP_TIMEOUT", "soon")
    ended = in_process(capsys, "run", "handlers_of_config:handle")
    assert ended.status == 2
    assert "stop_timeout is from KEYSHARED_STOP_TIMEOUT" in ended.err


def test_a_run_of_an_app_warns_of_variables_that_it_may_not_have_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe.require_broker, "__defaults__", (0.2,))
    ended = in_process(capsys, "run", "handlers_of_config:app")
    assert "has its own settings" not in ended.err
    monkeypatch.setenv("KEYSHARED_WORKERS", "hunter2")
    ended = in_process(capsys, "run", "handlers_of_config:app")
    assert ended.status == 1
    assert "handlers_of_config:app has its own settings" in ended.err
    assert "KEYSHARED_WORKERS" in ended.err
    assert "hunter2" not in ended.err


@pytest.mark.parametrize(("flags", "status"), [((), 0), (("--workers", "4"), 2)])
def test_a_coroutine_function_fits_where_no_workers_are_given(
    place: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], status: int
) -> None:
    (place / "waits_of_config.py").write_text("async def handle(record): ...\n")
    ended = in_process(capsys, "config", "check", "waits_of_config:handle", *COMPLETE, *flags)
    assert ended.status == status
    assert ("'async def', and the workers are threads" in ended.err) is bool(flags)

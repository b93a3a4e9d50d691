"""What every verb's help has, and the flags that stand for settings."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared.cli.arguments import RunArguments
from kafka_keyshared.cli.output import start_logging
from kafka_keyshared.cli.run import gather
from kafka_keyshared.client import probe
from kafka_keyshared.client.port import CommittedOffset
from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract.facts import AttemptFailed
from kafka_keyshared.core.contract.outcomes import Disposition, Failure
from kafka_keyshared.model import About
from tests.setup.cli_page import verbs
from tests.support.cli import in_process, own_modules
from tests.support.loop_ports import Stage
from tests.support.records import P0, record

COMPLETE = ("-b", "127.0.0.1:1", "-g", "g", "-t", "t")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a handler, in which everything runs; a log that is left as it was."""
    (tmp_path / "handlers_of_flags.py").write_text("def handle(record): ...\n")
    monkeypatch.chdir(tmp_path)
    # The constant is bound as a default already.
    monkeypatch.setattr(probe.require_broker, "__defaults__", (0.2,))
    logger = logging.getLogger("kafka_keyshared")
    handlers, level = list(logger.handlers), logger.level
    logger.handlers = []
    with own_modules(tmp_path):
        yield tmp_path
    logger.handlers, logger.level = handlers, level


@pytest.mark.parametrize("words", ["", "dlq", *verbs()])
def test_every_help_comes_for_h_and_names_values_in_words(
    capsys: pytest.CaptureFixture[str], words: str
) -> None:
    short = in_process(capsys, *words.split(), "-h")
    assert (short.status, short.err) == (0, "")
    assert short.out == in_process(capsys, *words.split(), "--help").out
    assert "-h, --help" in short.out
    assert not re.search(r"--?\S+ <(str|int|float|path|list)", short.out)


def settings(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    shown = in_process(capsys, "config", "show", *arguments, "-o", "json")
    assert shown.status == 0, shown.err
    found: dict[str, Any] = json.loads(shown.out)
    return found


def test_attempts_and_poison_are_flags_and_win_over_the_file(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "some.toml").write_text("on_exhausted = 'block'\n[retry]\nattempts = 9\n")
    flags = ("--config", "some.toml", "--attempts", "3", "--on-exhausted", "drop")
    found = settings(capsys, *COMPLETE, *flags)["settings"]
    assert found["retry.attempts"] == {"value": 3, "origin": "--attempts"}
    assert found["on_exhausted"] == {"value": "drop", "origin": "--on-exhausted"}


def test_how_keys_change_hands_is_said_by_flags(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--unblocking-interval", "0.5", "--new-workers-wait")
    found = settings(capsys, *COMPLETE, *flags)["settings"]
    assert found["unblocking_interval"] == {"value": 0.5, "origin": "--unblocking-interval"}
    assert found["new_workers_wait"] == {"value": True, "origin": "--new-workers-wait"}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--attempts", "0"), "retry.attempts"),
        (("--unblocking-interval", "-1"), "unblocking_interval"),
        (("--on-exhausted", "ignore"), "on_exhausted"),
        (("--from-beginning", "-X", "auto.offset.reset=latest"), "give one of them"),
    ],
)
def test_what_they_cannot_be_is_refused(
    capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], said: str
) -> None:
    ended = in_process(capsys, "run", "handlers_of_flags:handle", *COMPLETE, *flags)
    assert ended.status == 2
    assert said in ended.err


def test_from_beginning_is_what_the_client_calls_earliest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for flags in (("--from-beginning",), ("--from-beginning", "-X", "auto.offset.reset=earliest")):
        client = settings(capsys, *COMPLETE, *flags)["kafka"]
        assert client["auto.offset.reset"] == {"value": "earliest", "origin": "--from-beginning"}


def test_the_settings_of_the_folder_are_found_and_named_and_others_come_first(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "keyshared.toml").write_text("workers = 3\n")
    (place / "other.toml").write_text("workers = 5\n")
    assert settings(capsys, *COMPLETE)["settings"]["workers"] == {
        "value": 3,
        "origin": "keyshared.toml",
    }
    ended = in_process(capsys, "run", "handlers_of_flags:handle", *COMPLETE)
    assert "using the settings of keyshared.toml in this folder" in ended.err.split("\n")[0]
    ended = in_process(
        capsys, "run", "handlers_of_flags:handle", *COMPLETE, "--config", "other.toml"
    )
    assert "in this folder" not in ended.err
    monkeypatch.setenv("KEYSHARED_CONFIG", "other.toml")
    assert settings(capsys, *COMPLETE)["settings"]["workers"]["value"] == 5


def test_a_log_for_a_collector_has_an_object_in_each_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    start_logging("warning", "json")
    log = logging.getLogger("kafka_keyshared.test")
    log.info("not said")
    try:
        [].pop()
    except IndexError:
        log.exception("it broke\nin two %s", "lines")
    (line,) = capsys.readouterr().err.strip().split("\n")
    told = json.loads(line)
    assert told["level"] == "error"
    assert told["logger"] == "kafka_keyshared.test"
    assert told["message"] == "it broke\nin two lines"
    assert told["traceback"].endswith("IndexError: pop from empty list")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d", told["time"])


def test_the_form_and_the_level_of_the_log_come_from_the_environment_unless_a_flag_says_them(
    capsys: pytest.CaptureFixture[str], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "keyshared.toml").write_text("workers = 3\n")
    monkeypatch.setenv("KEYSHARED_LOG_FORMAT", "json")
    run = ("run", "handlers_of_flags:handle", *COMPLETE)
    first = in_process(capsys, *run).err.split("\n")[0]
    assert json.loads(first)["message"].startswith("using the settings of keyshared.toml")
    flagged = in_process(capsys, *run, "--log-format", "text").err
    assert "INFO kafka_keyshared.cli: using the settings of" in flagged
    monkeypatch.setenv("KEYSHARED_LOG_LEVEL", "error")
    assert "settings of" not in in_process(capsys, *run).err
    monkeypatch.setenv("KEYSHARED_LOG_FORMAT", "xml")
    refused = in_process(capsys, *run)
    assert refused.status == 2
    assert "KEYSHARED_LOG_FORMAT" in refused.err and "xml" in refused.err


def test_a_failed_attempt_is_one_line_with_its_traceback_and_its_record_apart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stage = Stage()
    stage.client.stored[P0] = CommittedOffset(0, None)
    stage.fill(record(7, "caf\u00e9"))
    stage.assign()
    start_logging("warning", "json")
    stage.step()
    stack = '  File "/app/app.py", line 12, in handle\n    charge()\n'
    failure = Failure(Disposition.ERROR, "KeyError", "'id'", stack, 0, where="app.py:12")
    stage.work({7: failure})
    stage.step()
    (line,) = capsys.readouterr().err.strip().split("\n")
    told = json.loads(line)
    del told["time"]
    assert told == {
        "level": "warning",
        "logger": "kafka_keyshared.loop",
        "message": "orders-0@7 (key b'caf\\xc3\\xa9'), attempt 1 of 5: KeyError at app.py:12: "
        "'id'; it runs again in 0.1 s",
        "topic": "orders",
        "partition": 0,
        "offset": 7,
        "key": "caf\u00e9",
        "traceback": f"Traceback (most recent call last):\n{stack}KeyError: 'id'",
    }


def test_a_line_for_a_person_has_the_traceback_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    start_logging()
    failure = Failure(Disposition.ERROR, "KeyError", "", "  here\n", 0, where="app.py:12")
    fact = AttemptFailed(About(P0, 7), 1, 5, failure, Disposition.RETRY, 0.1, traceback=True)
    Stage().loop.act([cmd.Notice(fact)])
    first, *more = capsys.readouterr().err.strip().split("\n")
    assert "WARNING kafka_keyshared.loop: orders-0@7 (no key), attempt 1 of 5: KeyError" in first
    assert more == ["Traceback (most recent call last):", "  here", "KeyError"]


def test_weights_of_the_ring_come_from_a_file(
    capsys: pytest.CaptureFixture[str], place: Path
) -> None:
    (place / "weights.json").write_text('{"weights": {"worker-0": 2.5}}')
    layers = gather(RunArguments(ring_weights=place / "weights.json"))
    assert layers.options["weights"] == {"worker-0": 2.5}
    (place / "weights.json").write_text('{"weights": {"worker-0": -1}}')
    refused = in_process(capsys, "config", "check", *COMPLETE, "--ring-weights", "weights.json")
    assert refused.status == 2
    assert "--ring-weights" in refused.err

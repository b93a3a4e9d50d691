"""A log of the user's that raises brings nothing down, and the line is still seen."""

from __future__ import annotations

import io
import json
import logging
import logging.config
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared import logs
from kafka_keyshared.client.port import CommittedOffset
from kafka_keyshared.core.contract.commands import Notice
from kafka_keyshared.core.contract.facts import WorkersAllLeft
from kafka_keyshared.logs import JsonFormatter, check_logging, log_of
from tests.support.loop_ports import Stage
from tests.support.records import P0, record


class RaisingHandler(logging.Handler):
    """What a handler that posts lines somewhere may do without ever calling ``handleError``."""

    def handle(self, record: logging.LogRecord) -> bool:
        raise ConnectionError(record.name)


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise KeyError("no text")


@contextmanager
def handled_by(handler: logging.Handler) -> Iterator[None]:
    logger = logging.getLogger("kafka_keyshared")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def test_a_handler_that_raises_ends_nothing_and_the_line_goes_to_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with handled_by(RaisingHandler()):
        log_of("kafka_keyshared.test").warning("%d records of %s wait", 3, "orders")
    assert capsys.readouterr().err == (
        "WARNING kafka_keyshared.test: 3 records of orders wait (the log raised ConnectionError)\n"
    )


def test_a_line_that_cannot_be_put_into_words_ends_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with handled_by(RaisingHandler()):
        log_of("kafka_keyshared.test").error("failed: %s", UnspeakableError())
    assert "(a line that cannot be put into words: KeyError)" in capsys.readouterr().err


def test_without_standard_error_nothing_is_said_and_nothing_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed = io.StringIO()
    closed.close()
    with handled_by(RaisingHandler()):
        for gone in (closed, None):
            monkeypatch.setattr(sys, "stderr", gone)
            log_of("kafka_keyshared.test").error("nobody hears this")
    assert closed.closed


def test_the_owner_goes_on_when_its_log_raises(capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage()
    stage.client.stored[P0] = CommittedOffset(0, None)
    stage.fill(record(0))
    stage.assign()
    with handled_by(RaisingHandler()):
        stage.loop.act([Notice(WorkersAllLeft(["odd-0"]))])
        stage.step()
        assert stage.work() == [0]
    assert "at the next start (the log raised ConnectionError)" in capsys.readouterr().err


def test_a_line_names_the_code_that_wrote_it(caplog: pytest.LogCaptureFixture) -> None:
    log = log_of("kafka_keyshared.test")
    with caplog.at_level(logging.INFO, "kafka_keyshared.test"):
        log.info("through a name")
        log.log(logging.INFO, "directly")
    assert {each.funcName for each in caplog.records} == {
        "test_a_line_names_the_code_that_wrote_it"
    }


def test_a_traceback_goes_along(caplog: pytest.LogCaptureFixture) -> None:
    try:
        str(UnspeakableError())
    except KeyError:
        log_of("kafka_keyshared.test").exception("it failed")
    assert 'raise KeyError("no text")' in caplog.text


# --- for a collector ---


def made(**more: Any) -> dict[str, Any]:
    """A line as a collector gets it."""
    line = logging.LogRecord("shop", logging.INFO, "", 0, "charged %s", ("17",), None)
    vars(line).update(more)
    text = JsonFormatter().format(line)
    assert "\n" not in text
    told: dict[str, Any] = json.loads(text)
    assert told.pop("time")
    return told


def test_a_line_for_a_collector_has_whatever_it_was_logged_with() -> None:
    assert made(order=17, amount=9.5, tags=["a"]) == {
        "level": "info",
        "logger": "shop",
        "message": "charged 17",
        "order": 17,
        "amount": 9.5,
        "tags": ["a"],
    }


def test_what_it_was_logged_with_takes_the_place_of_nothing() -> None:
    assert made(level="loud", logger="mine")["level"] == "info"


class Unspeakable:
    def __str__(self) -> str:
        raise KeyError("no text")


def test_what_is_no_json_becomes_text_and_what_has_no_text_says_so() -> None:
    assert made(place=Path("a/b"))["place"] == "a/b"
    assert made(place=Unspeakable())["place"] == "(a Unspeakable that cannot be shown: KeyError)"


def test_a_line_that_cannot_be_formatted_is_still_a_line() -> None:
    line = logging.LogRecord("shop", logging.INFO, "", 0, "%d records", ("many",), None)
    told = json.loads(JsonFormatter().format(line))
    assert told["message"] == "(a line that cannot be put into words: TypeError)"


# --- loggers that are switched off ---


@pytest.fixture
def as_before() -> Iterator[None]:
    """Leave the loggers as they were."""
    ours = [*logs._loggers.values(), logging.getLogger("kafka_keyshared"), logging.getLogger()]
    before = [(each, each.disabled, each.level, each.handlers[:]) for each in ours]
    said, disable = set(logs._said), logging.root.manager.disable
    logs._said.clear()  # a simulation in the same process has had the log off
    yield
    for each, disabled, level, handlers in before:
        each.disabled = disabled
        each.setLevel(level)
        each.handlers[:] = handlers
    logs._said.clear()
    logs._said.update(said)
    logging.disable(disable)


def configured(**more: Any) -> io.StringIO:
    """Configure logging as programs do, after the package was imported."""
    stream = io.StringIO()
    handler = {"class": "logging.StreamHandler", "stream": stream}
    root = {"level": "INFO", "handlers": ["h"]}
    logging.config.dictConfig({"version": 1, "handlers": {"h": handler}, "root": root, **more})
    return stream


@pytest.mark.usefixtures("as_before")
@pytest.mark.parametrize("when", ["at a check", "at a line"])
def test_loggers_that_dict_config_has_disabled_are_enabled_again_and_that_is_said(
    when: str,
) -> None:
    log = log_of("kafka_keyshared.loop")
    stream = configured()
    assert log.logger.disabled, "which is what dictConfig does"
    if when == "at a check":
        check_logging()
    log.error("a key is blocked")
    log.error("another one is")
    check_logging()
    first, *others = stream.getvalue().splitlines()
    assert "disable_existing_loggers" in first
    assert others == ["a key is blocked", "another one is"]


@pytest.mark.usefixtures("as_before")
def test_a_configuration_that_leaves_them_alone_is_not_talked_about() -> None:
    stream = configured(disable_existing_loggers=False)
    check_logging()
    assert not stream.getvalue()
    stream = configured(loggers={"kafka_keyshared": {"level": "WARNING"}})
    check_logging()
    assert not stream.getvalue()


@pytest.mark.usefixtures("as_before")
def test_a_logger_that_somebody_has_disabled_alone_stays_so() -> None:
    stream = configured(disable_existing_loggers=False)
    quiet = log_of("kafka_keyshared.rebalance")
    quiet.logger.disabled = True
    quiet.error("assigned")
    check_logging()
    assert quiet.logger.disabled
    assert not stream.getvalue()


def _off_by_level() -> None:
    logging.getLogger("kafka_keyshared").setLevel(logging.CRITICAL + 1)


def _off_by_the_root() -> None:
    logging.getLogger("kafka_keyshared").setLevel(logging.NOTSET)
    logging.getLogger().setLevel(1_000)


@pytest.mark.usefixtures("as_before")
@pytest.mark.parametrize(
    ("switch_off", "why"),
    [
        (_off_by_level, "the level of the logger 'kafka_keyshared' is 51, above CRITICAL"),
        (_off_by_the_root, "the level of the logger 'root' is 1000, above CRITICAL"),
        (logging.disable, "logging.disable(50) is in force"),
    ],
)
def test_a_log_that_is_off_is_said_once_on_standard_error(
    switch_off: Callable[[], None], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check_logging()
    assert not capsys.readouterr().err
    switch_off()
    for _ in range(3):
        check_logging()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("kafka_keyshared: nothing is logged, not even blocked keys or a stop: ")
    assert why in line

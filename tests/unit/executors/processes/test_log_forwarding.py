"""What is logged in a worker's process comes home, or is counted where it comes too fast."""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared.executors.processes.log_forwarding import (
    LONGEST,
    Homecoming,
    Homeward,
    levels,
    only,
    send_home,
)
from tests.support.handler_pipe import PLACE, Told
from tests.unit.executors.processes.test_pool import WAIT, WORKER, Bench

NAME = "tests.painter"
MANY = 5_000
TOKEN = b"-tested-"
SOON = 20.0
"""Seconds after which whoever still logs waits for somebody."""


def handle(item: Any) -> None:
    """Log as the value says."""
    log = logging.getLogger(NAME)
    if item.value() == b"fail":
        try:
            int("no paint")
        except ValueError:
            log.exception("picture %d", 7)
    if item.value() == b"exit":
        log.warning("the end")
        os._exit(1)
    log.debug("not asked for")
    log.info("picture of %s", item.key().decode(), extra={"topic": item.topic(), "own": object()})


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    logging.getLogger(NAME).setLevel(logging.INFO)
    monkeypatch.setenv(PLACE, str(tmp_path / "told"))
    told = Told(tmp_path / "told")
    found = Bench(handle, told)
    yield found
    assert found.pool.stop(WAIT) == []
    told.close()
    logging.getLogger(NAME).setLevel(logging.NOTSET)


def painted(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [each for each in caplog.records if each.name == NAME]


def test_a_line_of_a_process_is_a_line_of_its_logger_here(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """With its level, worker, place and time; below what is wanted here nothing is sent."""
    pid = bench.pool.cells[WORKER].process.pid  # type: ignore[attr-defined]
    bench.run("")
    assert bench.pool.stop(WAIT) == []
    (line,) = painted(caplog)
    assert (line.levelname, line.getMessage()) == ("INFO", "picture of key-0")
    assert (line.threadName, line.process) == ("keyshared-default-worker-0", pid)
    assert (line.filename, line.funcName) == ("test_log_forwarding.py", "handle")
    assert (line.topic, hasattr(line, "own")) == ("orders", False)  # type: ignore[attr-defined]


def test_a_traceback_comes_home_with_its_line(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.run("fail")
    assert bench.pool.stop(WAIT) == []
    line, _ = painted(caplog)
    assert (line.levelname, line.getMessage()) == ("ERROR", "picture 7")
    assert logging.Formatter().format(line).endswith("'no paint'")


def test_the_last_line_of_a_process_that_dies_comes_home_before_its_end_is_told(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.submit("exit")
    bench.gone()
    assert [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING] == [
        "the end",
        "worker-0: the worker's process ended while it was running: exit status 1; another one is "
        "started",
    ]


def test_lines_that_come_too_fast_are_counted_and_nobody_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nobody reads at first, so whoever waited would wait for ever."""
    caplog.set_level(logging.INFO, NAME)
    lines, logged = multiprocessing.Pipe(duplex=False)
    home = Homeward(logged, TOKEN)

    def flood() -> None:
        for number in range(MANY):
            text = "%d" + "x" * 80
            home.handle(logging.LogRecord(NAME, logging.INFO, "", 0, text, (number,), None))

    logs = threading.Thread(target=flood, daemon=True)
    logs.start()
    logs.join(SOON)
    waits = logs.is_alive()
    came = Homecoming("worker-3", lines, TOKEN)  # or whoever waits would keep this run from its end
    logs.join()
    assert not waits
    while home._left_out or home._rest:
        home.flush()
    logged.close()
    came.end()
    numbers = [int(each.getMessage().rstrip("x")) for each in painted(caplog)]
    assert numbers == [*range(len(numbers))]
    assert 0 < len(numbers) < MANY
    (told,) = [each.getMessage() for each in caplog.records if each.name != NAME]
    assert told == (
        f"worker-3: {MANY - len(numbers):,} log lines of its process are dropped so far: they "
        "come faster than this process writes them"
    )


def test_a_line_that_is_too_long_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, NAME)
    lines, logged = multiprocessing.Pipe(duplex=False)
    came = Homecoming("worker-3", lines, TOKEN)
    home = Homeward(logged, TOKEN)
    home.handle(logging.LogRecord(NAME, logging.INFO, "", 0, "x" * 1_000_000, None, None))
    while home._rest:
        home.flush()
    logged.close()
    came.end()
    (line,) = painted(caplog)
    assert line.getMessage() == "x" * LONGEST + "... (1,000,000 characters)"


def test_a_log_handler_that_raises_ends_nothing(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    class Raises(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            raise OSError(record.name)

    raises = Raises()
    logging.getLogger(NAME).addHandler(raises)
    try:
        bench.run("", "")
        assert bench.pool.stop(WAIT) == []
    finally:
        logging.getLogger(NAME).removeHandler(raises)
    line = f"INFO {NAME}: picture of key-%d (the log raised OSError)\n"
    assert capsys.readouterr().err == line % 0 + line % 1


def test_where_lines_went_in_the_parent_they_do_not_go_in_the_process() -> None:
    root, before, level = logging.getLogger(), logging.getLogger().handlers[:], levels()
    _, logged = multiprocessing.Pipe(duplex=False)
    try:
        home = send_home(logged, TOKEN, {None: logging.ERROR, NAME: logging.DEBUG})
        root.addHandler(logging.StreamHandler())
        only(home)
        assert root.handlers == [home]
        assert (levels()[None], levels()[NAME]) == (logging.ERROR, logging.DEBUG)
    finally:
        root.handlers[:] = before
        root.setLevel(level[None])
        logging.getLogger(NAME).setLevel(logging.NOTSET)

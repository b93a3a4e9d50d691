"""Runs the command line, in this process or as a user does."""

from __future__ import annotations

import logging
import os
import pty
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, NamedTuple, Self
from unittest.mock import patch

import pytest
import typer.main

from kafka_keyshared.cli import app
from tests.support.command_output import Lines, drawn_on

# All verbs and their options are built once, and not once for each of hundreds of commands.
_BUILT_ONCE = cache(typer.main.get_command)

KEYSHARED = (sys.executable, "-m", "kafka_keyshared.cli")


class Ended(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


@contextmanager
def own_modules(place: Path) -> Iterator[None]:
    """Whatever a command imports from ``place`` is gone afterwards, and so is the way there.

    Else the next test that writes a module of that name gets this one.
    """
    path = list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = path
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if file is not None and Path(file).is_relative_to(place):
                del sys.modules[name]


@contextmanager
def own_log() -> Iterator[None]:
    """Where a command has the log go it goes no more afterwards."""
    logger = logging.getLogger("kafka_keyshared")
    handlers, level = list(logger.handlers), logger.level
    try:
        yield
    finally:
        logger.handlers[:] = handlers
        logger.setLevel(level)


def in_process(capsys: pytest.CaptureFixture[str], *arguments: object) -> Ended:
    """Run a command here; ``err`` and ``out`` are what this command alone printed."""
    capsys.readouterr()
    with patch.object(typer.main, "get_command", _BUILT_ONCE), own_log():
        status = app.run([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return Ended(status, printed.out, printed.err)


def as_user(
    *arguments: object,
    command: Sequence[str] = KEYSHARED,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 240.0,
) -> Ended:
    """Run a command in a process of its own."""
    done = subprocess.run(
        [*command, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, **(env or {})},
        cwd=cwd,
        timeout=timeout,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


class Running:
    """A command that runs beside the test; killed at the latest when the block ends."""

    def __init__(self, *arguments: object, env: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [*KEYSHARED, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        assert self.process.stderr is not None
        self._lines = Lines(self.process.stderr)

    @classmethod
    def on_terminal(
        cls, *arguments: object, stdout: IO[str] | None = None, columns: int = 200
    ) -> Self:
        """Run a command whose output goes to a terminal; ``err`` is all that is drawn there.

        Its standard output may go elsewhere.
        """
        controller, terminal = pty.openpty()
        size = {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "40"}
        running = cls.__new__(cls)
        running.process = subprocess.Popen(
            [*KEYSHARED, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=terminal if stdout is None else stdout,
            stderr=terminal,
            text=True,
            env={**os.environ, **size},
        )
        os.close(terminal)
        running._lines = Lines(drawn_on(controller))
        return running

    def wait_for(self, text: str, timeout: float = 240.0) -> str:
        """Return the first line on standard error with this text in it."""
        found = self._lines.first_with(text, timeout)
        assert found is not None, f"it has not said {text!r}, or ended before:\n{self.err}"
        return found

    @property
    def err(self) -> str:
        """What it wrote to standard error so far."""
        return self._lines.text

    def whole(self, timeout: float = 60.0) -> str:
        """Wait for the end of what it writes to standard error, and return all of it."""
        self._lines.join(timeout)
        return self.err

    def end(self, signal_number: int, timeout: float = 60.0) -> int:
        """Send a signal and return the exit status."""
        self.process.send_signal(signal_number)
        status = self.process.wait(timeout)
        self._lines.join(timeout)
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._lines.join()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

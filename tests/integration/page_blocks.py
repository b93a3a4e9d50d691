"""Runs the blocks of one document as its reader would, in a directory of their own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import yaml

from kafka_keyshared.config import load_file
from kafka_keyshared.errors import ConfigError
from tests.support.command_output import Lines
from tests.support.pages import ROOT, Block, Note, PageError

SECONDS = 180.0
"""For everything that a block waits for; a machine may be slow."""

_BINARIES = str(Path(sys.executable).parent)

# Executes one block after the other in one namespace, as one script would, and answers each.
_INTERPRETER = """
import contextlib, io, json, sys, traceback
names = {"__name__": "page"}
for line in sys.stdin:
    block, printed, failed = json.loads(line), io.StringIO(), False
    names["printed"] = block["before"]
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            exec(compile(block["text"], block["page"], "exec"), names)
        except BaseException:
            traceback.print_exc()
            failed = True
    sys.__stdout__.write(json.dumps({"failed": failed, "printed": printed.getvalue()}) + "\\n")
    sys.__stdout__.flush()
"""


@contextmanager
def _ctrl_c_works() -> Iterator[None]:
    # Whoever runs the tests in the background has SIGINT ignored, and children inherit that.
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        if before is signal.SIG_IGN:
            signal.signal(signal.SIGINT, before)


class Shell:
    """Commands of a block in a shell, with what they print; ended at the latest with the page."""

    def __init__(self, text: str, directory: Path, environment: Mapping[str, str]) -> None:
        with _ctrl_c_works():
            self.process = subprocess.Popen(
                ["bash", "-ec", text],
                cwd=directory,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                # A group of its own, so that Ctrl-C reaches the shell and its command alike.
                start_new_session=True,
            )
        assert self.process.stdout is not None
        self._lines = Lines(self.process.stdout)

    @property
    def printed(self) -> str:
        """What came so far."""
        return self._lines.text

    def says(self, text: str) -> bool:
        """Wait for a line with this text; False when the commands end without it, or time does."""
        return self._lines.first_with(text, SECONDS) is not None

    def wait(self) -> int | None:
        """Return the exit status; None when the time is over."""
        try:
            status = self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            return None
        self._lines.join(SECONDS)
        return status

    def interrupt(self) -> int | None:
        """Press Ctrl-C and return the exit status."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.wait()

    def close(self) -> None:
        """End what still runs."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._lines.join(SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()


class Interpreter:
    """The Python of a page, in a process of its own."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _INTERPRETER],
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, text: str, page: str, line: int, before: str | None) -> tuple[bool, str]:
        """Execute a block; whether it went well, and what it printed.

        In the block ``printed`` is what the block ``before`` it printed.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        # Empty lines in front make a traceback name the line of the page.
        said = {"text": "\n" * (line - 1) + text, "page": page, "before": before}
        watchdog = threading.Timer(SECONDS, self.process.kill)
        watchdog.start()
        try:
            self.process.stdin.write(json.dumps(said) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        finally:
            watchdog.cancel()
        if not answer:
            return False, f"the interpreter ended, or was ended after {SECONDS:.0f} s"
        told: dict[str, Any] = json.loads(answer)
        return not told["failed"], told["printed"]

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


class Reader:
    """Goes through one page; a context manager, at whose end what stayed beside is stopped too.

    ``instead`` replaces texts of the page by others (the address of the broker); ``not_run`` are
    beginnings of commands that are left out, and ``left_out`` those that were met; ``done`` counts
    what was done. ``make_topic`` makes a topic with so many records, ``broker`` ends the broker
    ("goes") and starts it again ("comes"). Raises :class:`PageError`, with page and line, for the
    first block that does not do what the page says.
    """

    def __init__(
        self,
        page: str,
        directory: Path,
        *,
        instead: Mapping[str, str] = {},
        not_run: Sequence[str] = (),
        make_topic: Callable[[str, int], None] | None = None,
        broker: Callable[[str], None] | None = None,
    ) -> None:
        self.page = page
        self.directory = directory
        self.instead = instead
        self.not_run = not_run
        self.left_out: set[str] = set()
        self.done = 0
        self.make_topic = make_topic
        self.broker = broker
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
            "PATH": f"{_BINARIES}{os.pathsep}{os.environ.get('PATH', '')}",
            "COLUMNS": "100",
            "PYTHONUNBUFFERED": "1",
        }
        # What a reader has who stands in the checkout.
        (directory / ".venv").symlink_to(sys.prefix)
        (directory / "examples").symlink_to(ROOT / "examples")
        self._interpreter: Interpreter | None = None
        self._beside: list[tuple[Block, Shell]] = []
        self._printed: str | None = None

    def read(self, items: Sequence[Note | Block]) -> None:
        """Do everything that the page says, in its order."""
        for item in items:
            if isinstance(item, Note):
                self._page_note(item)
            else:
                self._block(item)
            self.done += 1
        while self._beside:
            block, shell = self._beside.pop()
            self.end(block, shell)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for _, shell in self._beside:
            shell.close()
        if self._interpreter is not None:
            self._interpreter.close()

    def _page_note(self, note: Note) -> None:
        if note.words[0] == "python":
            self._python(Block(note.line + 1, "python", note.text))
            return
        if note.words[0] == "broker":
            self._broker(note)
            return
        _, name, *more = note.words
        if self.make_topic is None:
            raise self._fault(note.line, "there is no broker to make a topic on")
        self.make_topic(name, int(more[0]) if more else 0)

    def _broker(self, note: Note) -> None:
        if self.broker is None or not self._beside:
            raise self._fault(note.line, "there is no broker, or nothing beside that notices")
        _, shell = self._beside[-1]
        self.broker(note.words[1])
        awaited = note.value("until") or ""
        if not shell.says(self._replaced(awaited)):
            raise self._fault(note.line, f"{awaited!r} did not come:\n{shell.printed}")
        self._printed = shell.printed

    def _block(self, block: Block) -> None:
        text = self._replaced(block.text)
        kinds: dict[str, Callable[[Block, str], None]] = {
            "python": self._python_block,
            "sh": self._sh,
            "toml": self._toml,
            "json": lambda block, text: self._parsed(block, text, json.loads),
            "yaml": lambda block, text: self._parsed(block, text, _load_yaml),
            "text": self._text,
        }
        if block.language not in kinds:
            raise self._fault(
                block.line,
                f"a block of {block.language or 'no language'}: nobody checks it; "
                f"use one of {', '.join(kinds)}",
            )
        name = block.value("file")
        if name is not None:
            where = self.directory / name
            where.parent.mkdir(parents=True, exist_ok=True)
            where.write_text(text, encoding="utf-8")
        kinds[block.language](block, text)

    def _python_block(self, block: Block, text: str) -> None:
        if block.value("file") is not None:
            self._parsed(block, text, lambda text: compile(text, self.page, "exec"))
        else:
            self._python(block)

    def _python(self, block: Block) -> None:
        if self._interpreter is None:
            self._interpreter = Interpreter(self.directory, self.environment)
        fine, printed = self._interpreter.run(
            self._replaced(block.text), self.page, block.line, self._printed
        )
        self._printed = printed
        if not fine:
            raise self._fault(block.line, printed)

    def _sh(self, block: Block, text: str) -> None:
        commands = self._without_what_is_not_run(text)
        if not commands.strip():
            self._printed = None
            return
        shell = Shell(commands, self.directory, self.environment)
        try:
            awaited = block.value("until")
            if awaited is not None and not shell.says(self._replaced(awaited)):
                raise self._fault(block.line, f"{awaited!r} did not come:\n{shell.printed}")
            if block.says("beside"):
                self._beside.append((block, shell))
                return
            self.end(block, shell)
        finally:
            if not block.says("beside"):
                shell.close()
            self._printed = shell.printed

    def end(self, block: Block, shell: Shell) -> None:
        """Stop what stays, wait for what ends by itself, and judge how it ended."""
        stays = block.value("until") is not None
        if stays and shell.process.poll() is not None:
            shell.close()
            raise self._fault(block.line, f"it ended by itself:\n{shell.printed}")
        status = shell.interrupt() if stays else shell.wait()
        shell.close()
        meant = int(block.value("exit") or 0)
        if status != meant:
            ended = f"ended with {status}" if status is not None else f"ran for {SECONDS:.0f} s"
            raise self._fault(block.line, f"{ended} and not with {meant}:\n{shell.printed}")

    def _without_what_is_not_run(self, text: str) -> str:
        kept = []
        for command in re.split(r"(?<!\\)\n", text):
            reason = next((start for start in self.not_run if command.startswith(start)), None)
            if reason is None:
                kept.append(command)
            else:
                self.left_out.add(reason)
        return "\n".join(kept)

    def _toml(self, block: Block, text: str) -> None:
        name = block.value("file") or "keyshared.toml"
        if Path(name).name == "pyproject.toml":
            self._parsed(block, text, tomllib.loads)
            return
        where = self.directory / name
        if block.value("file") is None:
            where = self.directory / "block.toml"
            where.write_text(text, encoding="utf-8")
        try:
            load_file(where)
        except ConfigError as error:
            raise self._fault(block.line, str(error)) from error

    def _text(self, block: Block, text: str) -> None:
        if not block.says("output"):
            return
        if self._printed is None:
            raise self._fault(block.line, "nothing ran that could have printed this")
        if not re.search(_pattern(text, block.says("measured")), f"{self._printed}\n"):
            raise self._fault(block.line, f"what came was another text:\n{self._printed}")

    def _parsed(self, block: Block, text: str, parse: Callable[[str], object]) -> None:
        try:
            parse(text)
        except (ValueError, SyntaxError, yaml.YAMLError) as error:
            raise self._fault(block.line, f"not {block.language}: {error}") from error

    def _replaced(self, text: str) -> str:
        for old, new in self.instead.items():
            text = text.replace(old, new)
        return text

    def _fault(self, line: int, what: str) -> PageError:
        return PageError(f"{self.page}:{line}: {what}")


_NUMBER = r"[\\d,]+(?:\\.\\d+)?"


def _load_yaml(text: str) -> object:
    return list(yaml.safe_load_all(text))


def _pattern(text: str, measured: bool) -> str:
    """Return what a printed text must contain; `…` stands for anything.

    In a ``measured`` text a number with a point in it, or of something a second, stands for any.
    """
    lines = [
        r"(?:.*\n)*?" if line.strip() == "…" else rf"{_anything(line)}[ \t]*\n"
        for line in text.splitlines()
    ]
    if measured:
        lines = [re.sub(r"\d+\\\.\d+|[\d,]+(?=/s\b)", _NUMBER, line) for line in lines]
    return r"(?m)^" + "".join(lines)


def _anything(line: str) -> str:
    return r"[^\n]*".join(re.escape(part) for part in line.rstrip().split("…"))

"""Output: results to standard output, all other text to standard error."""

from __future__ import annotations

import contextlib
import enum
import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, Literal, TypeAlias

from kafka_keyshared.errors import KeySharedError

Justify: TypeAlias = Literal["left", "right"]


class OutputFormat(enum.StrEnum):
    """The format of a printed result."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def write_error(text: str) -> None:
    """Print an error for the user."""
    sys.stderr.write(f"keyshared: {text}\n")


def write_note(text: str) -> None:
    """Print a note, which is not part of the result."""
    sys.stderr.write(f"{text}\n")


def write_result(result: Mapping[str, Any], output: OutputFormat, title: str) -> None:
    """Print a result as JSON on one line, as YAML, or as a table of names and values."""
    if output is OutputFormat.JSON:
        import json

        sys.stdout.write(json.dumps(result) + "\n")
    elif output is OutputFormat.YAML:
        import yaml

        sys.stdout.write(yaml.safe_dump(result, sort_keys=False, allow_unicode=True))
    else:
        rows = [
            (name, f"{value:,}" if type(value) is int else str(value))
            for name, value in result.items()
        ]
        write_table(title, {"": "left", " ": "left"}, rows)


@contextlib.contextmanager
def standard_output() -> Iterator[IO[bytes]]:
    """Open standard output for a result of many lines; its reader may close it early."""
    raw: Any = sys.stdout.buffer
    # With PYTHONUNBUFFERED it is a raw file, which may write a part and report that only by a
    # number.
    out = io.BufferedWriter(raw) if isinstance(raw, io.RawIOBase) else raw
    try:
        yield out
        out.flush()
    except BrokenPipeError as error:
        # Otherwise the interpreter reports the error again when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise KeySharedError("standard output was closed before the end of the result") from error
    finally:
        if out is not raw:
            out.detach()


def write_table(
    title: str,
    columns: Mapping[str, Justify],
    rows: Sequence[Sequence[str]],
    styles: Mapping[str, str] = {},
) -> None:
    """Print a table; columns whose names are blank have no heading.

    ``styles`` gives cells with a certain text a colour, on a terminal.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, show_header=any(name.strip() for name in columns))
    for name, justify in columns.items():
        table.add_column(name, justify=justify)
    for row in rows:
        # As plain text, because rich would read [brackets] as markup.
        table.add_row(*(Text(cell, styles.get(cell, "")) for cell in row))
    Console(file=sys.stdout).print(table)


def start_logging(level: str = "info", form: str = "text") -> None:
    """Send this package's log to standard error, one line or one JSON object each.

    It uses ``sys.stderr`` at the time of each line. While a live line is shown, log lines go above
    it.
    """
    import logging

    from kafka_keyshared.logs import JsonFormatter

    class ToStandardError(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            try:
                sys.stderr.write(self.format(record) + "\n")
                sys.stderr.flush()
            except Exception:  # noqa: BLE001 - as every handler of the standard library
                self.handleError(record)

    handler = ToStandardError()
    lines = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if form == "json" else lines)
    logger = logging.getLogger("kafka_keyshared")
    logger.addHandler(handler)
    logger.setLevel(level.upper())

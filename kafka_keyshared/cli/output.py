"""Where output goes: data to standard output, everything else to standard error."""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Mapping
from typing import Any


class Output(enum.StrEnum):
    """How a result is printed."""

    TABLE = "table"
    JSON = "json"


def write_error(text: str) -> None:
    """Print an error for a person."""
    sys.stderr.write(f"keyshared: {text}\n")


def write_note(text: str) -> None:
    """Print what is not the result."""
    sys.stderr.write(f"{text}\n")


def write_result(result: Mapping[str, Any], output: Output, title: str) -> None:
    """Print a result as JSON on one line, or as a table of names and values."""
    if output is Output.JSON:
        sys.stdout.write(json.dumps(result) + "\n")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, show_header=False)
    for name, value in result.items():
        shown = f"{value:,}" if type(value) is int else str(value)
        table.add_row(name, shown)
    Console(file=sys.stdout).print(table)


def start_logging() -> None:
    """Send this package's log to standard error, one line each."""
    import logging

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("kafka_keyshared")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)

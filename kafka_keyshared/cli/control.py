"""``keyshared pause``, ``resume``, ``quiesce`` and ``scale``: plan and execution."""

from __future__ import annotations

import getpass
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from kafka_keyshared.cli.output import OutputFormat, write_note, write_result
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.model import counted, some
from kafka_keyshared.observability.admin_client import AdminClient
from kafka_keyshared.observability.web.command_list import (
    OrderRequest,
    PauseOrder,
    QuiesceOrder,
    ResumeOrder,
    ScaleOrder,
)
from kafka_keyshared.observability.web.commands import read_token
from kafka_keyshared.observability.web.snapshot import totals
from kafka_keyshared.status import Status


def partitions_typed(names: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Parse partitions from the command line; raise :class:`ConfigError` for an invalid one."""
    found = []
    for name in names:
        topic, _, number = name.rpartition("-")
        if not topic or not number.isdecimal():
            raise ConfigError(f"--partition {name}: give TOPIC-NUMBER, such as orders-3")
        found.append((topic, int(number)))
    return tuple(found)


def act_verb(
    url: str, order: OrderRequest, token_file: Path | None, *, execute: bool, output: OutputFormat
) -> int:
    """Print the planned change; with ``execute`` make it, and print the result."""
    if not execute:
        plan = planned(AdminClient(url).status(), order)
        _print("plan", plan, output)
        if output is OutputFormat.TABLE:
            write_note("nothing has changed; add --execute to make the change")
        return 0
    if token_file is None:
        raise ConfigError(
            "--execute: give --token-file (or KEYSHARED_HTTP_TOKEN_FILE), the file that is "
            "http_token_file of the instance"
        )
    instance = AdminClient(url, read_token(str(token_file)), name=_who())
    done = instance.order(order)
    if output is OutputFormat.TABLE:
        sys.stdout.write(f"{done.done}\n")
    else:
        write_result({"verb": done.verb, "done": done.done, **done.result}, output, done.verb)
    return 0


def planned(status: Status, order: OrderRequest) -> str:
    """Return a text for the change that an order would make to an instance."""
    if isinstance(order, ScaleOrder):
        now = sum(each.state != "gone" for sub in status.subscriptions for each in sub.workers)
        return f"from {counted(now, 'worker')} to {order.workers:,}; moved slots drain first"
    sums = totals(status)
    if isinstance(order, QuiesceOrder):
        held = counted(sums.held, "record")
        return f"would pause {_which(status, PauseOrder())}, finish {held} and commit"
    if isinstance(order, PauseOrder):
        return f"would pause {_which(status, order)}"
    if isinstance(order, ResumeOrder):
        return f"would resume {_which(status, order)}"
    raise TypeError(type(order).__name__)


def _which(status: Status, order: PauseOrder | ResumeOrder) -> str:
    names = [
        f"{each.topic}-{each.partition}"
        for each in status.partitions
        if (order.topics is None and order.partitions is None)
        or each.topic in (order.topics or ())
        or (each.topic, each.partition) in (order.partitions or ())
    ]
    return some(names, none="no partition of this instance")


def _print(what: str, text: str, output: OutputFormat) -> None:
    if output is OutputFormat.TABLE:
        sys.stdout.write(f"{text}\n")
    else:
        write_result({what: text}, output, what)


def _who() -> str:
    """Return the user and host of this command, for the log of the instance."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"

"""``keyshared status``: the diagnosis of an instance, or of its group."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from kafka_keyshared.cli.instances import status_of
from kafka_keyshared.cli.lag import number, seconds
from kafka_keyshared.cli.output import Justify, OutputFormat, write_note, write_result, write_table
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.model import in_words
from kafka_keyshared.observability.admin_client import AdminClient
from kafka_keyshared.observability.diagnosis.judge import diagnose
from kafka_keyshared.observability.web.commands import read_token
from kafka_keyshared.observability.web.group.view import GroupView, SeenInstance

UNHEALTHY = 3


def status_verb(url: str, output: OutputFormat, *, keys: bool = False) -> int:
    """Print the diagnosis; return 3 if a finding needs operator action."""
    found = diagnose(status_of(url), keys=keys)
    if output is OutputFormat.TABLE:
        sys.stdout.write(f"{found.text}\n")  # one line, so that scripts can embed it
        if found.first is not None:
            write_note(f"to do: {found.first.cure} (docs/{found.first.page})")
    else:
        findings = msgspec.to_builtins(found.findings)
        told = {"text": found.text, "healthy": found.healthy, "number": found.number}
        write_result({**told, "findings": list(findings)}, output, "status")
    return 0 if found.healthy else UNHEALTHY


# --- the group ---


COLUMNS: dict[str, Justify] = {
    "instance": "left",
    "state": "left",
    "partitions": "right",
    "settled/s": "right",
    "backlog": "right",
    "heard": "right",
    "verdict": "left",
}

STYLES = {"silent": "red", "rebalancing": "yellow"}


def group_verb(url: str, token_file: Path | None, output: OutputFormat) -> int:
    """Print the instances of a group; return 3 unless all are known to be healthy."""
    token = None if token_file is None else read_token(str(token_file))
    # The first query waits for the reports of the other instances.
    view = AdminClient(url, token, timeout=30.0).group()
    if view.source == "none":
        raise KeySharedError(f"{url}: {view.text}")
    if output is OutputFormat.TABLE:
        write_table(f"group {view.group}", COLUMNS, [_row(each) for each in view.instances], STYLES)
        sys.stdout.write(f"{view.text}\n")
        for each in view.remarks[1:]:
            write_note(each.sentence)
    else:
        write_result(msgspec.to_builtins(view), output, "group")
    for trouble in view.troubles:
        write_note(trouble)
    return 0 if all_well(view) else UNHEALTHY


def all_well(view: GroupView) -> bool:
    """Return whether every instance is heard and healthy, with no finding between them.

    While a problem keeps reports from being written or read, the result is False.
    """
    well = all(each.state != "silent" and each.report.healthy for each in view.instances)
    return well and view.healthy and not view.troubles


def _row(each: SeenInstance) -> tuple[str, ...]:
    rate = each.per_second
    return (
        f"{each.label} (asked)" if each.here else each.label,
        each.state,
        number(each.held_partitions),
        "?" if rate is None else f"{rate:,.1f}",
        number(each.report.backlog),
        f"{seconds(each.heard_seconds)} ago",
        _verdict(each),
    )


def _verdict(each: SeenInstance) -> str:
    """Return the verdict on one instance, as one line."""
    if each.state == "silent":
        return f"silent for {in_words(each.heard_seconds)}; when last heard: {each.report.text}"
    return f"{each.report.text}; {each.slow}" if each.slow else each.report.text

"""``keyshared lag``: lag and backlog of a running instance."""

from __future__ import annotations

import sys
from typing import Any

from kafka_keyshared.cli.output import Justify, OutputFormat, write_note, write_result, write_table
from kafka_keyshared.observability.admin_client import AdminClient
from kafka_keyshared.observability.diagnosis.causes import OUTAGES
from kafka_keyshared.observability.diagnosis.judge import diagnose
from kafka_keyshared.observability.web.snapshot import totals
from kafka_keyshared.status import Status

COLUMNS: dict[str, Justify] = {
    "partition": "left",
    "committed": "right",
    "log end": "right",
    "lag": "right",
    "backlog": "right",
    "behind": "right",
    "held back by": "left",
}


def lag_verb(url: str, output: OutputFormat) -> int:
    """Print the lag of each partition, and the sums."""
    status = AdminClient(url).status()
    found = lags(status)
    for each in diagnose(status).findings:
        if each.code in OUTAGES:
            write_note(each.sentence)
    if output is not OutputFormat.TABLE:
        write_result(found, output, "lag")
        return 0
    write_table(f"group {found['group']}", COLUMNS, [_row(each) for each in found["partitions"]])
    sys.stdout.write(
        f"lag {number(found['lag'])}, of which {number(found['backlog'])} are unsettled; "
        f"{seconds(found['lag_seconds'])} behind\n"
    )
    return 0


def lags(status: Status) -> dict[str, Any]:
    """Return the lag of each partition and the sums; None for unknown values."""
    sums = totals(status)
    return {
        "group": status.group,
        "lag": sums.lag,
        "backlog": sums.backlog,
        "lag_seconds": sums.lag_seconds,
        "partitions": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "committed": each.committed,
                "log_end": each.log_end,
                "lag": each.lag,
                "backlog": each.backlog,
                "lag_seconds": each.lag_seconds,
                "held_back": [*each.held_back],
            }
            for each in status.partitions
        ],
    }


def _row(found: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{found['topic']}-{found['partition']}",
        *(number(found[name]) for name in ("committed", "log_end", "lag", "backlog")),
        seconds(found["lag_seconds"]),
        ", ".join(found["held_back"]),
    )


def number(value: int | None) -> str:
    """Return a number as text; a question mark if it is unknown."""
    return "?" if value is None else f"{value:,}"


def seconds(value: float | None) -> str:
    """Return a time in seconds as text; a question mark if it is unknown."""
    return "?" if value is None else f"{value:,.1f} s"

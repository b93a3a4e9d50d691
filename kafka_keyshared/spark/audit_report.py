"""Audit reports as JSON, Markdown and two SVG plots."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.spark.audit import Audit
from kafka_keyshared.spark.plots import bars, columns

BUSIEST = 24
"""Maximum number of workers in a plot."""

MEANINGS = {
    "lost": "records that were produced and never settled",
    "duplicates": "records that ran again after they were done",
    "order": "records that a later one of their key overtook",
    "overlaps": "records that ran beside one of their key",
}

TOTALS = {
    "produced": "records produced",
    "ok": "done",
    "dead_lettered": "in the dead-letter topic",
    "dropped": "dropped",
    "keyless": "without a key, and so in no order",
    "calls": "calls of the handler",
    "failed_calls": "of which failed",
    "incarnations": "starts of a process",
    "not_in_source": "in the log and not in the topics: deleted since, or out of the range",
}


def as_json(audit: Audit, elapsed: float) -> dict[str, Any]:
    """Return all findings as a value for JSON."""
    return {
        **{rule: finding.count for rule, finding in audit.findings.items()},
        "ok": audit.clean,
        "totals": audit.totals,
        "examples": {rule: each.examples for rule, each in audit.findings.items() if each.count},
        "clock_tolerance_s": audit.clock_tolerance,
        "workers": [
            {name: each[name] for name in ("incarnation", "worker", "calls", "failed", "seconds")}
            for each in audit.workers
        ],
        "timeline": audit.timeline,
        "elapsed_s": round(elapsed, 1),
    }


def as_markdown(audit: Audit, what: str) -> str:
    """Return the audit as a Markdown page; ``what`` names the audited log."""
    lines = [f"# Audit of {what}", "", "| proof | count | |", "|---|---:|---|"]
    for rule, finding in audit.findings.items():
        verdict = "none" if not finding.count else "**broken**"
        lines.append(f"| {MEANINGS[rule]} | {finding.count:,} | {verdict} |")
    lines += ["", "| what there was | |", "|---|---:|"]
    lines += [f"| {words} | {audit.totals[name]:,} |" for name, words in TOTALS.items()]
    for rule, finding in audit.findings.items():
        if finding.count:
            lines += ["", f"## {rule}: the first of {finding.count:,}", ""]
            lines += [
                f"- `{case['topic']}-{case['partition']}@{case['offset']}`, "
                f"key `{case['key']}`: {case['why']}"
                for case in finding.examples
            ]
    lines += [
        "",
        "![calls of the handler over time](timeline.svg)",
        "",
        "![load by worker](workers.svg)",
        "",
        f"Calls of two processes were compared to {audit.clock_tolerance * 1000:g} ms, those of "
        "one to the nanosecond.",
    ]
    return "\n".join(lines) + "\n"


def plots(audit: Audit) -> dict[str, str]:
    """Return the plots by the name of their file."""
    several = len({each["incarnation"] for each in audit.workers}) > 1
    by_worker = {
        _name(each, several=several): [each["seconds"]] for each in audit.workers[:BUSIEST]
    }
    steps = audit.timeline
    seconds = steps[0]["seconds"] if steps else 1.0
    over_time = [[each["calls"], each["failed"]] for each in steps]
    began = datetime.fromtimestamp(steps[0]["from"] / 1000, UTC) if steps else None
    span = f"from {began:%Y-%m-%d %H:%M:%S} UTC, {seconds * len(steps):,.1f} s" if began else ""
    unit = f"per {seconds:,.2f} s"
    return {
        "timeline.svg": columns("calls of the handler", over_time, ["all", "failed"], unit, span),
        "workers.svg": bars("load by worker, the busiest first", by_worker, ["in handlers"], "s"),
    }


def _name(worker: dict[str, Any], *, several: bool) -> str:
    """Return a worker's name.

    The end of its incarnation is added when there are several, to distinguish workers of one host.
    """
    process = worker["incarnation"][-12:]
    own = worker["worker"] or process
    return f"{process}/{own}" if several and own != process else str(own)


def write_report(folder: Path, files: dict[str, str]) -> None:
    """Write files into a folder and create the folder; raise :class:`ConfigError` on failure."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out {folder}: {error.strerror}; give a folder") from error

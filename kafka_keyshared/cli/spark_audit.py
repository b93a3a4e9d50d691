"""``keyshared spark audit``: order and delivery proofs over a complete history."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kafka_keyshared.cli.audit_log import log_folder
from kafka_keyshared.cli.output import OutputFormat, write_note, write_result, write_table
from kafka_keyshared.cli.spark_tools import (
    SparkPlaceArguments,
    Topics,
    on_spark,
    source_of,
    spans_of,
    topic_of,
)
from kafka_keyshared.config.local_paths import local_path
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.spark.audit import LANES, Audit, audit
from kafka_keyshared.spark.audit_report import (
    MEANINGS,
    TOTALS,
    as_json,
    as_markdown,
    plots,
    write_report,
)
from kafka_keyshared.spark.logs import OffsetSpan, processed_log


@dataclass(frozen=True, slots=True)
class AuditArguments:
    """The values from the command line; times are in milliseconds since 1970."""

    log: str
    topics: Topics
    since: int | None
    until: int | None
    scope: str
    tolerance: float
    out: Path | None
    spark: SparkPlaceArguments


def audit_verb(arguments: AuditArguments, output: OutputFormat) -> int:
    """Judge a processed log; return 0 if no rule was broken, else 1."""
    if arguments.scope not in LANES:
        raise ConfigError(f"--order-scope {arguments.scope}: give one of {', '.join(LANES)}")
    log_topic, topics = topic_of(arguments.log), arguments.topics
    if log_topic is None:
        arguments = replace(arguments, log=str(log_folder(arguments.log, "LOG")))
    if arguments.out is not None:
        arguments = replace(arguments, out=local_path("--out", arguments.out))
    conf: dict[str, Any] = {}
    log_spans: list[OffsetSpan] = []
    spans: list[OffsetSpan] = []
    if log_topic is not None or topics.topics:
        conf = topics.conf()
        log_spans = [] if log_topic is None else spans_of(conf, [log_topic], None)
        spans = spans_of(conf, topics.topics, topics.group) if topics.topics else []
        _require_records([*log_spans], log_topic)
    elif not Path(arguments.log).exists():
        raise ConfigError(
            f"{arguments.log}: the folder does not exist; give the folder of --audit-log"
        )
    began = time.monotonic()
    with on_spark(arguments.spark) as spark:
        rows = processed_log(spark, arguments.log, conf, log_spans)
        since, until = arguments.since, arguments.until
        source = source_of(spark, conf, spans, since, until) if topics.topics else None
        found = audit(rows, source, scope=arguments.scope, tolerance=arguments.tolerance)
    result = as_json(found, time.monotonic() - began)
    if arguments.out is not None:
        page = as_markdown(found, arguments.log)
        text = json.dumps(result, indent=2) + "\n"
        write_report(arguments.out, {"audit.json": text, "audit.md": page, **plots(found)})
        write_note(f"the report is in {arguments.out / 'audit.md'}")
    if output is OutputFormat.TABLE:
        _write(found)
    else:
        write_result(result, output, "audit")
    return 0 if found.clean else 1


def _require_records(spans: list[OffsetSpan], topic: str | None) -> None:
    if topic is not None and not any(span.end > span.begin for span in spans):
        raise KeySharedError(
            f"topic:{topic}: the topic has no rows; check that the log was written"
        )


def _write(found: Audit) -> None:
    rows = [(MEANINGS[rule], f"{each.count:,}") for rule, each in found.findings.items()]
    rows += [(words, f"{found.totals[name]:,}") for name, words in TOTALS.items()]
    write_table("audit", {"": "left", " ": "right"}, rows)
    for each in found.findings.values():
        for case in each.examples:
            place = f"{case['topic']}-{case['partition']}@{case['offset']}"
            write_note(f"{place} (key {case['key']}): {case['why']}")

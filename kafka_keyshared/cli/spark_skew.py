"""``keyshared spark skew``: the heaviest keys and slots, and balancing weights."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
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
from kafka_keyshared.cli.weights import write_weights
from kafka_keyshared.config.local_paths import local_path
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.spark.audit_report import write_report
from kafka_keyshared.spark.logs import OffsetSpan, processed_log
from kafka_keyshared.spark.plots import bars
from kafka_keyshared.spark.skew import MEASURES, SlotCounts, Spread, balanced, measure, spread

SLOTS_SHOWN = 10


@dataclass(frozen=True, slots=True)
class SkewArguments:
    """The values from the command line; times are in milliseconds since 1970."""

    topics: Topics
    log: str | None
    since: int | None
    until: int | None
    workers: list[int]
    by: str | None
    weights_file: Path | None
    out: Path | None
    spark: SparkPlaceArguments


def skew_verb(arguments: SkewArguments, output: OutputFormat) -> int:
    """Measure, print, and write weights on request."""
    topics, log = arguments.topics, arguments.log
    if log is not None and topic_of(log) is None:
        log = str(log_folder(log, "--log"))
    out, weights_file = arguments.out, arguments.weights_file
    arguments = replace(
        arguments,
        log=log,
        out=None if out is None else local_path("--out", out),
        weights_file=None if weights_file is None else local_path("--weights-file", weights_file),
    )
    if not topics.topics and log is None:
        raise ConfigError("give -t TOPIC for records and bytes, --log for time, or both")
    if arguments.by not in (None, *MEASURES):
        raise ConfigError(f"--by {arguments.by}: give one of {', '.join(MEASURES)}")
    found = _measured(arguments)
    by = arguments.by or ("seconds" if found.totals["seconds"] else "records")
    if not found.totals[by]:
        needs = "--log LOG" if by == "seconds" else "-t TOPIC"
        raise ConfigError(f"--by {by}: there are none; give {needs}")
    rings = {count: spread(found, by, count) for count in arguments.workers}
    most = arguments.workers[-1]
    weights = balanced(found, by, most)
    after = spread(found, by, most, weights)
    result = _told(found, by, rings, weights, after)
    if arguments.weights_file is not None:
        write_weights(arguments.weights_file, weights)
        write_note(f"keyshared run --ring-weights {arguments.weights_file} uses them")
    if arguments.out is not None:
        before = rings[most]
        loads = {name: [before.by_worker[name], after.by_worker[name]] for name in weights}
        plot = bars(f"load of {most} workers", loads, ["without weights", "with weights"], by)
        text = json.dumps(result, indent=2) + "\n"
        write_report(arguments.out, {"skew.json": text, "skew.svg": plot})
    if output is OutputFormat.TABLE:
        _write(result, by)
    else:
        write_result(result, output, "skew")
    return 0


def _measured(arguments: SkewArguments) -> SlotCounts:
    topics, log = arguments.topics, arguments.log
    log_topic = None if log is None else topic_of(log)
    conf: dict[str, Any] = topics.conf() if topics.topics or log_topic else {}
    spans = spans_of(conf, topics.topics, topics.group) if topics.topics else []
    log_spans: list[OffsetSpan] = [] if log_topic is None else spans_of(conf, [log_topic], None)
    with on_spark(arguments.spark) as spark:
        source = (
            source_of(spark, conf, spans, arguments.since, arguments.until)
            if topics.topics
            else None
        )
        rows = None
        if log is not None:
            rows = processed_log(spark, log, conf, log_spans)
            for since, sign in ((arguments.since, ">="), (arguments.until, "<")):
                if since is not None:
                    rows = rows.where(f"started {sign} {since * 1_000_000}")
        return measure(source, rows)


def _told(
    found: SlotCounts, by: str, rings: dict[int, Spread], weights: dict[str, float], after: Spread
) -> dict[str, Any]:
    heavy = sorted(found.slots[by].items(), key=lambda item: (-item[1], item[0]))[:SLOTS_SHOWN]
    return {
        "keys": found.keys,
        "totals": found.totals,
        "keyless": found.keyless,
        "heaviest_keys": found.heaviest[by],
        "heaviest_slots": [
            {"slot": slot, **{name: found.slots[name][slot] for name in MEASURES}}
            for slot, _ in heavy
        ],
        "by": by,
        "workers": {str(count): asdict(ring) for count, ring in rings.items()},
        "weights": weights,
        "weighted": asdict(after),
    }


def _write(result: dict[str, Any], by: str) -> None:
    rows = [
        (str(each["key"]), *(f"{each[name]:,.1f}".removesuffix(".0") for name in MEASURES))
        for each in result["heaviest_keys"]
    ]
    write_table(
        f"the heaviest of {result['keys']:,} keys, by {by}",
        {"key": "left", "records": "right", "bytes": "right", "seconds": "right"},
        rows,
    )
    rings = [(count, each) for count, each in result["workers"].items()]
    rings.append((f"{rings[-1][0]}, with weights", result["weighted"]))
    write_table(
        f"load of a ring, in {by}",
        {"workers": "left", "busiest": "right", "imbalance": "right", "speed-up": "right"},
        [
            (
                count,
                f"{each['makespan']:,.1f}".removesuffix(".0"),
                f"{each['imbalance']:.2f}x",
                f"{each['speedup']:.1f}x",
            )
            for count, each in rings
        ],
    )

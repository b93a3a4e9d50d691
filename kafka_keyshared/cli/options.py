"""Shared options of the verbs, each with one name and help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from kafka_keyshared.cli.output import OutputFormat

JsonFlag = Annotated[bool, typer.Option("--json", help="Short for -o json.")]
OutputFlag = Annotated[
    OutputFormat, typer.Option("-o", "--output", help="How to print the result.")
]
Bootstrap = Annotated[
    str | None,
    typer.Option(
        "-b", "--bootstrap-server", metavar="TEXT", help="Address of a broker, host:port."
    ),
]
ClientSettings = Annotated[
    list[str] | None,
    typer.Option("-X", metavar="KEY=VALUE", help="A setting of the Kafka client; repeatable."),
]
Handler = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:ATTR",
        help="A function, a handler class or an app; or path/file.py:ATTR.",
    ),
]
OptionalHandler = Annotated[
    str | None, typer.Argument(metavar="MODULE:ATTR", help="As for run; may be left out.")
]
Topics = Annotated[
    list[str] | None,
    typer.Option("-t", "--topic", metavar="TEXT", help="Topic to read; repeatable."),
]
Group = Annotated[str | None, typer.Option("-g", "--group", metavar="TEXT", help="Consumer group.")]
RunKey = Annotated[
    str | None,
    typer.Option(metavar="PLACE", help="Source of the key: record, header:NAME, json:/POINTER."),
]
RunWorkers = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT", help="Number of workers: 16, thread:16, process:4 or asyncio:1000."
    ),
]
DeadLetters = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Dead-letter topic; auto means <topic>.dlq.")
]
DeadLettersCreate = Annotated[
    bool, typer.Option("--dlq-create", help="Create the dead-letter topic if it is missing.")
]
FromBeginning = Annotated[
    bool,
    typer.Option("--from-beginning", help="Read from the beginning if the group has no position."),
]
Attempts = Annotated[
    int | None,
    typer.Option(metavar="INT", help="Maximum attempts of a record, including the first."),
]
OnExhausted = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="Policy after the last attempt: block, drop, dead_letter, block_and_dlq or divert.",
    ),
]
RoutingFlag = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="Rule that assigns keys: ring, sticky, auto-split, exclusive or unordered.",
    ),
]
RingWeights = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="File with the weight of each worker, from spark skew."),
]
OnUnmatchedFlag = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT", help="Policy for records that no worker takes: skip, hold or error."
    ),
]
UnblockingInterval = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", help="How long drained keys wait to continue together; 0: not at all."
    ),
]
NewWorkersWait = Annotated[
    bool,
    typer.Option(
        "--new-workers-wait",
        help="A joining worker gets no new record before all older ones are settled.",
    ),
]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"],
    typer.Option(help="Minimum level of log lines.", envvar="KEYSHARED_LOG_LEVEL"),
]
LogFormat = Annotated[
    Literal["text", "json"],
    typer.Option(
        help="Lines of text, or JSON objects for a collector.", envvar="KEYSHARED_LOG_FORMAT"
    ),
]
HttpPort = Annotated[
    int | None,
    typer.Option(
        metavar="INT",
        help="Serve /metrics, /livez, /readyz, /status on 127.0.0.1 there; 0: any port.",
    ),
]
ConsolePort = Annotated[
    int | None,
    typer.Option(
        metavar="INT",
        help="Serve the console and the admin API on 127.0.0.1 there; 0: any port.",
    ),
]
AuditLog = Annotated[
    str | None,
    typer.Option(
        metavar="PLACE",
        help="Write the outcome of each record to a folder, or to topic:NAME.",
    ),
]
Outputs = Annotated[
    str | None,
    typer.Option(
        metavar="PLACE",
        help="Target of handler outputs: topic:NAME, or a folder; on Spark parquet:FOLDER.",
    ),
]
Watch = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        min=0.0,
        help="How long to watch whether positions move; else 6 s, and a minute if in doubt.",
    ),
]
HeldAfter = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=0.0,
        help="A position that does not move for this long counts as stuck.",
    ),
]
StatusUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Query an instance, too, at its --http-port: http://127.0.0.1:8787.",
    ),
]
RulesFile = Annotated[
    Path | None,
    typer.Option(
        "--rules",
        metavar="PATH",
        help="Prometheus rules or a dashboard: name the metrics in it that have other names now.",
    ),
]
SparkFlag = Annotated[
    bool, typer.Option("--spark", help="Check what `keyshared spark` needs here, too.")
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="A TOML file with the same settings; else $KEYSHARED_CONFIG, keyshared.toml.",
    ),
]
PayloadForm = Annotated[str, typer.Option(metavar="TEXT", help="auto, text, json, avro or hex.")]
SchemaFile = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="The Avro schema of the values, for auto and avro."),
]
SettingsOfApp = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="MODULE:ATTR",
        help="Take the settings of this app, also its oauth_cb, which no flag can give.",
    ),
]
AppDir = Annotated[Path, typer.Option(metavar="PATH", help="First on sys.path.")]
Workers = Annotated[int, typer.Option(metavar="INT", min=1, max=1_000, help="Number of workers.")]
RoutingKind = Annotated[
    str, typer.Option("--routing", metavar="TEXT", help="ring, sticky, auto-split or exclusive.")
]
SlotRanges = Annotated[
    list[str] | None,
    typer.Option(
        "--range",
        metavar="WORKER=RANGES",
        help="For sticky: a worker's slots, as worker-0=0-99,200-299; repeatable.",
    ),
]
Weights = Annotated[
    list[str] | None,
    typer.Option(
        "--weight",
        metavar="WORKER=NUMBER",
        help="For ring: a worker's share, relative to the others; repeatable.",
    ),
]
Vnodes = Annotated[
    int, typer.Option(metavar="INT", min=1, max=1_000, help="Points of each worker on the ring.")
]

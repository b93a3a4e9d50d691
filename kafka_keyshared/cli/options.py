"""Options that several commands share, each with one name and help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from kafka_keyshared.cli.output import OutputFormat

JsonFlag = Annotated[bool, typer.Option("--json", help="Short for -o json.")]
OutputFlag = Annotated[OutputFormat, typer.Option("-o", "--output", help="Format of the result.")]
Bootstrap = Annotated[
    str | None,
    typer.Option(
        "-b", "--bootstrap-server", metavar="TEXT", help="Address of a broker, host:port."
    ),
]
ClientSettings = Annotated[
    list[str] | None,
    typer.Option("-X", metavar="KEY=VALUE", help="A Kafka client setting; repeatable."),
]
Handler = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:ATTR",
        help="A function, a handler class or an app; or path/file.py:ATTR.",
    ),
]
OptionalHandler = Annotated[
    str | None, typer.Argument(metavar="MODULE:ATTR", help="As for run; optional.")
]
Topics = Annotated[
    list[str] | None,
    typer.Option("-t", "--topic", metavar="TEXT", help="A topic to read; repeatable."),
]
Group = Annotated[str | None, typer.Option("-g", "--group", metavar="TEXT", help="Consumer group.")]
RunKey = Annotated[
    str | None,
    typer.Option(metavar="PLACE", help="Where the key is: record, header:NAME or json:/POINTER."),
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
    typer.Option(
        "--from-beginning",
        help="Read a partition from its start if the group has no committed position there.",
    ),
]
Attempts = Annotated[
    int | None,
    typer.Option(metavar="INT", help="Maximum attempts of a record, including the first."),
]
OnExhausted = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="Action after the last attempt: block, drop, dead_letter, block_and_dlq or divert.",
    ),
]
RoutingFlag = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="Assignment of keys to workers: ring, sticky, auto-split, exclusive or unordered.",
    ),
]
RingWeights = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH", help="File with the weight of each worker, written by spark skew."
    ),
]
OnUnmatchedFlag = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT", help="Action for records that no worker accepts: skip, hold or error."
    ),
]
UnblockingInterval = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="Interval at which moved keys continue together; 0: each on its own.",
    ),
]
NewWorkersWait = Annotated[
    bool,
    typer.Option(
        "--new-workers-wait",
        help="A joining worker gets no new records until all earlier ones are settled.",
    ),
]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"],
    typer.Option(help="Minimum level of log lines.", envvar="KEYSHARED_LOG_LEVEL"),
]
LogFormat = Annotated[
    Literal["text", "json"],
    typer.Option(help="Log format: text lines, or JSON objects.", envvar="KEYSHARED_LOG_FORMAT"),
]
HttpPort = Annotated[
    int | None,
    typer.Option(
        metavar="INT",
        help="Serve /metrics, /livez, /readyz and /status on this port of 127.0.0.1; 0: any port.",
    ),
]
ConsolePort = Annotated[
    int | None,
    typer.Option(
        metavar="INT",
        help="Serve the console and the admin API on this port of 127.0.0.1; 0: any port.",
    ),
]
AuditLog = Annotated[
    str | None,
    typer.Option(
        metavar="PLACE",
        help="Log the outcome of each record to a folder, or to topic:NAME.",
    ),
]
Outputs = Annotated[
    str | None,
    typer.Option(
        metavar="PLACE",
        help="Where handler outputs go: topic:NAME or a folder; on Spark also parquet:FOLDER.",
    ),
]
Watch = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        min=0.0,
        help="Time to watch the positions. Default: 6 s, or a minute if one may be stuck.",
    ),
]
HeldAfter = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=0.0,
        help="A position without progress for this long counts as stuck.",
    ),
]
StatusUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Also query an instance, by the address of its --http-port: http://127.0.0.1:8787.",
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
    bool, typer.Option("--spark", help="Also check the requirements of `keyshared spark`.")
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="TOML file with the same settings. Default: $KEYSHARED_CONFIG, or keyshared.toml.",
    ),
]
PayloadForm = Annotated[
    str, typer.Option(metavar="TEXT", help="Format of the payload: auto, text, json, avro or hex.")
]
SchemaFile = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="Avro schema of the values, for auto and avro."),
]
SettingsOfApp = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="MODULE:ATTR",
        help="Use the settings of this app, including its oauth_cb, which no flag can give.",
    ),
]
AppDir = Annotated[Path, typer.Option(metavar="PATH", help="Folder to put first on sys.path.")]
Workers = Annotated[int, typer.Option(metavar="INT", min=1, max=1_000, help="Number of workers.")]
RoutingKind = Annotated[
    str,
    typer.Option(
        "--routing", metavar="TEXT", help="Routing: ring, sticky, auto-split or exclusive."
    ),
]
SlotRanges = Annotated[
    list[str] | None,
    typer.Option(
        "--range",
        metavar="WORKER=RANGES",
        help="For sticky: the slots of a worker, as worker-0=0-99,200-299; repeatable.",
    ),
]
Weights = Annotated[
    list[str] | None,
    typer.Option(
        "--weight",
        metavar="WORKER=NUMBER",
        help="For ring: share of a worker relative to the others; repeatable.",
    ),
]
Vnodes = Annotated[
    int,
    typer.Option(metavar="INT", min=1, max=1_000, help="Virtual nodes of each worker on the ring."),
]

"""Options of ``keyshared spark audit`` and ``skew``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kafka_keyshared.cli.options import (
    Bootstrap,
    ClientSettings,
    ConfigFile,
    JsonFlag,
    OutputFlag,
    Topics,
)
from kafka_keyshared.cli.output import OutputFormat
from kafka_keyshared.cli.verbs.spark import ExecutorMemory, Master, SparkSettings

Memory = Annotated[
    str,
    typer.Option(
        "--driver-memory", metavar="SIZE", help="Memory of the driver; with local[*] of all: 2g."
    ),
]
Behind = Annotated[
    str | None,
    typer.Option(
        "-g", "--group", metavar="TEXT", help="Only what lies behind this group's position."
    ),
]
Since = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Only records since: 2026-01-31T12:00Z, or 2h ago."),
]
Until = Annotated[str | None, typer.Option(metavar="TEXT", help="Only records before.")]
Report = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Write JSON, Markdown and plots (SVG) there."),
]


def spark_audit(  # noqa: PLR0917 - each is an option of the command line
    log: Annotated[
        str, typer.Argument(metavar="LOG", help="What --audit-log wrote: a folder, or topic:NAME.")
    ],
    bootstrap_server: Bootstrap = None,
    topic: Topics = None,
    group: Behind = None,
    since: Since = None,
    until: Until = None,
    order_scope: Annotated[
        str, typer.Option(metavar="TEXT", help="As the run had: topic, partition, subscription.")
    ] = "topic",
    clock_tolerance: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.0, help="As far as clocks of machines may differ."),
    ] = 0.05,
    out: Report = None,
    master: Master = "local[*]",
    memory: Memory = "2g",
    executor_memory: ExecutorMemory = "2g",
    spark_conf: SparkSettings = None,
    config: ConfigFile = None,
    x: ClientSettings = None,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Prove order, and that nothing was lost, repeated or overlapped, from a processed log.

    Exit status 0: nothing was broken. 1: something was, and the first cases are named.
    """
    from kafka_keyshared.cli.settings import typed_time
    from kafka_keyshared.cli.spark_audit import AuditArguments, audit_verb
    from kafka_keyshared.cli.spark_tools import SparkPlaceArguments
    from kafka_keyshared.cli.spark_tools import Topics as Named

    arguments = AuditArguments(
        log=log,
        topics=Named(bootstrap_server, topic or [], group, config, x or []),
        since=typed_time("--since", since),
        until=typed_time("--until", until),
        scope=order_scope,
        tolerance=clock_tolerance,
        out=out,
        spark=SparkPlaceArguments(master, memory, spark_conf or [], executor_memory),
    )
    return audit_verb(arguments, OutputFormat.JSON if json else output)


def spark_skew(  # noqa: PLR0917 - each is an option of the command line
    bootstrap_server: Bootstrap = None,
    topic: Topics = None,
    log: Annotated[
        str | None,
        typer.Option(metavar="LOG", help="For time per key, what --audit-log wrote."),
    ] = None,
    group: Behind = None,
    since: Since = None,
    until: Until = None,
    workers: Annotated[
        list[int] | None,
        typer.Option(metavar="INT", min=1, max=1_000, help="For so many; repeatable; 4, 8, 16."),
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What weighs: records, bytes or seconds.")
    ] = None,
    weights_file: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Write weights for the last number of workers there."),
    ] = None,
    out: Report = None,
    master: Master = "local[*]",
    memory: Memory = "2g",
    executor_memory: ExecutorMemory = "2g",
    spark_conf: SparkSettings = None,
    config: ConfigFile = None,
    x: ClientSettings = None,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Find the keys and slots that weigh most, and how evenly a ring spreads them."""
    from kafka_keyshared.cli.settings import typed_time
    from kafka_keyshared.cli.spark_skew import SkewArguments, skew_verb
    from kafka_keyshared.cli.spark_tools import SparkPlaceArguments
    from kafka_keyshared.cli.spark_tools import Topics as Named

    arguments = SkewArguments(
        topics=Named(bootstrap_server, topic or [], group, config, x or []),
        log=log,
        since=typed_time("--since", since),
        until=typed_time("--until", until),
        workers=workers or [4, 8, 16],
        by=by,
        weights_file=weights_file,
        out=out,
        spark=SparkPlaceArguments(master, memory, spark_conf or [], executor_memory),
    )
    return skew_verb(arguments, OutputFormat.JSON if json else output)

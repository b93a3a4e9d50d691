"""Options of ``keyshared spark``: handlers on Apache Spark, and batch tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from kafka_keyshared.cli.arguments import RunArguments, takes_settings
from kafka_keyshared.cli.options import (
    AuditLog,
    Bootstrap,
    ClientSettings,
    ConfigFile,
    Handler,
    JsonFlag,
    OutputFlag,
    Outputs,
    Topics,
)
from kafka_keyshared.cli.output import OutputFormat
from kafka_keyshared.cli.verbs.dlq import (
    DlqOf,
    DlqTopic,
    Error,
    Outstanding,
    RecordKey,
    ReplayId,
    ReplayState,
    SourceGroup,
    SourceTopic,
)
from kafka_keyshared.cli.verbs.dlq import Since as WrittenSince
from kafka_keyshared.cli.verbs.dlq import Until as WrittenUntil

Fetch = Annotated[bool, typer.Option("--fetch", help="Fetch the missing jars with Maven.")]

Mode = Annotated[
    Literal["batch", "stream"],
    typer.Option(
        help="batch: process the current backlog and stop. stream: also process new records. "
        "SIGTERM, Ctrl-C or a pod that joins the group ends both after the current batch."
    ),
]
Master = Annotated[str, typer.Option(metavar="TEXT", help="Spark master, as for spark-submit.")]
DriverMemory = Annotated[str, typer.Option(metavar="SIZE", help="Memory of the driver: 1g.")]
ExecutorMemory = Annotated[str, typer.Option(metavar="SIZE", help="Memory of an executor: 1g.")]
SparkSettings = Annotated[
    list[str] | None,
    typer.Option("--spark-conf", metavar="KEY=VALUE", help="A Spark setting; repeatable."),
]
Archives = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE#NAME",
        help="Archive to unpack as NAME on each executor. If NAME is environment, its bin/python "
        "is used. Repeatable.",
    ),
]
SubmitArgs = Annotated[
    str,
    typer.Option(metavar="TEXT", help="Arguments of spark-submit; they override all others."),
]
SparkLog = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="File for Spark's own log. Default: a temporary file."),
]
BatchOffsets = Annotated[
    int,
    typer.Option(metavar="INT", min=1, help="Maximum offsets of a partition per batch."),
]

StateFolder = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="Folder for the state of a handler class between batches; all executors must see it. "
        "On one machine it is optional: then the state lasts as long as the run.",
    ),
]

Memory = Annotated[
    str,
    typer.Option(
        "--driver-memory",
        metavar="SIZE",
        help="Memory of the driver, with local[*] of the whole run: 2g.",
    ),
]
Behind = Annotated[
    str | None,
    typer.Option(
        "-g", "--group", metavar="TEXT", help="Only records before this group's position."
    ),
]
Since = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Only records since 2026-01-31T12:00Z, or 2h ago as 2h."),
]
Until = Annotated[str | None, typer.Option(metavar="TEXT", help="Only records before this time.")]
Report = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Folder for JSON, Markdown and plots (SVG)."),
]

SelectTo = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="File for the selected places, for dlq replay --selection."),
]

verbs = typer.Typer(
    help="Run a handler on Apache Spark, or analyze all records there.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@verbs.callback()
def before_every_verb() -> None:
    """Keep `spark` a group of commands."""


@verbs.command("run")
@takes_settings(Handler)
def spark_run(  # noqa: PLR0917 - each is an option of the command line
    arguments: RunArguments,
    mode: Mode = "batch",
    master: Master = "local[*]",
    driver_memory: DriverMemory = "1g",
    executor_memory: ExecutorMemory = "1g",
    spark_conf: SparkSettings = None,
    archives: Archives = None,
    submit_args: SubmitArgs = "",
    spark_log: SparkLog = None,
    batch_offsets: BatchOffsets = 1_000_000,
    state: StateFolder = None,
    audit_log: AuditLog = None,
    outputs: Outputs = None,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Run a handler on Spark from the committed positions, and commit.

    The run is the only member of the group; `keyshared run` continues from its commit. SIGTERM and
    Ctrl-C end the run after the current batch. A second signal, at least a second later, abandons
    that batch. Exit status 0: the backlog is done, or a stream was stopped. 1: blocked keys are
    left, a pod joined the group, the run was stopped before the end, or it failed.
    """
    from kafka_keyshared.cli.spark_run import SparkRunArguments, spark_run_verb

    on = SparkRunArguments(
        *(master, driver_memory, executor_memory, tuple(spark_conf or ()), spark_log),
        *(batch_offsets, state, mode == "stream", tuple(archives or ()), submit_args),
    )
    return spark_run_verb(arguments, on, OutputFormat.JSON if json else output, audit_log, outputs)


@verbs.command("jars")
def spark_jars(
    fetch: Fetch = False, json: JsonFlag = False, output: OutputFlag = OutputFormat.TABLE
) -> int:
    """Show the location of Spark's Kafka jars, or fetch them."""
    from kafka_keyshared.cli.spark_jars import jars_verb

    return jars_verb(fetch=fetch, output=OutputFormat.JSON if json else output)


@verbs.command("audit")
def spark_audit(  # noqa: PLR0917 - each is an option of the command line
    log: Annotated[
        str,
        typer.Argument(
            metavar="LOG", help="The log that --audit-log wrote: a folder, or topic:NAME."
        ),
    ],
    bootstrap_server: Bootstrap = None,
    topic: Topics = None,
    group: Behind = None,
    since: Since = None,
    until: Until = None,
    order_scope: Annotated[
        str,
        typer.Option(
            metavar="TEXT", help="Order scope of the run: topic, partition or subscription."
        ),
    ] = "topic",
    clock_tolerance: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0.0,
            help="Maximum difference between the clocks of two processes.",
        ),
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
    """Check a processed log for lost, repeated or reordered records.

    It also finds records of a key that overlap. Exit status 0: no violation. 1: violations were
    found; the first ones are printed.
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


@verbs.command("skew")
def spark_skew(  # noqa: PLR0917 - each is an option of the command line
    bootstrap_server: Bootstrap = None,
    topic: Topics = None,
    log: Annotated[
        str | None,
        typer.Option(metavar="LOG", help="The log that --audit-log wrote, for the time per key."),
    ] = None,
    group: Behind = None,
    since: Since = None,
    until: Until = None,
    workers: Annotated[
        list[int] | None,
        typer.Option(
            metavar="INT",
            min=1,
            max=1_000,
            help="Number of workers; repeatable. Default: 4, 8, 16.",
        ),
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Unit of weight: records, bytes or seconds.")
    ] = None,
    weights_file: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="File for the weights, for the last number of workers."),
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
    """Find the heaviest keys and slots, and the balance of a ring."""
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


@verbs.command("dlq")
def spark_dlq(  # noqa: PLR0917 - each is an option of the command line
    bootstrap_server: Bootstrap = None,
    topic: DlqOf = None,
    dlq: DlqTopic = None,
    source_topic: SourceTopic = None,
    source_group: SourceGroup = None,
    error: Error = None,
    record_key: RecordKey = None,
    since: WrittenSince = None,
    until: WrittenUntil = None,
    outstanding: Outstanding = False,
    id_: ReplayId = None,
    state: ReplayState = None,
    whole_keys: Annotated[
        bool, typer.Option("--whole-keys", help="Also all other dead letters of the selected keys.")
    ] = False,
    limit: Annotated[
        int, typer.Option(metavar="INT", min=1, max=1_000, help="Maximum groups of each kind.")
    ] = 10,
    samples: Annotated[
        int,
        typer.Option(
            metavar="INT", min=0, max=100, help="Newest dead letters to show for each error."
        ),
    ] = 2,
    select: SelectTo = None,
    export: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder for the complete dead letters.")
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", metavar="TEXT", help="Format of --export: json or parquet.")
    ] = "json",
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
    """Group, select and export dead letters.

    The groups are by error, key, topic and time. As in `dlq ls`, values are not shown. Records that
    are no dead letters are counted and listed.
    """
    from kafka_keyshared.cli.dlq_options import LetterOptions, LetterTopicOptions, ProgressPlace
    from kafka_keyshared.cli.spark_dlq import DlqArguments, dlq_verb
    from kafka_keyshared.cli.spark_tools import SparkPlaceArguments

    arguments = DlqArguments(
        where=LetterTopicOptions(bootstrap_server, topic, dlq, config, x or []).told(),
        wanted=LetterOptions(source_topic, source_group, error, record_key, since, until),
        known=ProgressPlace(id_, state),
        outstanding=outstanding,
        whole_keys=whole_keys,
        most=limit,
        samples=samples,
        select=select,
        export=export,
        form=format_,
        out=out,
        spark=SparkPlaceArguments(master, memory, spark_conf or [], executor_memory),
    )
    return dlq_verb(arguments, OutputFormat.JSON if json else output)

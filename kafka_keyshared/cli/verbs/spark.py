"""Options of ``keyshared spark``: handlers on Apache Spark, and batch tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from kafka_keyshared.cli.arguments import RunArguments, takes_settings
from kafka_keyshared.cli.options import AuditLog, Handler, JsonFlag, OutputFlag, Outputs
from kafka_keyshared.cli.output import OutputFormat

Fetch = Annotated[bool, typer.Option("--fetch", help="Have Maven fetch those that are missing.")]

Mode = Annotated[
    Literal["batch", "stream"],
    typer.Option(
        help="batch: everything up to now, and then stop. stream: what comes too. SIGTERM, Ctrl-C "
        "or a pod that joins end both behind a batch."
    ),
]
Master = Annotated[
    str, typer.Option(metavar="TEXT", help="Where Spark runs, as spark-submit takes it.")
]
DriverMemory = Annotated[str, typer.Option(metavar="SIZE", help="Memory of the driver: 1g.")]
ExecutorMemory = Annotated[str, typer.Option(metavar="SIZE", help="Memory of an executor: 1g.")]
SparkSettings = Annotated[
    list[str] | None,
    typer.Option("--spark-conf", metavar="KEY=VALUE", help="A setting of Spark; repeatable."),
]
Archives = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE#NAME",
        help="Unpacked as NAME at each executor; environment: its bin/python is used; repeatable.",
    ),
]
SubmitArgs = Annotated[
    str,
    typer.Option(metavar="TEXT", help="Arguments of spark-submit, which go over all the others."),
]
SparkLog = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="Where Spark's own log goes; else a temporary file."),
]
BatchOffsets = Annotated[
    int,
    typer.Option(metavar="INT", min=1, help="Most offsets of a partition in one batch."),
]

StateFolder = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="Where the state of a handler class is kept from batch to batch; all executors see "
        "it. On one machine it may be left out: then it lasts as long as the run.",
    ),
]

verbs = typer.Typer(
    help="Run a handler on Apache Spark, and look over all records with it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@verbs.callback()
def before_every_verb() -> None:
    """Keep `spark` a group of verbs, however many there are."""


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
    """Run a handler on Spark from where the group stands, and commit as its only member.

    `keyshared run` goes on from there. SIGTERM and Ctrl-C end it behind the batch that runs; once
    more, at least a second later, gives that up. Exit status 0: all is done that was there, or a
    stream was stopped. 1: keys that block have stayed behind, a pod has joined, it was stopped
    before the end, or it failed.
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
    """Say where the jars are that let Spark read and write Kafka, or fetch them once per user."""
    from kafka_keyshared.cli.spark_jars import jars_verb

    return jars_verb(fetch=fetch, output=OutputFormat.JSON if json else output)

"""Options of ``keyshared spark dlq``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kafka_keyshared.cli.options import Bootstrap, ClientSettings, ConfigFile, JsonFlag, OutputFlag
from kafka_keyshared.cli.output import OutputFormat
from kafka_keyshared.cli.verbs.dlq import (
    DlqOf,
    DlqTopic,
    Error,
    Outstanding,
    RecordKey,
    ReplayId,
    ReplayState,
    Since,
    SourceGroup,
    SourceTopic,
    Until,
)
from kafka_keyshared.cli.verbs.spark import ExecutorMemory, Master, SparkSettings
from kafka_keyshared.cli.verbs.spark_tools import Memory, Report


def spark_dlq(  # noqa: PLR0917 - each is an option of the command line
    bootstrap_server: Bootstrap = None,
    topic: DlqOf = None,
    dlq: DlqTopic = None,
    source_topic: SourceTopic = None,
    source_group: SourceGroup = None,
    error: Error = None,
    record_key: RecordKey = None,
    since: Since = None,
    until: Until = None,
    outstanding: Outstanding = False,
    id_: ReplayId = None,
    state: ReplayState = None,
    whole_keys: Annotated[
        bool, typer.Option("--whole-keys", help="And all other letters of the keys of these.")
    ] = False,
    limit: Annotated[
        int, typer.Option(metavar="INT", min=1, max=1_000, help="Most groups of a kind.")
    ] = 10,
    samples: Annotated[
        int, typer.Option(metavar="INT", min=0, max=100, help="Newest letters of each error.")
    ] = 2,
    select: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Write their places there, for dlq replay --selection."),
    ] = None,
    export: Annotated[
        str | None, typer.Option(metavar="DIR", help="Write the letters there, whole.")
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", metavar="TEXT", help="Of --export: json or parquet.")
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
    """Group dead letters by error, key, topic and time; choose, export, and name what to replay.

    As in `dlq ls`, no values are shown. What is no letter is counted and named.
    """
    from kafka_keyshared.cli.dlq_options import LetterOptions, LetterTopicOptions
    from kafka_keyshared.cli.dlq_progress import ProgressPlace
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

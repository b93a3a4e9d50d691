"""Options of ``keyshared dlq``: list, show, export and replay dead letters."""

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
    PayloadForm,
    SchemaFile,
    SettingsOfApp,
)
from kafka_keyshared.cli.output import OutputFormat

ReplayId = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="TEXT",
        help="Name of the replay progress in the topic <DLQ>.replays.",
    ),
]
ReplayState = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="File for the replay progress instead; created if missing."),
]
Outstanding = Annotated[
    bool, typer.Option("--outstanding", help="Only dead letters that were not replayed.")
]
Partitioner = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT", help="Choose the partition by the key: murmur2_random as in Java, …"
    ),
]
MaxLetters = Annotated[
    int,
    typer.Option(
        metavar="INT",
        min=1,
        help="Maximum number of dead letters in a plan; each takes about 200 bytes.",
    ),
]

TargetTopic = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Target topic. Default: the source topic of each record."),
]
ReplayRate = Annotated[
    float | None,
    typer.Option(metavar="FLOAT", min=0.001, help="Maximum number of dead letters per second."),
]

verbs = typer.Typer(
    help="List, show, export and replay dead letters.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

DlqOf = Annotated[
    str | None,
    typer.Option(
        "-t",
        "--topic",
        metavar="TEXT",
        help="Source topic of the dead letters, which are in <topic>.dlq.",
    ),
]
DlqTopic = Annotated[
    str | None,
    typer.Option("--dlq", metavar="TEXT", help="The dead-letter topic, if it has another name."),
]
SourceTopic = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Only dead letters of records of this topic.")
]
SourceGroup = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Only dead letters that this group wrote.")
]
Error = Annotated[
    str | None, typer.Option(metavar="REGEX", help="Only errors whose TYPE: MESSAGE matches.")
]
RecordKey = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Only records with this key: text, or bytes as hex:00ff."),
]
Since = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT", help="Only dead letters written since 2026-01-31T12:00Z, or 2h ago as 2h."
    ),
]
Until = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Only dead letters written before this time.")
]
Partition = Annotated[
    int | None,
    typer.Option(metavar="INT", min=0, help="Only this partition of the dead-letter topic."),
]
Offset = Annotated[
    int | None,
    typer.Option(metavar="INT", min=0, help="Only this offset of the dead-letter topic."),
]
SelectionFile = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH", help="Only dead letters in this file, from spark dlq --select or export."
    ),
]


@verbs.command("ls")
def dlq_ls(  # noqa: PLR0917 - each is an option of the command line
    bootstrap_server: Bootstrap = None,
    topic: DlqOf = None,
    dlq: DlqTopic = None,
    limit: Annotated[
        int,
        typer.Option(
            metavar="INT", min=0, max=10_000, help="Number of newest dead letters to list."
        ),
    ] = 10,
    outstanding: Outstanding = False,
    id_: ReplayId = None,
    state: ReplayState = None,
    source_topic: SourceTopic = None,
    source_group: SourceGroup = None,
    error: Error = None,
    record_key: RecordKey = None,
    since: Since = None,
    until: Until = None,
    partition: Partition = None,
    offset: Offset = None,
    selection: SelectionFile = None,
    app: SettingsOfApp = None,
    config: ConfigFile = None,
    x: ClientSettings = None,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Count dead letters by source, group and error; list the newest.

    Values and headers are not shown.
    """
    from kafka_keyshared.cli.dlq import LsArguments, ls_verb
    from kafka_keyshared.cli.dlq_options import LetterOptions, LetterTopicOptions, ProgressPlace

    wanted = LetterOptions(
        *(source_topic, source_group, error, record_key, since, until, partition, offset),
        selection,
    )
    shown = OutputFormat.JSON if json else output
    where = LetterTopicOptions(bootstrap_server, topic, dlq, config, x or [], app).told()
    known = ProgressPlace(id_, state)
    return ls_verb(LsArguments(where, wanted.choice(), known, limit, outstanding), shown)


@verbs.command("show")
def dlq_show(  # noqa: PLR0917 - each is an option of the command line
    place: Annotated[
        str,
        typer.Argument(
            metavar="PLACE", help="0:12 as in dlq ls, or orders.dlq-0@12 as in the log."
        ),
    ],
    bootstrap_server: Bootstrap = None,
    topic: DlqOf = None,
    dlq: DlqTopic = None,
    payload: PayloadForm = "auto",
    schema: SchemaFile = None,
    app: SettingsOfApp = None,
    config: ConfigFile = None,
    x: ClientSettings = None,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Show one dead letter: the error, its stack and the record."""
    from kafka_keyshared.cli.dlq import show_verb
    from kafka_keyshared.cli.dlq_options import LetterTopicOptions, make_decoder

    shown = OutputFormat.JSON if json else output
    where = LetterTopicOptions(bootstrap_server, topic, dlq, config, x or [], app).told()
    return show_verb(where, place, make_decoder(payload, schema), shown)


@verbs.command("export")
def dlq_export(  # noqa: PLR0917 - each is an option of the command line
    bootstrap_server: Bootstrap = None,
    topic: DlqOf = None,
    dlq: DlqTopic = None,
    file: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Output file. Default: standard output.")
    ] = None,
    format_: Annotated[
        str,
        typer.Option(
            "--format", metavar="TEXT", help="jsonl, or avro for a file of complete dead letters."
        ),
    ] = "jsonl",
    payload: PayloadForm = "auto",
    schema: SchemaFile = None,
    outstanding: Outstanding = False,
    id_: ReplayId = None,
    state: ReplayState = None,
    source_topic: SourceTopic = None,
    source_group: SourceGroup = None,
    error: Error = None,
    record_key: RecordKey = None,
    since: Since = None,
    until: Until = None,
    partition: Partition = None,
    offset: Offset = None,
    selection: SelectionFile = None,
    app: SettingsOfApp = None,
    config: ConfigFile = None,
    x: ClientSettings = None,
) -> int:
    """Export complete dead letters, one JSON object per line."""
    from kafka_keyshared.cli.dlq import ExportArguments, export_verb
    from kafka_keyshared.cli.dlq_options import (
        LetterOptions,
        LetterTopicOptions,
        ProgressPlace,
        make_decoder,
    )

    wanted = LetterOptions(
        *(source_topic, source_group, error, record_key, since, until, partition, offset),
        selection,
    )
    where = LetterTopicOptions(bootstrap_server, topic, dlq, config, x or [], app).told()
    decoder = make_decoder(payload, schema)
    known = ProgressPlace(id_, state) if outstanding else None
    return export_verb(ExportArguments(where, wanted.choice(), file, format_, decoder, known))


@verbs.command("replay")
def dlq_replay(  # noqa: PLR0917 - each is an option of the command line
    bootstrap_server: Bootstrap = None,
    topic: DlqOf = None,
    dlq: DlqTopic = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Send the records; without it, only print the plan.")
    ] = False,
    to: TargetTopic = None,
    id_: ReplayId = None,
    state: ReplayState = None,
    rate: ReplayRate = None,
    max_replays: Annotated[
        int,
        typer.Option(
            metavar="INT", min=1, help="Skip dead letters that were replayed this many times."
        ),
    ] = 3,
    order: Annotated[
        str,
        typer.Option(
            metavar="TEXT", help="key, or partition for one record of a source partition at a time."
        ),
    ] = "key",
    partitioner: Partitioner = None,
    max_letters: MaxLetters = 1_000_000,
    source_topic: SourceTopic = None,
    source_group: SourceGroup = None,
    error: Error = None,
    record_key: RecordKey = None,
    since: Since = None,
    until: Until = None,
    partition: Partition = None,
    offset: Offset = None,
    selection: SelectionFile = None,
    app: SettingsOfApp = None,
    config: ConfigFile = None,
    x: ClientSettings = None,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Replay dead letters to their source topics, each key in its order.

    Without --execute only the plan is printed. Exit status 1: some records were refused, or the
    replay was interrupted. The same command then continues.
    """
    from kafka_keyshared.cli.dlq_options import LetterOptions, LetterTopicOptions, ProgressPlace
    from kafka_keyshared.cli.dlq_replay import ReplayArguments, replay_verb

    wanted = LetterOptions(
        *(source_topic, source_group, error, record_key, since, until, partition, offset),
        selection,
    )
    arguments = ReplayArguments(
        where=LetterTopicOptions(bootstrap_server, topic, dlq, config, x or [], app).told(),
        choice=wanted.choice(),
        execute=execute,
        to=to,
        known=ProgressPlace(id_, state),
        rate=rate,
        max_replays=max_replays,
        order=order,
        partitioner=partitioner,
        max_letters=max_letters,
    )
    return replay_verb(arguments, OutputFormat.JSON if json else output)

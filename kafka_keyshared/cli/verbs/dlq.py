"""Options of ``keyshared dlq``, which reads and replays dead letters."""

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
        help="Under which name what was replayed is known, in the topic <DLQ>.replays.",
    ),
]
ReplayState = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="Know it from a file instead, which is made when missing."),
]
Outstanding = Annotated[
    bool, typer.Option("--outstanding", help="Only letters that were not replayed.")
]
Partitioner = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT", help="Let the key choose the partition: murmur2_random, as Java does, …"
    ),
]
MaxLetters = Annotated[
    int,
    typer.Option(
        metavar="INT", min=1, help="Refuse to plan more: each takes about 200 bytes of memory."
    ),
]

verbs = typer.Typer(
    help="Look at dead letters, and replay them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

DlqOf = Annotated[
    str | None,
    typer.Option(
        "-t", "--topic", metavar="TEXT", help="The topic whose dead letters they are: <topic>.dlq."
    ),
]
DlqTopic = Annotated[
    str | None,
    typer.Option("--dlq", metavar="TEXT", help="The dead-letter topic itself, where named else."),
]
SourceTopic = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Only letters of records of this topic.")
]
SourceGroup = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Only letters that this group wrote.")
]
Error = Annotated[
    str | None, typer.Option(metavar="REGEX", help="Only where TYPE: MESSAGE matches somewhere.")
]
RecordKey = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Only of records with this key: text, or bytes as hex:00ff."),
]
Since = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Only letters written since: 2026-01-31T12:00Z, or 2h ago."),
]
Until = Annotated[str | None, typer.Option(metavar="TEXT", help="Only letters written before.")]
Partition = Annotated[
    int | None, typer.Option(metavar="INT", min=0, help="Only of this partition of the DLQ.")
]
Offset = Annotated[
    int | None, typer.Option(metavar="INT", min=0, help="Only at this offset of the DLQ.")
]
SelectionFile = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH", help="Only letters that a file names: of spark dlq --select, or of export."
    ),
]


@verbs.command("ls")
def dlq_ls(  # noqa: PLR0917 - each is an option of the command line
    bootstrap_server: Bootstrap = None,
    topic: DlqOf = None,
    dlq: DlqTopic = None,
    limit: Annotated[
        int, typer.Option(metavar="INT", min=0, max=10_000, help="Newest letters to list.")
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
    """Count letters by source, group and error, and list the newest. No values, no headers."""
    from kafka_keyshared.cli.dlq import LsArguments, ls_verb
    from kafka_keyshared.cli.dlq_options import LetterOptions, LetterTopicOptions
    from kafka_keyshared.cli.dlq_progress import ProgressPlace

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
        typer.Argument(metavar="PLACE", help="0:12 as ls lists it, orders.dlq-0@12 as the log."),
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
    """Show one letter whole: what failed, why, with which stack, and the record."""
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
        Path | None, typer.Option(metavar="PATH", help="Where to; without it, to standard output.")
    ] = None,
    format_: Annotated[
        str,
        typer.Option("--format", metavar="TEXT", help="jsonl, or avro: a file of whole letters."),
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
    """Write letters with everything in them, one JSON object a line."""
    from kafka_keyshared.cli.dlq_export import ExportArguments, export_verb
    from kafka_keyshared.cli.dlq_options import LetterOptions, LetterTopicOptions, make_decoder
    from kafka_keyshared.cli.dlq_progress import ProgressPlace

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
    execute: Annotated[bool, typer.Option("--execute", help="Do it, not only say it.")] = False,
    to: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Another topic than the one each record came from."),
    ] = None,
    id_: ReplayId = None,
    state: ReplayState = None,
    rate: Annotated[
        float | None, typer.Option(metavar="FLOAT", min=0.001, help="Letters a second.")
    ] = None,
    max_replays: Annotated[
        int, typer.Option(metavar="INT", min=1, help="Refuse what was replayed so often before.")
    ] = 3,
    order: Annotated[
        str,
        typer.Option(
            metavar="TEXT", help="key, or partition: one letter of a source partition at a time."
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
    """Send records back where they came from, each key in its order. Says what it would do first.

    Exit status 1: some were refused, or it was interrupted; the same command goes on from there.
    """
    from kafka_keyshared.cli.dlq_options import LetterOptions, LetterTopicOptions
    from kafka_keyshared.cli.dlq_progress import ProgressPlace
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

"""Options of ``keyshared read``, which reads some slots without a group."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_keyshared.cli.options import (
    Bootstrap,
    ClientSettings,
    ConfigFile,
    JsonFlag,
    OutputFlag,
    PayloadForm,
    RunKey,
    SchemaFile,
    Topics,
)
from kafka_keyshared.cli.output import OutputFormat


def read(  # noqa: PLR0917 - each is an option of the command line
    bootstrap_server: Bootstrap = None,
    topic: Topics = None,
    key_hash_range: Annotated[
        str | None,
        typer.Option(
            metavar="RANGES", help="Slots to read: 0-10000,20001-30000, both ends included."
        ),
    ] = None,
    from_: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="BOUND",
            help="Start: earliest, latest, P:OFFSET (only partition P), -N from end, or a time.",
        ),
    ] = "earliest",
    until: Annotated[
        str | None,
        typer.Option(
            metavar="BOUND", help="End, exclusive. Default: the current ends of the logs."
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Continue until Ctrl-C.")] = False,
    limit: Annotated[
        int | None, typer.Option(metavar="INT", min=1, help="Maximum number of records.")
    ] = None,
    keyless: Annotated[
        bool, typer.Option("--keyless", help="Also print records without a key.")
    ] = False,
    slot_function: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="mmh3, fnv1a or pulsar. Default: the configured one, or mmh3."
        ),
    ] = None,
    key: RunKey = None,
    payload: PayloadForm = "auto",
    schema: SchemaFile = None,
    config: ConfigFile = None,
    x: ClientSettings = None,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Print the records of some slots, one per line.

    The command joins no group, commits nothing and writes nothing.
    """
    from kafka_keyshared.cli.arguments import RunArguments
    from kafka_keyshared.cli.dlq_options import make_decoder
    from kafka_keyshared.cli.read import ReadArguments, read_verb

    run = RunArguments(
        bootstrap=bootstrap_server, topics=topic or [], key=key, config=config, client=x or []
    )
    arguments = ReadArguments(
        run,
        ranges=key_hash_range,
        start=from_,
        until=until,
        follow=follow,
        limit=limit,
        keyless=keyless,
        slot_function=slot_function,
        decoder=make_decoder(payload, schema),
    )
    return read_verb(arguments, OutputFormat.JSON if json else output)

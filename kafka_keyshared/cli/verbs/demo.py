"""Options of ``keyshared demo``."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_keyshared.cli.options import AuditLog, Bootstrap, ClientSettings, JsonFlag, OutputFlag
from kafka_keyshared.cli.output import OutputFormat

verbs = typer.Typer(
    help="Process a year of flights and verify every record.",
    rich_markup_mode=None,
)


@verbs.callback(invoke_without_command=True)
def demo(  # noqa: PLR0917 - each is an option of the command line
    context: typer.Context,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
    sabotage: Annotated[str | None, typer.Option(metavar="TEXT", hidden=True)] = None,
    records: Annotated[int | None, typer.Option(metavar="INT", hidden=True)] = None,
    audit_log: AuditLog = None,
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Such as thread:8, asyncio:256 or process:2. Default: 16 threads."
        ),
    ] = None,
    console: Annotated[
        bool, typer.Option("--console", help="Serve the console, and keep running at the end.")
    ] = False,
    story: Annotated[
        bool,
        typer.Option("--story", help="Show four typical problems and their diagnosis instead."),
    ] = False,
) -> int:
    """Process a year of flights on an embedded cluster and verify every record.

    There are 362,891 records, 4 partitions and 16 workers. Late flights wait for a call. Cancelled
    flights fail three times and go to the dead-letter topic. Exit status 0: no record was
    reordered, lost, repeated or overlapped.
    """
    if context.invoked_subcommand is not None:
        return 0
    from kafka_keyshared.cli.demo import demo_verb, story_verb

    shown = OutputFormat.JSON if json else output
    if story:
        return story_verb(shown, console=console, others=(sabotage, records, audit_log, workers))
    return demo_verb(shown, sabotage, records, audit_log, console=console, workers=workers)


@verbs.command("load")
def demo_load(  # noqa: PLR0917 - each is an option of the command line
    bootstrap_server: Bootstrap = None,
    topic: Annotated[
        str,
        typer.Option(
            "-t", "--topic", metavar="TEXT", help="Topic to write to; created if missing."
        ),
    ] = "flights",
    partitions: Annotated[
        int, typer.Option(metavar="INT", min=1, help="Partitions of the topic if it is created.")
    ] = 16,
    x: ClientSettings = None,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Write the year of flights to a topic of your cluster."""
    from kafka_keyshared.cli.demo import load_verb

    return load_verb(
        bootstrap_server, topic, partitions, x or [], OutputFormat.JSON if json else output
    )

"""Options of ``keyshared advise`` and ``keyshared init``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kafka_keyshared.cli.options import (
    Bootstrap,
    ClientSettings,
    ConfigFile,
    Group,
    JsonFlag,
    OutputFlag,
    RunKey,
    SettingsOfApp,
    Topics,
)
from kafka_keyshared.cli.output import OutputFormat


def advise(  # noqa: PLR0917 - each is an option of the command line
    bootstrap_server: Bootstrap = None,
    topic: Topics = None,
    group: Annotated[
        str | None,
        typer.Option("-g", "--group", metavar="TEXT", help="Whose lag to reckon with; not joined."),
    ] = None,
    ms_per_record: Annotated[
        float, typer.Option(metavar="FLOAT", help="How long your handler takes for a record.")
    ] = 5.0,
    seconds: Annotated[
        float, typer.Option(metavar="FLOAT", help="How long to read at most.")
    ] = 30.0,
    key: RunKey = None,
    app: SettingsOfApp = None,
    config: ConfigFile = None,
    x: ClientSettings = None,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Look at the keys of a topic and say what more workers would gain.

    Joins no group, commits and writes nothing.
    """
    from kafka_keyshared.cli.advise import advise_verb
    from kafka_keyshared.cli.arguments import RunArguments

    arguments = RunArguments(
        bootstrap=bootstrap_server,
        topics=topic or [],
        group=group,
        key=key,
        config=config,
        client=x or [],
    )
    shown = OutputFormat.JSON if json else output
    return advise_verb(arguments, ms_per_record, seconds, shown, app)


def init(
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="Made when missing.")] = Path(),
    bootstrap_server: Bootstrap = None,
    topic: Annotated[
        str, typer.Option("-t", "--topic", metavar="TEXT", help="What it reads.")
    ] = "orders",
    group: Group = None,
) -> int:
    """Write a handler, its configuration and a test of it that passes."""
    from kafka_keyshared.cli.init import init_verb

    return init_verb(directory, bootstrap_server, topic, group)

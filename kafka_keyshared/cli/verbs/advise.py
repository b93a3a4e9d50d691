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
        typer.Option(
            "-g", "--group", metavar="TEXT", help="Group whose lag is used; it is not joined."
        ),
    ] = None,
    ms_per_record: Annotated[
        float,
        typer.Option(
            metavar="FLOAT", help="Time that your handler takes for a record, in milliseconds."
        ),
    ] = 5.0,
    seconds: Annotated[
        float, typer.Option(metavar="FLOAT", help="Maximum time to read, in seconds.")
    ] = 30.0,
    key: RunKey = None,
    app: SettingsOfApp = None,
    config: ConfigFile = None,
    x: ClientSettings = None,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Estimate the gain from more workers on a topic.

    The command samples the keys of the topic. It joins no group and writes nothing.
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
    directory: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Folder for the files; created if missing.")
    ] = Path(),
    bootstrap_server: Bootstrap = None,
    topic: Annotated[
        str, typer.Option("-t", "--topic", metavar="TEXT", help="Topic that the handler reads.")
    ] = "orders",
    group: Group = None,
) -> int:
    """Create a handler, its configuration and a passing test."""
    from kafka_keyshared.cli.init import init_verb

    return init_verb(directory, bootstrap_server, topic, group)

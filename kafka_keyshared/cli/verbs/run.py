"""``keyshared run`` and ``keyshared doctor``: the same settings, to run with or to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kafka_keyshared.cli.options import (
    AppDir,
    Bootstrap,
    ClientSettings,
    ConfigFile,
    DeadLetters,
    DeadLettersCreate,
    Group,
    JsonFlag,
    OutputFlag,
    RunWorkers,
    Topics,
)
from kafka_keyshared.cli.output import Output


def run_command(  # noqa: PLR0917 - each is an option of the command line
    handler: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:ATTR",
            help="A function, a handler class or an app; or path/file.py:ATTR.",
        ),
    ],
    bootstrap_server: Bootstrap = None,
    topic: Topics = None,
    group: Group = None,
    workers: RunWorkers = None,
    dlq: DeadLetters = None,
    dlq_create: DeadLettersCreate = False,
    http_port: Annotated[
        int | None,
        typer.Option(help="Serve /metrics, /livez and /readyz on 127.0.0.1 there; 0: any port."),
    ] = None,
    config: ConfigFile = None,
    app_dir: AppDir = Path(),
    x: ClientSettings = None,
) -> int:
    """Run a handler until SIGTERM or Ctrl-C, then drain, commit and leave."""
    from kafka_keyshared.cli.run import RunArguments, run_verb

    return run_verb(
        RunArguments(
            handler=handler,
            bootstrap=bootstrap_server,
            topics=topic or [],
            group=group,
            workers=workers,
            dlq=dlq,
            dlq_create=dlq_create,
            config=config,
            app_dir=app_dir,
            client=x or [],
            http_port=http_port,
        )
    )


def doctor(  # noqa: PLR0917 - each is an option of the command line
    handler: Annotated[
        str | None, typer.Argument(metavar="MODULE:ATTR", help="As for run; may be left out.")
    ] = None,
    bootstrap_server: Bootstrap = None,
    topic: Topics = None,
    group: Group = None,
    workers: RunWorkers = None,
    dlq: DeadLetters = None,
    dlq_create: DeadLettersCreate = False,
    config: ConfigFile = None,
    app_dir: AppDir = Path(),
    x: ClientSettings = None,
    json: JsonFlag = False,
    output: OutputFlag = Output.TABLE,
) -> int:
    """Look at everything that a run needs, in order; join and write nothing.

    Exit status 0: healthy, there may be warnings. 3: a check failed.
    """
    from kafka_keyshared.cli.doctor import doctor_verb
    from kafka_keyshared.cli.run import RunArguments

    arguments = RunArguments(
        handler=handler,
        bootstrap=bootstrap_server,
        topics=topic or [],
        group=group,
        workers=workers,
        dlq=dlq,
        dlq_create=dlq_create,
        config=config,
        app_dir=app_dir,
        client=x or [],
    )
    return doctor_verb(arguments, Output.JSON if json else output)

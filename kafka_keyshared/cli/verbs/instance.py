"""Options of the commands for a running instance, from ``status`` to ``scale``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from kafka_keyshared.cli.options import JsonFlag, OutputFlag
from kafka_keyshared.cli.output import OutputFormat

HERE = "http://127.0.0.1:8787"

Url: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="URL",
        envvar="KEYSHARED_URL",
        show_envvar=False,
        help="Address of the instance: its --http-port or console_port; or $KEYSHARED_URL.",
    ),
]
TokenFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        envvar="KEYSHARED_HTTP_TOKEN_FILE",
        show_envvar=False,
        help="File with the instance's token; or $KEYSHARED_HTTP_TOKEN_FILE.",
    ),
]
Execute: TypeAlias = Annotated[
    bool, typer.Option("--execute", help="Make the change; without it, only print the change.")
]
OfTopics: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("-t", "--topic", metavar="TEXT", help="Only this topic; repeatable."),
]
OfPartitions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--partition", metavar="TOPIC-N", help="Only this partition: orders-3; repeatable."
    ),
]
Timeout: TypeAlias = Annotated[
    float,
    typer.Option(
        metavar="SECONDS", min=0.1, max=300.0, help="Maximum time to wait for running records."
    ),
]
ShowKeys: TypeAlias = Annotated[
    bool,
    typer.Option("--show-keys", help="Show the keys of records, if the instance has show_keys."),
]


def status(
    url: Annotated[
        str,
        typer.Argument(
            metavar="[URL]",
            envvar="KEYSHARED_URL",
            show_envvar=False,
            help="Address of the instance: its --http-port, with --group its --console-port; or "
            "$KEYSHARED_URL.",
        ),
    ] = HERE,
    *,
    show_keys: ShowKeys = False,
    group: Annotated[
        bool, typer.Option("--group", help="Show every instance of the group, one per line.")
    ] = False,
    token_file: TokenFile = None,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Show the health of a running instance, and what to do first.

    Exit status 0: healthy, possibly with warnings. 3: a finding needs operator action. With
    --group also 3 if an instance of the group is unhealthy or silent, or cannot be read.
    """
    shown = OutputFormat.JSON if json else output
    if group:
        from kafka_keyshared.cli.status import group_verb

        return group_verb(url, token_file, shown)
    from kafka_keyshared.cli.status import status_verb

    return status_verb(url, shown, keys=show_keys)


def lag(url: Url = HERE, json: JsonFlag = False, output: OutputFlag = OutputFormat.TABLE) -> int:
    """Show the lag of a running instance by partition.

    The lag counts from the committed position to the end of the log. The backlog is the lag without
    the records that are settled already.
    """
    from kafka_keyshared.cli.lag import lag_verb

    return lag_verb(url, OutputFormat.JSON if json else output)


def top(url: Url = HERE, show_keys: ShowKeys = False) -> int:
    """Watch a running instance on the terminal.

    The screen shows the diagnosis, totals, workers, partitions and stuck records, and is refreshed
    every second. It needs the extra tui. Press q to quit.
    """
    from kafka_keyshared.cli.top import top_verb

    return top_verb(url, keys=show_keys)


def pause(  # noqa: PLR0917 - each is an option of the command line
    topic: OfTopics = None,
    partition: OfPartitions = None,
    url: Url = HERE,
    token_file: TokenFile = None,
    execute: Execute = False,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Pause fetching of all or some partitions of an instance.

    Fetched records still run and are committed. The pause lasts until resume, or until the process
    ends.
    """
    from kafka_keyshared.cli.control import act_verb, partitions_typed
    from kafka_keyshared.observability.web.command_list import PauseOrder

    those = None if partition is None else partitions_typed(partition)
    order = PauseOrder(topics=None if topic is None else tuple(topic), partitions=those)
    shown = OutputFormat.JSON if json else output
    return act_verb(url, order, token_file, execute=execute, output=shown)


def resume(  # noqa: PLR0917 - each is an option of the command line
    topic: OfTopics = None,
    partition: OfPartitions = None,
    url: Url = HERE,
    token_file: TokenFile = None,
    execute: Execute = False,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Resume fetching of partitions that were paused by hand."""
    from kafka_keyshared.cli.control import act_verb, partitions_typed
    from kafka_keyshared.observability.web.command_list import ResumeOrder

    those = None if partition is None else partitions_typed(partition)
    order = ResumeOrder(topics=None if topic is None else tuple(topic), partitions=those)
    shown = OutputFormat.JSON if json else output
    return act_verb(url, order, token_file, execute=execute, output=shown)


def quiesce(  # noqa: PLR0917 - each is an option of the command line
    url: Url = HERE,
    token_file: TokenFile = None,
    timeout: Timeout = 30.0,
    execute: Execute = False,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Pause all partitions, finish the fetched records and commit.

    The instance stays in its group, paused until resume. The command does not wait for records that
    are blocked or wait for a retry.
    """
    from kafka_keyshared.cli.control import act_verb
    from kafka_keyshared.observability.web.command_list import QuiesceOrder

    shown = OutputFormat.JSON if json else output
    order = QuiesceOrder(timeout=timeout)
    return act_verb(url, order, token_file, execute=execute, output=shown)


def scale(  # noqa: PLR0917 - each is an option of the command line
    workers: Annotated[
        int, typer.Argument(metavar="WORKERS", min=1, max=10_000, help="Number of workers.")
    ],
    url: Url = HERE,
    token_file: TokenFile = None,
    timeout: Timeout = 30.0,
    execute: Execute = False,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Change the number of workers of a running instance.

    No record is lost, repeated or reordered.
    """
    from kafka_keyshared.cli.control import act_verb
    from kafka_keyshared.observability.web.command_list import ScaleOrder

    shown = OutputFormat.JSON if json else output
    order = ScaleOrder(workers=workers, timeout=timeout)
    return act_verb(url, order, token_file, execute=execute, output=shown)

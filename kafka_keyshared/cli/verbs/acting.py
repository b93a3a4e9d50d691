"""Options of ``keyshared lag``, ``top``, ``pause``, ``resume``, ``drain`` and ``scale``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from kafka_keyshared.cli.options import JsonFlag, OutputFlag
from kafka_keyshared.cli.output import OutputFormat

Url: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="URL",
        envvar="KEYSHARED_URL",
        show_envvar=False,
        help="The instance: where its --http-port or its console_port is; or $KEYSHARED_URL.",
    ),
]
HERE = "http://127.0.0.1:8787"

TokenFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        envvar="KEYSHARED_HTTP_TOKEN_FILE",
        show_envvar=False,
        help="The token that the instance has; or $KEYSHARED_HTTP_TOKEN_FILE.",
    ),
]
Execute: TypeAlias = Annotated[
    bool, typer.Option("--execute", help="Do it; otherwise what would change is printed.")
]
OfTopics: TypeAlias = Annotated[
    list[str] | None, typer.Option("-t", "--topic", metavar="TEXT", help="Only it; repeatable.")
]
OfPartitions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--partition", metavar="TOPIC-N", help="Only it: orders-3; repeatable."),
]
Timeout: TypeAlias = Annotated[
    float,
    typer.Option(metavar="SECONDS", min=0.1, max=300.0, help="How long to wait for what runs."),
]


def lag(url: Url = HERE, json: JsonFlag = False, output: OutputFlag = OutputFormat.TABLE) -> int:
    """Say how far a running instance is behind, by partition.

    The lag is up to the end of the log from what is committed; the backlog leaves out what is
    settled beyond that already.
    """
    from kafka_keyshared.cli.lag import lag_verb

    return lag_verb(url, OutputFormat.JSON if json else output)


def top(
    url: Url = HERE,
    show_keys: Annotated[
        bool,
        typer.Option(
            "--show-keys", help="Name keys of records, where the instance shows them (show_keys)."
        ),
    ] = False,
) -> int:
    """Watch a running instance: diagnosis, totals, workers, partitions, and what is stuck.

    It needs the extra tui. q ends it.
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
    """Have a running instance fetch nothing more, from some or from anything.

    What has been fetched runs to its end. It lasts until resume, or to the end of the process.
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
    """Have a running instance fetch again what was paused by hand."""
    from kafka_keyshared.cli.control import act_verb, partitions_typed
    from kafka_keyshared.observability.web.command_list import ResumeOrder

    those = None if partition is None else partitions_typed(partition)
    order = ResumeOrder(topics=None if topic is None else tuple(topic), partitions=those)
    shown = OutputFormat.JSON if json else output
    return act_verb(url, order, token_file, execute=execute, output=shown)


def drain(  # noqa: PLR0917 - each is an option of the command line
    url: Url = HERE,
    token_file: TokenFile = None,
    timeout: Timeout = 30.0,
    execute: Execute = False,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Have a running instance fetch nothing more, end what it has, and commit it.

    It stays in its group, paused until resume. What is blocked, or waits for another attempt, is
    not waited for.
    """
    from kafka_keyshared.cli.control import act_verb
    from kafka_keyshared.observability.web.command_list import DrainOrder

    shown = OutputFormat.JSON if json else output
    order = DrainOrder(timeout=timeout)
    return act_verb(url, order, token_file, execute=execute, output=shown)


def scale(  # noqa: PLR0917 - each is an option of the command line
    workers: Annotated[int, typer.Argument(metavar="WORKERS", min=1, max=10_000, help="How many.")],
    url: Url = HERE,
    token_file: TokenFile = None,
    timeout: Timeout = 30.0,
    execute: Execute = False,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Bring a running instance to so many workers; no record is lost, repeated or reordered."""
    from kafka_keyshared.cli.control import act_verb
    from kafka_keyshared.observability.web.command_list import ScaleOrder

    shown = OutputFormat.JSON if json else output
    order = ScaleOrder(workers=workers, timeout=timeout)
    return act_verb(url, order, token_file, execute=execute, output=shown)

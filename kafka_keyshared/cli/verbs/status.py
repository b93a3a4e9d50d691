"""Options of ``keyshared status``, for one instance or a group."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_keyshared.cli.options import JsonFlag, OutputFlag
from kafka_keyshared.cli.output import OutputFormat
from kafka_keyshared.cli.verbs.acting import TokenFile


def status(
    url: Annotated[
        str,
        typer.Argument(
            metavar="[URL]",
            envvar="KEYSHARED_URL",
            show_envvar=False,
            help="Where the instance's --http-port is, with --group its --console-port; or "
            "$KEYSHARED_URL.",
        ),
    ] = "http://127.0.0.1:8787",
    *,
    show_keys: Annotated[
        bool,
        typer.Option(
            "--show-keys", help="Name keys of records, where the instance shows them (show_keys)."
        ),
    ] = False,
    group: Annotated[
        bool, typer.Option("--group", help="Show every instance of its group, a line each.")
    ] = False,
    token_file: TokenFile = None,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Say whether a running instance is healthy, or what is to be mended first.

    Exit status 0: healthy, there may be warnings. 3: something stands still; with --group, in any
    instance of the group, or one is silent, or not all can be heard.
    """
    shown = OutputFormat.JSON if json else output
    if group:
        from kafka_keyshared.cli.group import group_verb

        return group_verb(url, token_file, shown)
    from kafka_keyshared.cli.status import status_verb

    return status_verb(url, shown, keys=show_keys)

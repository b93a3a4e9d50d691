"""``keyshared status``: what is wrong with a running instance."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_keyshared.cli.options import JsonFlag, OutputFlag
from kafka_keyshared.cli.output import Output


def status(
    url: Annotated[
        str,
        typer.Argument(
            metavar="[URL]",
            envvar="KEYSHARED_URL",
            show_envvar=False,
            help="Where the instance's --http-port is; or $KEYSHARED_URL.",
        ),
    ] = "http://127.0.0.1:8787",
    show_keys: Annotated[bool, typer.Option("--show-keys", help="Name keys of records.")] = False,
    json: JsonFlag = False,
    output: OutputFlag = Output.TABLE,
) -> int:
    """Say whether a running instance is healthy, or what is to be mended first.

    Exit status 0: healthy, there may be warnings. 3: something stands still.
    """
    from kafka_keyshared.cli.diagnosis import status_verb

    return status_verb(url, Output.JSON if json else output, keys=show_keys)

"""Options of ``keyshared config``: effective settings, their check, their schema."""

from __future__ import annotations

import typer

from kafka_keyshared.cli.arguments import RunArguments, takes_settings
from kafka_keyshared.cli.options import JsonFlag, OptionalHandler, OutputFlag
from kafka_keyshared.cli.output import OutputFormat

verbs = typer.Typer(
    help="Show settings and where they are from, check them, print their schema.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@verbs.command("show")
@takes_settings(OptionalHandler)
def config_show(
    arguments: RunArguments, json: JsonFlag = False, output: OutputFlag = OutputFormat.TABLE
) -> int:
    """Show every setting as a run would have it, and where it is from; secrets are masked."""
    from kafka_keyshared.cli.config import show_verb

    return show_verb(arguments, OutputFormat.JSON if json else output)


@verbs.command("check")
@takes_settings(OptionalHandler)
def config_check(
    arguments: RunArguments, json: JsonFlag = False, output: OutputFlag = OutputFormat.TABLE
) -> int:
    """Look for everything that a run would refuse, without a broker; all of it, not the first.

    Exit status 0: it can start. 2: it cannot.
    """
    from kafka_keyshared.cli.config import check_verb

    return check_verb(arguments, OutputFormat.JSON if json else output)


@verbs.command("schema")
def config_schema() -> int:
    """Print the JSON Schema of the file, for editors."""
    from kafka_keyshared.cli.config import schema_verb

    return schema_verb()

"""Options of ``keyshared config``: effective settings, their check and their schema."""

from __future__ import annotations

import typer

from kafka_keyshared.cli.arguments import RunArguments, takes_settings
from kafka_keyshared.cli.options import JsonFlag, OptionalHandler, OutputFlag
from kafka_keyshared.cli.output import OutputFormat

verbs = typer.Typer(
    help="Show, check and describe the settings of a run.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@verbs.command("show")
@takes_settings(OptionalHandler)
def config_show(
    arguments: RunArguments, json: JsonFlag = False, output: OutputFlag = OutputFormat.TABLE
) -> int:
    """Show the effective settings and the origin of each.

    Secrets are masked.
    """
    from kafka_keyshared.cli.config import show_verb

    return show_verb(arguments, OutputFormat.JSON if json else output)


@verbs.command("check")
@takes_settings(OptionalHandler)
def config_check(
    arguments: RunArguments, json: JsonFlag = False, output: OutputFlag = OutputFormat.TABLE
) -> int:
    """Check the settings without a broker, and list every fault.

    Exit status 0: a run can start. 2: a run would refuse the settings.
    """
    from kafka_keyshared.cli.config import check_verb

    return check_verb(arguments, OutputFormat.JSON if json else output)


@verbs.command("schema")
def config_schema() -> int:
    """Print the JSON Schema of the configuration file, for editors."""
    from kafka_keyshared.cli.config import schema_verb

    return schema_verb()

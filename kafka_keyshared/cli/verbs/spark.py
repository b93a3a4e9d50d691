"""``keyshared spark``: the same handlers on Apache Spark, and what looks over all records."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_keyshared.cli.options import JsonFlag, OutputFlag
from kafka_keyshared.cli.output import Output

Fetch = Annotated[bool, typer.Option("--fetch", help="Have Maven fetch those that are missing.")]

verbs = typer.Typer(
    help="Run a handler on Apache Spark, and look over all records with it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@verbs.callback()
def before_every_verb() -> None:
    """Keep `spark` a group of verbs, however many there are."""


@verbs.command("jars")
def spark_jars(
    fetch: Fetch = False, json: JsonFlag = False, output: OutputFlag = Output.TABLE
) -> int:
    """Say where the jars are that let Spark read and write Kafka, or fetch them once per user."""
    from kafka_keyshared.cli.spark_jars import jars_verb

    return jars_verb(fetch=fetch, output=Output.JSON if json else output)

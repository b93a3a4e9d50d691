"""Options of ``keyshared simulate``, which runs the system in simulated time."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_keyshared.cli.options import JsonFlag, OutputFlag
from kafka_keyshared.cli.output import OutputFormat


def simulate(  # noqa: PLR0917 - each is an option of the command line
    seeds: Annotated[
        int, typer.Option(metavar="INT", min=1, max=10_000_000, help="Number of seeds.")
    ] = 200,
    seed: Annotated[
        int | None,
        typer.Option(metavar="INT", min=0, help="Run only this seed, and print its digest."),
    ] = None,
    first: Annotated[int, typer.Option(metavar="INT", min=0, help="The first seed.")] = 1,
    steps: Annotated[
        int,
        typer.Option(
            metavar="INT",
            min=1,
            max=10_000_000,
            help="Rounds of the members before the faults stop.",
        ),
    ] = 5_000,
    processes: Annotated[
        int | None,
        typer.Option(
            metavar="INT", min=1, max=1_000, help="Parallel processes. [default: one per core]"
        ),
    ] = None,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Test the contract on simulated clusters, workers and faults."""
    from kafka_keyshared.cli.simulate import simulate_verb

    wanted = range(first, first + seeds) if seed is None else [seed]
    shown = OutputFormat.JSON if json else output
    return simulate_verb(wanted, steps, processes, one=seed is not None, shown=shown)

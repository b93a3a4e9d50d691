"""``keyshared ring``: which worker a key goes to."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_keyshared.cli.options import (
    JsonFlag,
    OutputFlag,
    RoutingKind,
    SlotRanges,
    Vnodes,
    Weights,
    Workers,
)
from kafka_keyshared.cli.output import Output

verbs = typer.Typer(
    help="Which worker a key goes to, and what a resize would move.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@verbs.command("where")
def ring_where(  # noqa: PLR0917 - each is an option of the command line
    key: Annotated[
        str | None, typer.Argument(metavar="KEY", help="As text, or its bytes as hex:00ff.")
    ] = None,
    null: Annotated[bool, typer.Option("--null", help="Ask for records without a key.")] = False,
    workers: Workers = 16,
    vnodes: Vnodes = 200,
    routing: RoutingKind = "ring",
    ranges: SlotRanges = None,
    weights: Weights = None,
    slot_function: Annotated[
        str, typer.Option(metavar="TEXT", help="mmh3, fnv1a, pulsar or blake3_u16.")
    ] = "mmh3",
    json: JsonFlag = False,
    output: OutputFlag = Output.TABLE,
) -> int:
    """Show the way of a key: its hash, slot, vnode and worker."""
    from kafka_keyshared.cli.ring import Chosen, where_verb

    return where_verb(
        key,
        null=null,
        chosen=Chosen(workers, vnodes, routing, ranges or (), weights or ()),
        slot_function=slot_function,
        output=Output.JSON if json else output,
    )


@verbs.command("show")
def ring_show(  # noqa: PLR0917 - each is an option of the command line
    workers: Workers = 16,
    vnodes: Vnodes = 200,
    routing: RoutingKind = "ring",
    ranges: SlotRanges = None,
    weights: Weights = None,
    json: JsonFlag = False,
    output: OutputFlag = Output.TABLE,
) -> int:
    """Show each worker's part of the 65,536 slots."""
    from kafka_keyshared.cli.ring import Chosen, show_verb

    chosen = Chosen(workers, vnodes, routing, ranges or (), weights or ())
    return show_verb(chosen, Output.JSON if json else output)


@verbs.command("simulate")
def ring_simulate(  # noqa: PLR0917 - each is an option of the command line
    workers: Workers = 16,
    vnodes: Vnodes = 200,
    add: Annotated[
        int, typer.Option(metavar="INT", min=0, max=1_000, help="Workers that join.")
    ] = 0,
    remove: Annotated[
        int,
        typer.Option(
            metavar="INT", min=0, max=1_000, help="Workers that leave, the last ones first."
        ),
    ] = 0,
    keys: Annotated[
        int, typer.Option(metavar="INT", min=1, max=10_000_000, help="How many random keys.")
    ] = 1_000,
    seed: Annotated[
        int, typer.Option(metavar="INT", help="The same seed gives the same keys.")
    ] = 1,
    json: JsonFlag = False,
    output: OutputFlag = Output.TABLE,
) -> int:
    """Show how many keys change their worker when the number of workers changes."""
    from kafka_keyshared.cli.ring import simulate_verb

    shown = Output.JSON if json else output
    return simulate_verb(workers, vnodes, add, remove, keys, seed, shown)

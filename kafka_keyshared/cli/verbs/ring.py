"""Options of ``keyshared ring``, which shows the worker of a key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from kafka_keyshared.cli.options import (
    JsonFlag,
    OutputFlag,
    RoutingKind,
    SlotRanges,
    StatusUrl,
    Vnodes,
    Weights,
    Workers,
)
from kafka_keyshared.cli.output import OutputFormat

TokenFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="The token that the instance has (http_token_file)."),
]
MoveTimeout: TypeAlias = Annotated[
    float,
    typer.Option(metavar="SECONDS", min=0.1, max=300.0, help="How long to wait for what runs."),
]

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
    status_url: StatusUrl = None,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Show the way of a key: its hash, slot, vnode and worker.

    With --status-url in a running instance, with the records of the key that run or wait there.
    """
    from kafka_keyshared.cli.ring import RoutingArguments, where_verb

    chosen = RoutingArguments(workers, vnodes, routing, ranges or (), weights or ())
    shown = OutputFormat.JSON if json else output
    if status_url is not None:
        from kafka_keyshared.cli.ring_where import where_running_verb

        return where_running_verb(status_url, None if null else key, chosen, shown)
    return where_verb(key, null=null, chosen=chosen, slot_function=slot_function, output=shown)


@verbs.command("show")
def ring_show(  # noqa: PLR0917 - each is an option of the command line
    workers: Workers = 16,
    vnodes: Vnodes = 200,
    routing: RoutingKind = "ring",
    ranges: SlotRanges = None,
    weights: Weights = None,
    status_url: StatusUrl = None,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Show each worker's part of the 65,536 slots.

    With --status-url as a running instance has it, with filters, slots that drain, and who holds
    them up.
    """
    from kafka_keyshared.cli.ring import RoutingArguments, show_verb
    from kafka_keyshared.cli.ring_running import show_running_verb

    shown = OutputFormat.JSON if json else output
    if status_url is not None:
        return show_running_verb(status_url, shown)
    return show_verb(RoutingArguments(workers, vnodes, routing, ranges or (), weights or ()), shown)


@verbs.command("assign")
def ring_assign(  # noqa: PLR0917 - each is an option of the command line
    slots: Annotated[str, typer.Argument(metavar="RANGE", help="Both ends included: 0-4095.")],
    worker: Annotated[
        str | None, typer.Argument(metavar="WORKER", help="Whose they are to be.")
    ] = None,
    nobody: Annotated[
        bool, typer.Option("--nobody", help="Nobody's, in place of a worker's.")
    ] = False,
    status_url: StatusUrl = None,
    token_file: TokenFile = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Also what other workers have of them.")
    ] = False,
    timeout: MoveTimeout = 30.0,
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it; otherwise what would move is printed.")
    ] = False,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Assign slots to a worker of a running instance with routing="sticky", or to nobody.

    Its new worker gets nothing of a slot before the last record has ended that its old one runs.
    What is nobody's is skipped, held, or ends the instance, as its on_unmatched says.
    """
    from kafka_keyshared.cli.ring_running import SlotAssignment, assign_verb

    asked = SlotAssignment.typed(slots, worker, nobody=nobody, take_over=take_over, timeout=timeout)
    shown = OutputFormat.JSON if json else output
    return assign_verb(status_url, asked, token_file, execute=execute, output=shown)


@verbs.command("filter")
def ring_filter(  # noqa: PLR0917 - each is an option of the command line
    worker: Annotated[str, typer.Argument(metavar="WORKER", help="Who is to take them.")],
    patterns: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATTERN...", help="Its keys from now on: 'ship-*', 'order-?'."),
    ] = None,
    every_key: Annotated[
        bool, typer.Option("--every-key", help="All of them, in place of patterns.")
    ] = False,
    status_url: StatusUrl = None,
    token_file: TokenFile = None,
    timeout: MoveTimeout = 30.0,
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it; otherwise what would change is printed.")
    ] = False,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Give a worker of a running instance other filters.

    Who has a key from now on gets nothing of it before the last record has ended that the other
    runs. What no worker takes any more is skipped, held, or ends the instance, as its on_unmatched
    says.
    """
    from kafka_keyshared.cli.filters_running import Filtering, filter_verb

    asked = Filtering.typed(worker, patterns or [], every_key=every_key, timeout=timeout)
    shown = OutputFormat.JSON if json else output
    return filter_verb(status_url, asked, token_file, execute=execute, output=shown)


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
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Show how many keys change their worker when the number of workers changes."""
    from kafka_keyshared.cli.ring import simulate_verb

    shown = OutputFormat.JSON if json else output
    return simulate_verb(workers, vnodes, add, remove, keys, seed, shown)

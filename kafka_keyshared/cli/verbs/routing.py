"""Options of ``keyshared routing``: the assignment of keys to workers."""

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
    typer.Option(metavar="PATH", help="File with the instance's token (http_token_file)."),
]
MoveTimeout: TypeAlias = Annotated[
    float,
    typer.Option(
        metavar="SECONDS", min=0.1, max=300.0, help="Maximum time to wait for running records."
    ),
]

verbs = typer.Typer(
    help="Show and change the assignment of keys to workers.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@verbs.command("where")
def routing_where(  # noqa: PLR0917 - each is an option of the command line
    key: Annotated[
        str | None, typer.Argument(metavar="KEY", help="The key as text, or its bytes as hex:00ff.")
    ] = None,
    null: Annotated[
        bool, typer.Option("--null", help="Show the rule for records without a key.")
    ] = False,
    workers: Workers = 16,
    vnodes: Vnodes = 200,
    routing: RoutingKind = "ring",
    ranges: SlotRanges = None,
    weights: Weights = None,
    slot_function: Annotated[
        str, typer.Option(metavar="TEXT", help="Slot function: mmh3, fnv1a, pulsar or blake3_u16.")
    ] = "mmh3",
    status_url: StatusUrl = None,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Show the hash, slot, virtual node and worker of a key.

    With --status-url: in a running instance, with the unsettled records of the key.
    """
    from kafka_keyshared.cli.routing import RoutingArguments, where_verb

    chosen = RoutingArguments(workers, vnodes, routing, ranges or (), weights or ())
    shown = OutputFormat.JSON if json else output
    if status_url is not None:
        from kafka_keyshared.cli.routing_status import where_running_verb

        return where_running_verb(status_url, None if null else key, chosen, shown)
    return where_verb(key, null=null, chosen=chosen, slot_function=slot_function, output=shown)


@verbs.command("show")
def routing_show(  # noqa: PLR0917 - each is an option of the command line
    workers: Workers = 16,
    vnodes: Vnodes = 200,
    routing: RoutingKind = "ring",
    ranges: SlotRanges = None,
    weights: Weights = None,
    status_url: StatusUrl = None,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Show each worker's share of the 65,536 slots.

    With --status-url: in a running instance, with filters, draining slots, and the records that
    these wait for.
    """
    from kafka_keyshared.cli.routing import RoutingArguments, show_verb
    from kafka_keyshared.cli.routing_status import show_running_verb

    shown = OutputFormat.JSON if json else output
    if status_url is not None:
        return show_running_verb(status_url, shown)
    return show_verb(RoutingArguments(workers, vnodes, routing, ranges or (), weights or ()), shown)


@verbs.command("assign")
def routing_assign(  # noqa: PLR0917 - each is an option of the command line
    slots: Annotated[
        str, typer.Argument(metavar="RANGE", help="Range of slots, both ends included: 0-4095.")
    ],
    worker: Annotated[
        str | None, typer.Argument(metavar="WORKER", help="New owner of the slots.")
    ] = None,
    unassign: Annotated[
        bool, typer.Option("--unassign", help="Leave the slots without a worker.")
    ] = False,
    status_url: StatusUrl = None,
    token_file: TokenFile = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Also take slots of other workers.")
    ] = False,
    timeout: MoveTimeout = 30.0,
    execute: Annotated[
        bool, typer.Option("--execute", help="Make the change; without it, only print the change.")
    ] = False,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Assign slots to a worker of a running instance (routing sticky).

    The new worker gets records of a slot once the old worker's running records have ended. Records
    of slots without a worker are skipped or held, or end the instance (on_unmatched).
    """
    from kafka_keyshared.cli.routing_orders import SlotAssignment, assign_verb

    asked = SlotAssignment.typed(
        slots, worker, unassign=unassign, take_over=take_over, timeout=timeout
    )
    shown = OutputFormat.JSON if json else output
    return assign_verb(status_url, asked, token_file, execute=execute, output=shown)


@verbs.command("filter")
def routing_filter(  # noqa: PLR0917 - each is an option of the command line
    worker: Annotated[str, typer.Argument(metavar="WORKER", help="Worker that gets the filters.")],
    patterns: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATTERN...", help="Patterns of the keys that it accepts: 'ship-*', 'order-?'."
        ),
    ] = None,
    every_key: Annotated[
        bool, typer.Option("--every-key", help="Accept every key, in place of patterns.")
    ] = False,
    status_url: StatusUrl = None,
    token_file: TokenFile = None,
    timeout: MoveTimeout = 30.0,
    execute: Annotated[
        bool, typer.Option("--execute", help="Make the change; without it, only print the change.")
    ] = False,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Set the key filters of a worker of a running instance.

    The new worker of a key gets its records once the old worker's running records have ended.
    Records that no worker accepts are skipped or held, or end the instance (on_unmatched).
    """
    from kafka_keyshared.cli.routing_orders import Filtering, filter_verb

    asked = Filtering.typed(worker, patterns or [], every_key=every_key, timeout=timeout)
    shown = OutputFormat.JSON if json else output
    return filter_verb(status_url, asked, token_file, execute=execute, output=shown)


@verbs.command("simulate")
def routing_simulate(  # noqa: PLR0917 - each is an option of the command line
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
        int, typer.Option(metavar="INT", min=1, max=10_000_000, help="Number of random keys.")
    ] = 1_000,
    seed: Annotated[int, typer.Option(metavar="INT", help="Seed of the random keys.")] = 1,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Show how many keys a change of the number of workers moves."""
    from kafka_keyshared.cli.routing import simulate_verb

    shown = OutputFormat.JSON if json else output
    return simulate_verb(workers, vnodes, add, remove, keys, seed, shown)

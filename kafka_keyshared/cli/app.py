"""The verbs. Each imports what it needs when it is called, so that ``--help`` stays quick."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from kafka_keyshared.cli.output import Output, write_error
from kafka_keyshared.errors import KeySharedError

app = typer.Typer(
    name="keyshared",
    help="Per-key order with more workers than partitions, on Kafka consumer groups.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Plain help: the boxes of rich would double the time that --help takes.
    rich_markup_mode=None,
)
demo_app = typer.Typer(
    help="A year of flights, in order, judged record by record.", rich_markup_mode=None
)
bench_app = typer.Typer(
    help="Measure this package beside the bare consume loop.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
ring_app = typer.Typer(
    help="Which worker a key goes to, and what a resize would move.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(demo_app, name="demo")
app.add_typer(bench_app, name="bench")
app.add_typer(ring_app, name="ring")

JsonFlag = Annotated[bool, typer.Option("--json", help="Short for -o json.")]
OutputFlag = Annotated[Output, typer.Option("-o", "--output", help="How to print the result.")]
Bootstrap = Annotated[
    str | None, typer.Option("-b", "--bootstrap-server", help="Address of a broker, host:port.")
]
ClientSettings = Annotated[
    list[str] | None,
    typer.Option("-X", metavar="KEY=VALUE", help="A setting of the Kafka client; repeatable."),
]
Topics = Annotated[
    list[str] | None, typer.Option("-t", "--topic", help="What to read; repeatable.")
]
Group = Annotated[str | None, typer.Option("-g", "--group", help="The consumer group.")]
RunWorkers = Annotated[str | None, typer.Option(help="How many workers: 16 or thread:16.")]
DeadLetters = Annotated[
    str | None, typer.Option(help="The dead-letter topic; auto means <topic>.dlq.")
]
DeadLettersCreate = Annotated[
    bool, typer.Option("--dlq-create", help="Make the dead-letter topic when it is missing.")
]
ConfigFile = Annotated[Path | None, typer.Option(help="A TOML file with the same settings.")]
AppDir = Annotated[Path, typer.Option(help="First on sys.path.")]
Workers = Annotated[int, typer.Option(min=1, max=1_000, help="How many workers.")]
Vnodes = Annotated[int, typer.Option(min=1, max=1_000, help="Points of each worker on the ring.")]

INTERRUPTED = 130
"""What typer makes of Ctrl-C. To us it is a failure like any other: the work was not done."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and turn this package's errors into a line and a status."""
    try:
        status = app(args=arguments, prog_name="keyshared", standalone_mode=False)
    except KeySharedError as error:
        write_error(str(error))
        return error.exit_code
    except typer.Exit as ended:
        status = ended.exit_code
    except (typer.Abort, KeyboardInterrupt):
        status = INTERRUPTED
    except Exception as error:
        # A usage error knows how to show itself; anything else is a defect.
        show = getattr(error, "show", None)
        if show is None:
            raise
        show()
        return int(getattr(error, "exit_code", 2))
    if status == INTERRUPTED:
        write_error("interrupted")
        return 1
    return status if isinstance(status, int) else 0


@demo_app.callback(invoke_without_command=True)
def demo(
    context: typer.Context,
    json: JsonFlag = False,
    output: OutputFlag = Output.TABLE,
    sabotage: Annotated[str | None, typer.Option(hidden=True)] = None,
    records: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> int:
    """Send a year of flights through an embedded cluster and judge what happened.

    362,891 records, 8 workers, 16 partitions; cancelled flights fail three times and end in the
    dead-letter topic. Exit status 0 means that nothing was reordered, lost, repeated or overlapped.
    """
    if context.invoked_subcommand is not None:
        return 0
    from kafka_keyshared.cli.demo import demo_verb

    return demo_verb(Output.JSON if json else output, sabotage, records)


@demo_app.command("load")
def demo_load(  # noqa: PLR0917 - each is an option of the command line
    bootstrap_server: Bootstrap = None,
    topic: Annotated[str, typer.Option("-t", "--topic", help="Made when missing.")] = "flights",
    partitions: Annotated[
        int, typer.Option(min=1, help="Partitions of a topic that is made.")
    ] = 16,
    x: ClientSettings = None,
    json: JsonFlag = False,
    output: OutputFlag = Output.TABLE,
) -> int:
    """Write the year of flights to a topic of any cluster."""
    from kafka_keyshared.cli.demo import load_verb

    return load_verb(bootstrap_server, topic, partitions, x or [], Output.JSON if json else output)


@app.command("run")
def run_command(  # noqa: PLR0917 - each is an option of the command line
    handler: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:ATTR",
            help="A function, a handler class or an app; or path/file.py:ATTR.",
        ),
    ],
    bootstrap_server: Bootstrap = None,
    topic: Topics = None,
    group: Group = None,
    workers: RunWorkers = None,
    dlq: DeadLetters = None,
    dlq_create: DeadLettersCreate = False,
    http_port: Annotated[
        int | None,
        typer.Option(help="Serve /metrics, /livez and /readyz on 127.0.0.1 there; 0: any port."),
    ] = None,
    config: ConfigFile = None,
    app_dir: AppDir = Path(),
    x: ClientSettings = None,
) -> int:
    """Run a handler until SIGTERM or Ctrl-C, then drain, commit and leave."""
    from kafka_keyshared.cli.run import RunArguments, run_verb

    return run_verb(
        RunArguments(
            handler=handler,
            bootstrap=bootstrap_server,
            topics=topic or [],
            group=group,
            workers=workers,
            dlq=dlq,
            dlq_create=dlq_create,
            config=config,
            app_dir=app_dir,
            client=x or [],
            http_port=http_port,
        )
    )


@app.command("doctor")
def doctor(  # noqa: PLR0917 - each is an option of the command line
    handler: Annotated[
        str | None, typer.Argument(metavar="MODULE:ATTR", help="As for run; may be left out.")
    ] = None,
    bootstrap_server: Bootstrap = None,
    topic: Topics = None,
    group: Group = None,
    workers: RunWorkers = None,
    dlq: DeadLetters = None,
    dlq_create: DeadLettersCreate = False,
    config: ConfigFile = None,
    app_dir: AppDir = Path(),
    x: ClientSettings = None,
    json: JsonFlag = False,
    output: OutputFlag = Output.TABLE,
) -> int:
    """Look at everything that a run needs, in order; join and write nothing.

    Exit status 0: healthy, there may be warnings. 3: a check failed.
    """
    from kafka_keyshared.cli.doctor import doctor_verb
    from kafka_keyshared.cli.run import RunArguments

    arguments = RunArguments(
        handler=handler,
        bootstrap=bootstrap_server,
        topics=topic or [],
        group=group,
        workers=workers,
        dlq=dlq,
        dlq_create=dlq_create,
        config=config,
        app_dir=app_dir,
        client=x or [],
    )
    return doctor_verb(arguments, Output.JSON if json else output)


@ring_app.command("where")
def ring_where(  # noqa: PLR0917 - each is an option of the command line
    key: Annotated[
        str | None, typer.Argument(metavar="KEY", help="As text, or its bytes as hex:00ff.")
    ] = None,
    null: Annotated[bool, typer.Option("--null", help="Ask for records without a key.")] = False,
    workers: Workers = 16,
    vnodes: Vnodes = 100,
    slot_function: Annotated[str, typer.Option(help="mmh3, fnv1a or pulsar.")] = "mmh3",
    json: JsonFlag = False,
    output: OutputFlag = Output.TABLE,
) -> int:
    """Show the way of a key: its hash, slot, vnode and worker."""
    from kafka_keyshared.cli.ring import where_verb

    return where_verb(
        key,
        null=null,
        workers=workers,
        vnodes=vnodes,
        slot_function=slot_function,
        output=Output.JSON if json else output,
    )


@ring_app.command("show")
def ring_show(
    workers: Workers = 16,
    vnodes: Vnodes = 100,
    json: JsonFlag = False,
    output: OutputFlag = Output.TABLE,
) -> int:
    """Show each worker's part of the 65,536 slots."""
    from kafka_keyshared.cli.ring import show_verb

    return show_verb(workers, vnodes, Output.JSON if json else output)


@ring_app.command("simulate")
def ring_simulate(  # noqa: PLR0917 - each is an option of the command line
    workers: Workers = 16,
    vnodes: Vnodes = 100,
    add: Annotated[int, typer.Option(min=0, max=1_000, help="Workers that join.")] = 0,
    remove: Annotated[
        int, typer.Option(min=0, max=1_000, help="Workers that leave, the last ones first.")
    ] = 0,
    keys: Annotated[int, typer.Option(min=1, max=10_000_000, help="How many random keys.")] = 1_000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same keys.")] = 1,
    json: JsonFlag = False,
    output: OutputFlag = Output.TABLE,
) -> int:
    """Show how many keys change their worker when the number of workers changes."""
    from kafka_keyshared.cli.ring import simulate_verb

    shown = Output.JSON if json else output
    return simulate_verb(workers, vnodes, add, remove, keys, seed, shown)


@bench_app.command("noop")
def bench_noop(  # noqa: PLR0917 - each is an option of the command line
    bootstrap_server: Bootstrap = None,
    records: int = 2_000_000,
    partitions: int = 8,
    keys: int = 10_000,
    value_bytes: int = 100,
    workers: str = "thread:8",
    repeat: int = 9,
    null_share: Annotated[float, typer.Option(help="Part of the records without a key.")] = 0.0,
    fail_every: Annotated[int, typer.Option(help="One record in so many fails once.")] = 0,
    max_leases_per_key: Annotated[int | None, typer.Option(help="1, or no limit.")] = None,
    json: JsonFlag = False,
    output: OutputFlag = Output.TABLE,
) -> int:
    """Measure the cost of the layer with an empty handler, as a ratio to the bare loop."""
    from kafka_keyshared.bench.noop import NoopPlan
    from kafka_keyshared.cli.bench import noop_verb

    plan = NoopPlan(
        records=records,
        partitions=partitions,
        keys=keys,
        value_bytes=value_bytes,
        workers=workers,
        repeat=repeat,
        null_share=null_share,
        fail_every=fail_every,
        max_leases_per_key=max_leases_per_key,
    )
    return noop_verb(plan, bootstrap_server, Output.JSON if json else output)


@bench_app.command("latency")
def bench_latency(  # noqa: PLR0917 - each is an option of the command line
    bootstrap_server: Bootstrap = None,
    rate: Annotated[int, typer.Option(help="Records per second, sent by the clock.")] = 5_000,
    seconds: Annotated[float, typer.Option(help="How long each run lasts.")] = 20.0,
    warmup: Annotated[float, typer.Option(help="Its first seconds, not counted.")] = 3.0,
    repeat: Annotated[int, typer.Option(help="Pairs of runs.")] = 9,
    partitions: int = 8,
    keys: int = 10_000,
    value_bytes: int = 100,
    workers: str = "thread:8",
    handler_ms: Annotated[float, typer.Option(help="What the handler sleeps.")] = 0.0,
    json: JsonFlag = False,
    output: OutputFlag = Output.TABLE,
) -> int:
    """Measure how much later handlers start."""
    from kafka_keyshared.bench.latency import LatencyPlan
    from kafka_keyshared.cli.bench import latency_verb

    plan = LatencyPlan(
        rate=rate,
        seconds=seconds,
        warmup=warmup,
        repeat=repeat,
        partitions=partitions,
        keys=keys,
        value_bytes=value_bytes,
        workers=workers,
        handler_ms=handler_ms,
    )
    return latency_verb(plan, bootstrap_server, Output.JSON if json else output)


@bench_app.command("memory")
def bench_memory(  # noqa: PLR0917 - each is an option of the command line
    bootstrap_server: Bootstrap = None,
    keys: Annotated[int, typer.Option(help="One record for each.")] = 10_000_000,
    partitions: int = 8,
    value_bytes: int = 100,
    workers: str = "thread:8",
    json: JsonFlag = False,
    output: OutputFlag = Output.TABLE,
) -> int:
    """Measure the memory of a run over many keys."""
    from kafka_keyshared.bench.memory import MemoryPlan
    from kafka_keyshared.cli.bench import memory_verb

    plan = MemoryPlan(keys=keys, partitions=partitions, value_bytes=value_bytes, workers=workers)
    return memory_verb(plan, bootstrap_server, Output.JSON if json else output)


@bench_app.command("idle")
def bench_idle(
    bootstrap_server: Bootstrap = None,
    seconds: Annotated[float, typer.Option(help="How long they wait.")] = 20.0,
    workers: str = "thread:8",
    json: JsonFlag = False,
    output: OutputFlag = Output.TABLE,
) -> int:
    """Measure the processor time of waiting."""
    from kafka_keyshared.bench.idle import IdlePlan
    from kafka_keyshared.cli.bench import idle_verb

    plan = IdlePlan(seconds=seconds, workers=workers)
    return idle_verb(plan, bootstrap_server, Output.JSON if json else output)


if __name__ == "__main__":
    sys.exit(run())

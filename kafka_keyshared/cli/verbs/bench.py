"""Options of ``keyshared bench``, which measures against the bare loop."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from kafka_keyshared.cli.options import Bootstrap, JsonFlag, OutputFlag
from kafka_keyshared.cli.output import OutputFormat
from kafka_keyshared.errors import ConfigError


class KeyPlace(StrEnum):
    """The place of a record's key."""

    RECORD = "record"
    HEADER = "header"


Records = Annotated[int, typer.Option(metavar="INT", help="Records of a run.")]
Partitions = Annotated[int, typer.Option(metavar="INT", help="Of the topic that is measured.")]
Keys = Annotated[int, typer.Option(metavar="INT", help="Distinct keys.")]
ValueBytes = Annotated[int, typer.Option(metavar="INT", help="Size of a value.")]
Rate = Annotated[int, typer.Option(metavar="INT", help="Records per second, sent by the clock.")]
RunSeconds = Annotated[float, typer.Option(metavar="FLOAT", help="How long each run lasts.")]
HandlerMs = Annotated[float, typer.Option(metavar="FLOAT", help="What the handler sleeps.")]
BenchWorkers = Annotated[str, typer.Option(metavar="TEXT", help="As for run.")]
SleepMs = Annotated[
    float, typer.Option(metavar="FLOAT", help="Milliseconds that a handler sleeps.")
]
Repeat = Annotated[int, typer.Option(metavar="INT", help="Pairs of runs, in turn.")]

verbs = typer.Typer(
    help="Measure this package beside the bare consume loop.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@verbs.command("noop")
def bench_noop(  # noqa: PLR0917 - each is an option of the command line
    bootstrap_server: Bootstrap = None,
    records: Records = 2_000_000,
    partitions: Partitions = 8,
    keys: Keys = 10_000,
    value_bytes: ValueBytes = 100,
    workers: BenchWorkers = "thread:8",
    repeat: Repeat = 9,
    null_share: Annotated[
        float, typer.Option(metavar="FLOAT", help="Part of the records without a key.")
    ] = 0.0,
    fail_every: Annotated[
        int, typer.Option(metavar="INT", help="One record in so many fails once.")
    ] = 0,
    one_in_flight_per_key: Annotated[
        bool,
        typer.Option(
            "--one-in-flight-per-key", help="Lease at most one record of a key at a time."
        ),
    ] = False,
    key: Annotated[
        KeyPlace, typer.Option(help="Where the key is: the record's own, or a header.")
    ] = KeyPlace.RECORD,
    bare_reads: Annotated[
        bool, typer.Option(help="Whether the bare loop reads the header, too.")
    ] = True,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Measure the cost of the layer with an empty handler, as a ratio to the bare loop."""
    from kafka_keyshared.cli.bench import noop_verb
    from kafka_keyshared.lab.bench.noop import NoopPlan

    plan = NoopPlan(
        records=records,
        partitions=partitions,
        keys=keys,
        value_bytes=value_bytes,
        workers=workers,
        repeat=repeat,
        null_share=null_share,
        fail_every=fail_every,
        one_in_flight_per_key=one_in_flight_per_key,
        key=key.value,
        bare_reads=bare_reads,
    )
    return noop_verb(plan, bootstrap_server, OutputFormat.JSON if json else output)


@verbs.command("latency")
def bench_latency(  # noqa: PLR0917 - each is an option of the command line
    bootstrap_server: Bootstrap = None,
    rate: Rate = 5_000,
    seconds: RunSeconds = 20.0,
    warmup: Annotated[
        float, typer.Option(metavar="FLOAT", help="Its first seconds, not counted.")
    ] = 3.0,
    repeat: Annotated[int, typer.Option(metavar="INT", help="Pairs of runs.")] = 9,
    partitions: Partitions = 8,
    keys: Keys = 10_000,
    value_bytes: ValueBytes = 100,
    workers: BenchWorkers = "thread:8",
    handler_ms: HandlerMs = 0.0,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Measure how much later handlers start."""
    from kafka_keyshared.cli.bench import latency_verb
    from kafka_keyshared.lab.bench.latency import LatencyPlan

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
    return latency_verb(plan, bootstrap_server, OutputFormat.JSON if json else output)


@verbs.command("fair")
def bench_fair(  # noqa: PLR0917 - each is an option of the command line
    bootstrap_server: Bootstrap = None,
    rate: Rate = 300,
    hot_share: Annotated[
        float, typer.Option(metavar="FLOAT", help="The share of them that have one key.")
    ] = 0.5,
    handler_ms: HandlerMs = 20.0,
    seconds: RunSeconds = 45.0,
    repeat: Annotated[int, typer.Option(metavar="INT", help="Runs.")] = 3,
    partitions: Partitions = 4,
    keys: Keys = 1_000,
    value_bytes: ValueBytes = 100,
    workers: BenchWorkers = "thread:16",
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Measure how long other keys wait while one key has more than it can do."""
    from kafka_keyshared.cli.bench import fair_verb
    from kafka_keyshared.lab.bench.fair import FairPlan

    plan = FairPlan(
        rate=rate,
        hot_share=hot_share,
        handler_ms=handler_ms,
        seconds=seconds,
        repeat=repeat,
        partitions=partitions,
        keys=keys,
        value_bytes=value_bytes,
        workers=workers,
    )
    return fair_verb(plan, bootstrap_server, OutputFormat.JSON if json else output)


@verbs.command("skew")
def bench_skew(  # noqa: PLR0917 - each is an option of the command line
    bootstrap_server: Bootstrap = None,
    records: Records = 200_000,
    keys: Keys = 10_000,
    workers: Annotated[str, typer.Option(metavar="TEXT", help="Threads, on both sides.")] = (
        "thread:16"
    ),
    sleep_ms: SleepMs = 1.0,
    distributions: Annotated[
        str, typer.Option(metavar="NAMES", help="With commas: uniform, zipf:EXPONENT.")
    ] = "zipf:1.1,zipf:0.8,uniform",
    repeat: Annotated[int, typer.Option(metavar="INT", help="Pairs of runs of each.")] = 3,
    partitions: Partitions = 8,
    value_bytes: ValueBytes = 100,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Measure how far the makespan of a skewed backlog is from its lower bound."""
    from kafka_keyshared.cli.bench import skew_verb
    from kafka_keyshared.lab.bench.skew import SkewPlan

    plan = SkewPlan(
        records=records,
        keys=keys,
        workers=workers,
        sleep_ms=sleep_ms,
        distributions=_names(distributions),
        repeat=repeat,
        partitions=partitions,
        value_bytes=value_bytes,
    )
    return skew_verb(plan, bootstrap_server, OutputFormat.JSON if json else output)


@verbs.command("scale")
def bench_scale(  # noqa: PLR0917 - each is an option of the command line
    bootstrap_server: Bootstrap = None,
    parts: Annotated[
        str, typer.Option(metavar="NAMES", help="With commas, of threads,sleep,resize.")
    ] = "threads,sleep,resize",
    repeat: Annotated[int, typer.Option(metavar="INT", help="Turns of each part.")] = 5,
    records: Annotated[
        int, typer.Option(metavar="INT", help="Records of a run with an empty handler.")
    ] = 2_000_000,
    threads: Annotated[
        str, typer.Option(metavar="INTS", help="Thread counts, each compared with the first.")
    ] = "2,64",
    sleep_records: Annotated[
        int, typer.Option(metavar="INT", help="Records of a run whose handler sleeps.")
    ] = 300_000,
    sleep_threads: Annotated[
        int, typer.Option(metavar="INT", help="Threads that sleep, on both sides.")
    ] = 100,
    sleep_ms: SleepMs = 2.0,
    resize: Annotated[
        str, typer.Option(metavar="INTS", help="Thread counts before and after app.scale().")
    ] = "2,32",
    partitions: Partitions = 8,
    keys: Keys = 10_000,
    value_bytes: ValueBytes = 100,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Measure what more threads cost, what they do, and how soon new ones help."""
    from kafka_keyshared.cli.bench import scale_verb
    from kafka_keyshared.lab.bench.scale import ScalePlan

    plan = ScalePlan(
        parts=_names(parts),
        repeat=repeat,
        records=records,
        threads=_counts("--threads", threads),
        sleep_records=sleep_records,
        sleep_threads=sleep_threads,
        sleep_ms=sleep_ms,
        resize=_counts("--resize", resize),
        partitions=partitions,
        keys=keys,
        value_bytes=value_bytes,
    )
    return scale_verb(plan, bootstrap_server, OutputFormat.JSON if json else output)


@verbs.command("stuck")
def bench_stuck(  # noqa: PLR0917 - each is an option of the command line
    bootstrap_server: Bootstrap = None,
    stuck: Annotated[
        float, typer.Option(metavar="FLOAT", help="Seconds that one record takes.")
    ] = 30.0,
    lead: Annotated[
        float, typer.Option(metavar="FLOAT", help="Seconds before that record comes.")
    ] = 5.0,
    rate: Rate = 300,
    handler_ms: HandlerMs = 1.0,
    keys: Keys = 10_000,
    workers: Annotated[
        str, typer.Option(metavar="NAMES", help="With commas: thread:16,process:2.")
    ] = "thread:16,asyncio:1000,process:2",
    repeat: Annotated[int, typer.Option(metavar="INT", help="Runs of each.")] = 3,
    partitions: Partitions = 4,
    value_bytes: ValueBytes = 100,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Measure how punctual other records are while one record takes very long."""
    from kafka_keyshared.cli.bench import stuck_verb
    from kafka_keyshared.lab.bench.stuck import StuckPlan

    plan = StuckPlan(
        stuck=stuck,
        lead=lead,
        rate=rate,
        handler_ms=handler_ms,
        keys=keys,
        workers=_names(workers),
        repeat=repeat,
        partitions=partitions,
        value_bytes=value_bytes,
    )
    return stuck_verb(plan, bootstrap_server, OutputFormat.JSON if json else output)


@verbs.command("memory")
def bench_memory(  # noqa: PLR0917 - each is an option of the command line
    bootstrap_server: Bootstrap = None,
    keys: Annotated[int, typer.Option(metavar="INT", help="One record for each.")] = 10_000_000,
    partitions: Partitions = 8,
    value_bytes: ValueBytes = 100,
    workers: BenchWorkers = "thread:8",
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Measure the memory of a run over many keys."""
    from kafka_keyshared.cli.bench import memory_verb
    from kafka_keyshared.lab.bench.memory import MemoryPlan

    plan = MemoryPlan(keys=keys, partitions=partitions, value_bytes=value_bytes, workers=workers)
    return memory_verb(plan, bootstrap_server, OutputFormat.JSON if json else output)


@verbs.command("idle")
def bench_idle(
    bootstrap_server: Bootstrap = None,
    seconds: Annotated[float, typer.Option(metavar="FLOAT", help="How long they wait.")] = 20.0,
    workers: BenchWorkers = "thread:8",
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Measure the processor time of waiting."""
    from kafka_keyshared.cli.bench import idle_verb
    from kafka_keyshared.lab.bench.idle import IdlePlan

    plan = IdlePlan(seconds=seconds, workers=workers)
    return idle_verb(plan, bootstrap_server, OutputFormat.JSON if json else output)


@verbs.command("compare")
def bench_compare(  # noqa: PLR0917 - each is an option of the command line
    bootstrap_server: Bootstrap = None,
    systems: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="With commas: bare,keyshared:thread:8,parallel-consumer:16."
        ),
    ] = None,
    traffic: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Of uniform,zipf,one-key.")
    ] = None,
    work: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Of empty,sleep-1ms,sleep-2ms,sleep-5ms,cpu-200us."),
    ] = None,
    records: Annotated[
        int,
        typer.Option(metavar="INT", help="Records of a run, a tenth if handlers work; 0 for none."),
    ] = 1_000_000,
    runs: Annotated[int, typer.Option(metavar="INT", help="Runs of each; the best counts.")] = 3,
    partitions: Partitions = 8,
    keys: Keys = 10_000,
    value_bytes: ValueBytes = 100,
    limit: Annotated[
        float, typer.Option(metavar="FLOAT", help="Seconds after which a run is cut off.")
    ] = 10.0,
    rate: Annotated[
        int, typer.Option(metavar="INT", help="Records per second of latency runs.")
    ] = 1_000,
    seconds: Annotated[
        float, typer.Option(metavar="FLOAT", help="How long a latency run lasts; 0 for none.")
    ] = 10.0,
    check: Annotated[
        int, typer.Option(metavar="INT", help="Records of the runs that look at order; 0 for none.")
    ] = 2_000,
    hot_seconds: Annotated[
        float,
        typer.Option(metavar="FLOAT", help="How long a run with one hot key lasts; 0 for none."),
    ] = 0.0,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Measure this package beside the bare loop and what else one could take."""
    from kafka_keyshared.cli.bench import compare_verb
    from kafka_keyshared.lab.bench.compare import ComparePlan

    plan = ComparePlan(
        systems=_names(systems),
        traffic=_names(traffic),
        work=_names(work),
        records=records,
        runs=runs,
        partitions=partitions,
        keys=keys,
        value_bytes=value_bytes,
        limit=limit,
        rate=rate,
        seconds=seconds,
        check=check,
        hot_seconds=hot_seconds,
    )
    return compare_verb(plan, bootstrap_server, OutputFormat.JSON if json else output)


def _names(told: str | None) -> tuple[str, ...]:
    return tuple(name for each in (told or "").split(",") if (name := each.strip()))


def _counts(option: str, told: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, _names(told)))
    except ValueError:
        raise ConfigError(f"{option} {told}: give numbers with commas") from None

"""Options of ``keyshared bench``: measurements against the bare consume loop."""

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


Records = Annotated[int, typer.Option(metavar="INT", help="Records per run.")]
Partitions = Annotated[int, typer.Option(metavar="INT", help="Partitions of the topic.")]
Keys = Annotated[int, typer.Option(metavar="INT", help="Number of distinct keys.")]
ValueBytes = Annotated[int, typer.Option(metavar="INT", help="Bytes per value.")]
Rate = Annotated[int, typer.Option(metavar="INT", help="Records sent per second.")]
RunSeconds = Annotated[float, typer.Option(metavar="FLOAT", help="Duration of a run.")]
HandlerMs = Annotated[
    float, typer.Option(metavar="FLOAT", help="Milliseconds that a handler sleeps.")
]
BenchWorkers = Annotated[str, typer.Option(metavar="TEXT", help="Workers, as for run.")]
SleepMs = Annotated[
    float, typer.Option(metavar="FLOAT", help="Milliseconds that a handler sleeps.")
]
Repeat = Annotated[int, typer.Option(metavar="INT", help="Pairs of alternating runs.")]

verbs = typer.Typer(
    help="Measure this package against the bare consume loop.",
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
        float, typer.Option(metavar="FLOAT", help="Share of records without a key.")
    ] = 0.0,
    fail_every: Annotated[
        int, typer.Option(metavar="INT", help="One record in this many fails once; 0: none.")
    ] = 0,
    one_in_flight_per_key: Annotated[
        bool,
        typer.Option(
            "--one-in-flight-per-key", help="Lease at most one record of a key at a time."
        ),
    ] = False,
    key: Annotated[
        KeyPlace, typer.Option(help="Where the key is: the key of the record, or a header.")
    ] = KeyPlace.RECORD,
    bare_reads: Annotated[
        bool, typer.Option(help="Whether the bare loop also reads the header.")
    ] = True,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Measure the throughput of an empty handler over the bare loop."""
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
        float, typer.Option(metavar="FLOAT", help="First seconds of a run, which are not counted.")
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
    """Measure the added latency until a handler starts."""
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
        float, typer.Option(metavar="FLOAT", help="Share of the records that have the hot key.")
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
    """Measure how long other keys wait beside one overloaded key."""
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
        str, typer.Option(metavar="NAMES", help="Comma-separated: uniform, zipf:EXPONENT.")
    ] = "zipf:1.1,zipf:0.8,uniform",
    repeat: Annotated[
        int, typer.Option(metavar="INT", help="Pairs of runs of each distribution.")
    ] = 3,
    partitions: Partitions = 8,
    value_bytes: ValueBytes = 100,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Measure the time for a skewed backlog over its lower bound."""
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
        str, typer.Option(metavar="NAMES", help="Comma-separated, of threads,sleep,resize.")
    ] = "threads,sleep,resize",
    repeat: Annotated[int, typer.Option(metavar="INT", help="Runs of each part.")] = 5,
    records: Annotated[
        int, typer.Option(metavar="INT", help="Records per run with an empty handler.")
    ] = 2_000_000,
    threads: Annotated[
        str, typer.Option(metavar="INTS", help="Thread counts, each compared with the first.")
    ] = "2,64",
    sleep_records: Annotated[
        int, typer.Option(metavar="INT", help="Records per run with a sleeping handler.")
    ] = 300_000,
    sleep_threads: Annotated[
        int, typer.Option(metavar="INT", help="Sleeping threads on both sides.")
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
    """Measure cost and gain of more threads, and the delay of a resize."""
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
        float, typer.Option(metavar="FLOAT", help="Seconds that the slow record takes.")
    ] = 30.0,
    lead: Annotated[
        float, typer.Option(metavar="FLOAT", help="Seconds before the slow record is sent.")
    ] = 5.0,
    rate: Rate = 300,
    handler_ms: HandlerMs = 1.0,
    keys: Keys = 10_000,
    workers: Annotated[
        str, typer.Option(metavar="NAMES", help="Comma-separated: thread:16,process:2.")
    ] = "thread:16,asyncio:1000,process:2",
    repeat: Annotated[int, typer.Option(metavar="INT", help="Runs of each pool.")] = 3,
    partitions: Partitions = 4,
    value_bytes: ValueBytes = 100,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Measure the delay of other records while one record is stuck."""
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
    keys: Annotated[
        int, typer.Option(metavar="INT", help="Number of keys; each has one record.")
    ] = 10_000_000,
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
    seconds: Annotated[float, typer.Option(metavar="FLOAT", help="Duration of the wait.")] = 20.0,
    workers: BenchWorkers = "thread:8",
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Measure the CPU time of an idle instance."""
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
            metavar="NAMES", help="Comma-separated: bare,keyshared:thread:8,parallel-consumer:16."
        ),
    ] = None,
    traffic: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Comma-separated, of uniform,zipf,one-key.")
    ] = None,
    work: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Comma-separated, of empty,sleep-1ms,sleep-2ms,sleep-5ms,cpu-200us.",
        ),
    ] = None,
    records: Annotated[
        int,
        typer.Option(
            metavar="INT", help="Records per run, a tenth if the handler works; 0: no such runs."
        ),
    ] = 1_000_000,
    runs: Annotated[
        int, typer.Option(metavar="INT", help="Runs of each case; the best one counts.")
    ] = 3,
    partitions: Partitions = 8,
    keys: Keys = 10_000,
    value_bytes: ValueBytes = 100,
    limit: Annotated[float, typer.Option(metavar="FLOAT", help="Maximum seconds per run.")] = 10.0,
    rate: Annotated[
        int, typer.Option(metavar="INT", help="Records per second of latency runs.")
    ] = 1_000,
    seconds: Annotated[
        float, typer.Option(metavar="FLOAT", help="Duration of a latency run; 0: no such runs.")
    ] = 10.0,
    check: Annotated[
        int, typer.Option(metavar="INT", help="Records per run that checks order; 0: no such runs.")
    ] = 2_000,
    hot_seconds: Annotated[
        float,
        typer.Option(metavar="FLOAT", help="Duration of a run with one hot key; 0: no such runs."),
    ] = 0.0,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Measure this package against the bare loop and other libraries."""
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
        raise ConfigError(f"{option} {told}: give numbers separated by commas") from None

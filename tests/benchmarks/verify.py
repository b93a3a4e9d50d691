"""Take the full measurements and hold them to their floors: ``make verify``, on an idle machine.

    python tests/benchmarks/verify.py [--case NAME]... [--repeat N] [--before PATH]
        [--json FILE] [--markdown FILE]

All cases run on one real broker (or the cluster at ``--bootstrap``), the demo on its own embedded
one. ``--case scheduler`` stands for all cases of the scheduler. Those whose names start with
``before-`` compare with another checkout, ``--before``. Exit status: 0 when every figure holds, 1
when one does not, 2 when it cannot be measured here.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.lab.bench import idle, latency, memory, noop
from kafka_keyshared.lab.bench.common import Progress, open_cluster
from kafka_keyshared.lab.bench.idle import IdlePlan
from kafka_keyshared.lab.bench.latency import LatencyPlan
from kafka_keyshared.lab.bench.memory import MemoryPlan
from kafka_keyshared.lab.bench.noop import NoopPlan
from kafka_keyshared.testing.clusters.cluster import Cluster

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks import (
    advising,
    batching,
    beside,
    computing,
    coroutines,
    draining,
    exposition,
    failing,
    held_up,
    loris,
    reading,
    scaling,
    scheduler,
    scrapes,
    slow_key,
    start,
    sticking,
    tables,
    telling,
    watched,
)
from tests.benchmarks.advising import AdvisePlan
from tests.benchmarks.batching import BatchingPlan
from tests.benchmarks.before import BeforePlan
from tests.benchmarks.beside import BesidePlan
from tests.benchmarks.cases import Case, Floor, OnCluster, Outcome, judged, table
from tests.benchmarks.computing import ComputePlan
from tests.benchmarks.coroutines import CoroutinePlan
from tests.benchmarks.draining import DrainingPlan
from tests.benchmarks.failing import FailingPlan
from tests.benchmarks.held_up import HeldUpPlan
from tests.benchmarks.reading import ReadPlan
from tests.benchmarks.scaling import ScalingPlan
from tests.benchmarks.slow_key import SlowPlan
from tests.benchmarks.start import StartPlan
from tests.benchmarks.tables import TablePlan
from tests.benchmarks.telling import TellingPlan
from tests.benchmarks.watched import WatchedPlan

KEYSHARED = [sys.executable, "-m", "kafka_keyshared.cli"]
TIMEOUT = 600.0


@dataclass(frozen=True, slots=True)
class ScrapePlan:
    """The empty handler with and without scrapers."""

    noop: NoopPlan


@dataclass(frozen=True, slots=True)
class LorisPlan:
    """The empty handler, asked by scrapers and clients that never ask, and beside them."""

    noop: NoopPlan


def measure_demo(repeat: int | None) -> dict[str, Any]:
    """Run the whole year; the figures are those of the slowest run."""
    runs = []
    for _ in range(repeat or 1):
        done = subprocess.run(
            [*KEYSHARED, "demo", "--json"], stdout=subprocess.PIPE, check=False, timeout=TIMEOUT
        )
        if done.returncode != 0:
            raise KeySharedError(f"keyshared demo ended with status {done.returncode}")
        runs.append(json.loads(done.stdout))
    slowest: dict[str, Any] = max(runs, key=lambda run: float(run["elapsed_s"]))
    return {**slowest, "all_elapsed_s": [run["elapsed_s"] for run in runs]}


def measure_failing(repeat: int | None) -> dict[str, Any]:
    """Tell of 100,000 failures a second."""
    plan = FailingPlan()
    return failing.measure(replace(plan, pairs=repeat or plan.pairs))


def measure_computing(repeat: int | None) -> dict[str, Any]:
    """Have two processes compute, and a plain loop."""
    plan = ComputePlan()
    return computing.measure(replace(plan, pairs=repeat or plan.pairs))


def measure_coroutines(loop: Literal["asyncio", "uvloop"], repeat: int | None) -> dict[str, Any]:
    """Have coroutines sleep, and a task for each record on a bare loop."""
    plan = CoroutinePlan(loop)
    return coroutines.measure(replace(plan, pairs=repeat or plan.pairs))


def measure_batching(repeat: int | None) -> dict[str, Any]:
    """Have coroutines take batches, single records, and a bare loop its fetches."""
    plan = BatchingPlan()
    return batching.measure(replace(plan, rounds=repeat or plan.rounds))


def measure_draining(repeat: int | None) -> dict[str, Any]:
    """Compare what other slots get done while many drain."""
    plan = DrainingPlan()
    return draining.measure(replace(plan, pairs=repeat or plan.pairs))


def measure_slow_key(repeat: int | None) -> dict[str, Any]:
    """Compare what other keys get done while a hot key hangs."""
    plan = SlowPlan()
    return slow_key.measure(replace(plan, pairs=repeat or plan.pairs))


def measure_held_up(repeat: int | None) -> dict[str, Any]:
    """Let one key sleep for 30 s; the figures are those of the worst run."""
    runs = [held_up.measure(HeldUpPlan()) for _ in range(repeat or 1)]
    return min(runs, key=lambda run: float(run["same_shard_ratio"]))


def measure_exposition(repeat: int | None) -> dict[str, Any]:
    """Write the metrics of 1,000 partitions."""
    return exposition.measure(repeat or 30)


def measure_table(repeat: int | None) -> dict[str, Any]:
    """Make the slot table anew for 100 workers."""
    plan = TablePlan()
    return tables.measure(replace(plan, repeat=repeat or plan.repeat))


CASES = (
    Case(
        "empty",
        "empty handler, 8 threads, 8 partitions, 10,000 keys, 100 bytes",
        (Floor("ratio", 0.60), Floor("median_batch", 200)),
        NoopPlan(),
    ),
    Case("one-key", "one single key", (Floor("ratio", 0.50),), NoopPlan(keys=1, repeat=5)),
    Case(
        "null-keys",
        "10 % of the records without a key",
        (Floor("ratio", 0.35),),
        NoopPlan(null_share=0.1, repeat=5),
    ),
    Case(
        "header-key",
        "the key in a header, which the bare loop reads, too",
        # Nine tenths of what is asked of the record's own key.
        (Floor("ratio", 0.54),),
        NoopPlan(key="header"),
    ),
    Case(
        "header-key-unread",
        "the key in a header, which the bare loop leaves alone",
        (Floor("ratio", 0.35),),
        NoopPlan(key="header", bare_reads=False, repeat=5),
    ),
    Case(
        "failures",
        "2 % of the records fail once",
        (Floor("ratio", 0.10),),
        NoopPlan(fail_every=50, repeat=3),
    ),
    Case(
        "one-lease",
        "one single key, one_in_flight_per_key=True",
        (Floor("keyshared_per_s", 5_000),),
        NoopPlan(records=60_000, keys=1, one_in_flight_per_key=True, repeat=3),
    ),
    Case(
        "empty-processes",
        "empty handler, 2 processes",
        (Floor("ratio", 0.25),),
        NoopPlan(workers="process:2"),
    ),
    Case(
        "coroutines",
        "asyncio:1000, a handler that sleeps 2 ms, to an unguarded task for each record",
        (Floor("ratio", 1.2),),
        run=partial(measure_coroutines, "asyncio"),
    ),
    Case(
        "coroutines-uvloop",
        "the same, both on uvloop",
        (Floor("ratio", 1.2),),
        run=partial(measure_coroutines, "uvloop"),
    ),
    Case(
        "coroutine-batches",
        "asyncio:16, 100 records a call of 2 ms: to single records, to a bare loop of such calls",
        # Single records share their slices, and those of a batch do not.
        (Floor("to_bare", 1.2), Floor("to_single", 0.6)),
        run=measure_batching,
    ),
    Case(
        "beside-java",
        "empty handler, 8 threads, to parallel-consumer by key with its 16",
        (Floor("ratio", 12),),
        BesidePlan("keyshared:thread:8", "parallel-consumer:16", "empty", 4_000_000, limit=15),
    ),
    Case(
        "beside-java-sleeping",
        "a handler that sleeps 2 ms, 100 threads, to parallel-consumer by key with 100",
        (Floor("ratio", 1.1, goal=1.3, runs="ratios"),),
        BesidePlan("keyshared:thread:100", "parallel-consumer:100", "sleep-2ms", 3_000_000, 12),
    ),
    Case(
        "computing",
        "200 us of computing a record, 2 processes to a plain loop",
        (Floor("ratio", 1.75),),
        run=measure_computing,
    ),
    Case(
        "latency",
        "5,000 records/s, from when a record is due to the start of its handler",
        (Floor("added_p50_ms", 0.5, at_most=True), Floor("p99_ratio", 1.2, at_most=True)),
        LatencyPlan(),
    ),
    Case(
        "memory",
        "10,000,000 distinct keys",
        (Floor("growth_mib", 10, at_most=True), Floor("above_bare_mib", 104, at_most=True)),
        MemoryPlan(),
    ),
    Case(
        "idle",
        "waiting with nothing to do, and behind a blocked key",
        tuple(Floor(f"{who}_percent", 3, at_most=True) for who in ("idle", "blocked", "bare")),
        IdlePlan(),
    ),
    Case(
        "scrapes",
        "fifty scrapes of /metrics a second",
        (Floor("ratio_lost", 0.02, at_most=True),),
        ScrapePlan(NoopPlan(records=4_000_000, repeat=7)),
    ),
    Case(
        "loris",
        "a hundred scrapes a second and 240 clients that ask byte by byte, share of the throughput "
        "that there is beside them while they ask another process",
        (Floor("ratio", 0.9),),
        LorisPlan(NoopPlan(records=4_000_000, repeat=5)),
    ),
    Case(
        "scrape",
        "a scrape of an instance with 1,000 partitions and 16 workers",
        (Floor("median_ms", 50, at_most=True),),
        run=measure_exposition,
    ),
    Case(
        "watched",
        "metrics, admin API and a stream of snapshots, share of the throughput",
        (Floor("lost", 0.02, at_most=True),),
        WatchedPlan(NoopPlan(records=6_000_000)),
    ),
    Case(
        "reports",
        "a report to the group every second, share of the throughput",
        (Floor("lost", 0.02, at_most=True),),
        TellingPlan(NoopPlan(records=6_000_000)),
    ),
    Case(
        "sticking",
        "an instance stands still: from opening the console until Overview names the cause",
        tuple(Floor(f"{way}_s", 30.0, at_most=True) for way in sticking.WAYS),
        run=sticking.measure,
    ),
    Case(
        "told",
        "an attempt that fails and is told of, to one that only fails",
        (Floor("ratio", 1.05, at_most=True), Floor("most_lines", 20, at_most=True)),
        run=measure_failing,
    ),
    Case(
        "draining",
        "10,000 slots drain, records of others",
        (Floor("ratio", 0.8),),
        run=measure_draining,
    ),
    Case(
        "slow-key",
        "a hot key hangs for 30 s, records of other keys",
        (Floor("kept", 0.9), Floor("added_share", 0.05, at_most=True)),
        run=measure_slow_key,
    ),
    Case(
        "held-up",
        "one key sleeps for 30 s, the others",
        tuple(
            floor
            for who in ("others", "same_shard")
            for floor in (
                Floor(f"{who}_ratio", 0.9),
                Floor(f"{who}_longest_wait_s", 1.0, at_most=True),
            )
        ),
        run=measure_held_up,
    ),
    Case(
        "table",
        "the slot table made anew as one of 100 workers joins, 100 vnodes each",
        (Floor("ring_ms", 20, at_most=True),),
        run=measure_table,
    ),
    Case(
        "demo",
        "a year of flights, first record to last commit",
        (Floor("elapsed_s", 20.0, at_most=True),),
        run=measure_demo,
    ),
    Case(
        "start",
        "keyshared run, from the start of the process to the first call of the handler",
        (Floor("keyshared_s", 4.0, at_most=True),),
        StartPlan(),
    ),
    Case(
        "advise",
        "keyshared advise on 1,000,000 records, each with its own key",
        (Floor("seconds", 40, at_most=True), Floor("peak_mib", 200, at_most=True)),
        AdvisePlan(),
    ),
    Case(
        "read",
        "a Reader of half the slots, to a bare loop without a group",
        (Floor("ratio", 0.60),),
        ReadPlan(),
    ),
    Case(
        "scaling",
        "what the ratio loses: 1 to 400 partitions, 10 to 1,000,000 keys, 2 to 64 workers",
        (
            Floor("partitions_lost", 0.10, at_most=True),
            Floor("keys_lost", 0.15, at_most=True),
            Floor("workers_lost", 0.12, at_most=True, goal=0.05),
            Floor("held_bytes", 250, at_most=True),
            Floor("held_bytes_header", 250, at_most=True),
        ),
        ScalingPlan(),
    ),
    Case(
        "help",
        "--help of every verb",
        (Floor("median_s", 0.3, at_most=True), Floor("worst_s", 0.35, at_most=True)),
        run=start.measure_help,
    ),
    *scheduler.LINES,
)

GROUPS: dict[str, tuple[str, ...]] = {"scheduler": scheduler.NAMES}
"""Names that stand for several cases."""


def note(text: str) -> None:
    """Say how far it is."""
    sys.stderr.write(f"{text}\n")


def run_plan(  # noqa: PLR0911, PLR0912 - one for each plan
    plan: object, cluster: Cluster, repeat: int | None, progress: Progress
) -> dict[str, Any]:
    """Run the bench that the plan is for; ``repeat`` counts where there are pairs."""
    if repeat and isinstance(plan, NoopPlan | LatencyPlan):
        plan = msgspec.structs.replace(plan, repeat=repeat)
    if repeat and isinstance(plan, (ScrapePlan, LorisPlan, WatchedPlan, TellingPlan)):
        plan = type(plan)(msgspec.structs.replace(plan.noop, repeat=repeat))
    match plan:
        case OnCluster():
            return plan.measure(cluster, repeat, progress)
        case ScrapePlan():
            return scrapes.measure(plan.noop, cluster, progress)
        case LorisPlan():
            return loris.measure(plan.noop, cluster, progress)
        case WatchedPlan():
            return watched.measure(plan.noop, cluster, progress)
        case TellingPlan():
            return telling.measure(plan.noop, cluster, progress)
        case NoopPlan():
            return noop.measure(plan, cluster, progress)
        case LatencyPlan():
            return latency.measure(plan, cluster, progress)
        case MemoryPlan():
            return memory.measure(plan, cluster, progress)
        case IdlePlan():
            return idle.measure(plan, cluster, progress)
        case AdvisePlan():
            return advising.measure(plan, cluster, progress)
        case ReadPlan():
            return reading.measure(replace(plan, pairs=repeat or plan.pairs), cluster, progress)
        case BesidePlan():
            return beside.measure(replace(plan, pairs=repeat or plan.pairs), cluster, progress)
        case ScalingPlan():
            return scaling.measure(replace(plan, repeat=repeat or plan.repeat), cluster, progress)
        case StartPlan():
            return start.measure(StartPlan(repeat or plan.repeat), cluster, progress)
        case _:
            raise TypeError(f"no measurement for {plan}")


def run_case(case: Case, cluster: Cluster | None, repeat: int | None) -> Outcome:
    """Measure one case and judge it."""
    note(f"== {case.name}: {case.title}")
    if case.plan is not None and cluster is not None:
        result = run_plan(case.plan, cluster, repeat, note)
    elif case.run is not None:
        result = case.run(repeat)
    else:
        raise ValueError(f"case {case.name} has nothing to run")
    return judged(case, result)


def machine() -> dict[str, Any]:
    """Where the figures come from, without the machine's name."""
    return {
        "taken": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpus": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }


def details(outcomes: Sequence[Outcome]) -> str:
    """What the benches say beside the figures that are judged; empty when none of them ran."""
    return "\n".join(part for part in (throughput(outcomes), two_sided(outcomes)) if part)


def throughput(outcomes: Sequence[Outcome]) -> str:
    """Bare rate, package rate and the spread of the ratios, for the cases that have them."""
    lines = [
        "| case | records | pairs | bare/s | keyshared/s | ratios | commits | batch |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for outcome in outcomes:
        found = outcome.result
        if not isinstance(outcome.case.plan, NoopPlan):
            continue
        ratios = f"{min(found['ratios']):.2f} to {max(found['ratios']):.2f}"
        lines.append(
            f"| {outcome.case.title} | {found['records']:,} | {len(found['ratios'])} | "
            f"{found['bare_per_s']:,} | {found['keyshared_per_s']:,} | {ratios} | "
            f"{found['commits']} | {found['median_batch']:,} |"
        )
    return "\n".join(lines) + "\n" if len(lines) > 2 else ""


SHOWN = {
    "latency": ("p50_ms", "p99_ms", "cpu_share"),
    "memory": ("peak_mib", "growth_mib", "seconds"),
    "start": ("s",),
}
"""Figures that a case has for both sides: ``bare_x`` and ``keyshared_x``, or ``x`` alone."""


def two_sided(outcomes: Sequence[Outcome]) -> str:
    """Both sides of the latency and memory cases, beside one another."""
    lines = ["| case | figure | bare | keyshared |", "|---|---|---|---|"]
    for outcome in outcomes:
        found = outcome.result
        for figure in SHOWN.get(outcome.case.name, ()):
            layer = found.get(f"keyshared_{figure}", found.get(figure))
            lines.append(
                f"| {outcome.case.title} | {figure} | {found[f'bare_{figure}']} | {layer} |"
            )
    return "\n".join(lines) + "\n" if len(lines) > 2 else ""


def suspicions(outcomes: Sequence[Outcome]) -> list[str]:
    """What makes a figure doubtful, each with its case; one-lease is short on purpose."""
    return [
        f"{outcome.case.name}: {reason}"
        for outcome in outcomes
        for reason in outcome.result.get("suspect", ())
        if outcome.case.name != "one-lease"
    ]


def write_reports(outcomes: Sequence[Outcome], options: argparse.Namespace) -> None:
    """Write the files that were asked for."""
    where = machine()
    doubts = suspicions(outcomes)
    if options.json:
        cases = {outcome.case.name: outcome.result for outcome in outcomes}
        missed = {outcome.case.name: [str(f) for f in outcome.missed] for outcome in outcomes}
        whole = {"machine": where, "cases": cases, "missed": missed, "suspect": doubts}
        options.json.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
    if options.markdown:
        taken = ", ".join(f"{name} {value}" for name, value in where.items())
        text = f"{taken}\n\n{table(outcomes)}\n{details(outcomes)}"
        text += "".join(f"\nSuspect: {doubt}\n" for doubt in doubts)
        options.markdown.write_text(text, encoding="utf-8")


def choose(names: Sequence[str], before: Path | None) -> list[Case]:
    """Return the cases of these names, all without names; ``before`` goes to those that need it.

    Those are left out without it, and a note says so.
    """
    by_name = {case.name: case for case in CASES}
    wanted = dict.fromkeys(each for name in names for each in GROUPS.get(name, (name,)))
    chosen = []
    for case in [by_name[name] for name in wanted or by_name]:
        if isinstance(case.plan, BeforePlan):
            if before is None:
                note(f"{case.name} is left out: give --before PATH")
                continue
            chosen.append(replace(case, plan=replace(case.plan, before=before)))
        else:
            chosen.append(case)
    return chosen


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Take the full measurements (long).")
    names = [*(case.name for case in CASES), *GROUPS]
    parser.add_argument("--case", action="append", choices=names, help="only this one; repeatable")
    parser.add_argument("--before", type=Path, help="a checkout that the before- cases run as well")
    parser.add_argument("--repeat", type=int, help="pairs of each case, instead of its own number")
    parser.add_argument("-b", "--bootstrap", help="measure on this cluster, not on one of our own")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    parser.add_argument("--markdown", type=Path, help="write the tables to this file")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, write the reports; return the exit status."""
    options = parse(arguments)
    chosen = choose(options.case or (), options.before)
    if not chosen:
        return 2
    cluster = None
    outcomes = []
    try:
        if any(case.plan for case in chosen):
            cluster = open_cluster(options.bootstrap)
            if cluster.kind != "real":
                note("a real Kafka is needed: install Java 17 and Maven, then run make verify")
                return 2
        for case in chosen:
            outcomes.append(run_case(case, cluster, options.repeat))
            write_reports(outcomes, options)
    except KeySharedError as error:
        note(str(error))
        return error.exit_code
    finally:
        if cluster is not None:
            cluster.close()
    sys.stdout.write(f"{table(outcomes)}\n{details(outcomes)}")
    for doubt in suspicions(outcomes):
        note(f"suspect: {doubt}")
    return 1 if any(outcome.missed for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())

"""The cases of the scheduler, which ``verify.py --case scheduler`` runs.

They are fairness, long records, makespan, threads, cost, coroutines, scaling and memory. The goals
and the figures are in docs/internals/notebook.md.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import msgspec

from kafka_keyshared.core.workers.shards import SharedRow
from kafka_keyshared.hashing import slot_of
from kafka_keyshared.lab.bench import fair, scale, skew, stuck
from kafka_keyshared.lab.bench.common import Progress
from kafka_keyshared.lab.bench.fair import FairPlan
from kafka_keyshared.lab.bench.noop import NoopPlan
from kafka_keyshared.lab.bench.scale import ScalePlan
from kafka_keyshared.lab.bench.skew import DISTRIBUTIONS, SkewPlan
from kafka_keyshared.lab.bench.stuck import StuckPlan
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.benchmarks import coroutines
from tests.benchmarks.before import BeforePlan
from tests.benchmarks.cases import Case, Floor, OnCluster
from tests.benchmarks.coroutines import CoroutinePlan
from tests.benchmarks.scaling import ScalingPlan, held_bytes

P = TypeVar("P", bound=msgspec.Struct)
Figures = dict[str, Any]
KIB = 1 << 10

EMPTY_SHARDS = 256

LONG_ENOUGH = 10.0
"""Seconds that a run of coroutines takes at least."""


@dataclass(frozen=True, slots=True)
class BenchPlan(OnCluster, Generic[P]):
    """A bench of the package, as its verb runs it; ``shape`` makes figures of its result."""

    plan: P
    bench: Callable[[P, Cluster, Progress], Figures]
    shape: Callable[[Figures], Figures] = dict

    def measure(self, cluster: Cluster, repeat: int | None, progress: Progress) -> Figures:
        """Return the figures of the bench."""
        plan = self.plan
        if repeat:
            plan = msgspec.structs.replace(plan, repeat=repeat)
        return self.shape(self.bench(plan, cluster, progress))


def flat(result: Figures, name: str) -> Figures:
    """Return the figures of a result's rows by the row's ``name``: ``share thread:16``."""
    found = {key: value for key, value in result.items() if key != "rows"}
    for row in result["rows"]:
        found |= {f"{key} {row[name]}": value for key, value in row.items() if key != name}
    return found


def by_pool(result: Figures) -> Figures:
    """Return the figures of ``bench stuck``."""
    return flat(result, "workers")


def by_keys(result: Figures) -> Figures:
    """Return the figures of ``bench skew``."""
    return flat(result, "distribution")


def with_losts(result: Figures) -> Figures:
    """Return the figures of ``bench scale --parts threads``, with those of each turn."""
    [*losts] = result["losts"].values()
    shown = ", ".join(f"{count}: {per_s:,}" for count, per_s in result["per_s"].items())
    return {**result, "workers_losts": losts[-1], "by_threads": shown}


def measure_held(_repeat: int | None) -> Figures:
    """Return the bytes of a held record in each kind of pool, and the KiB of empty shards."""
    held = ScalingPlan().held
    return {
        "threads_bytes": held_bytes(held),
        "threads_header_bytes": held_bytes(held, header="key"),
        "coroutines_bytes": held_bytes(held, coroutines=True),
        "coroutines_header_bytes": held_bytes(held, header="key", coroutines=True),
        "shards_kib": round(empty_shards_bytes(EMPTY_SHARDS) / KIB, 1),
    }


def empty_shards_bytes(shards: int) -> int:
    """Return what so many shards and their queues take while nothing waits.

    The slot table is not counted: workers that own their keys have one as well.
    """
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        row = SharedRow(lambda _: None, slot_of, shards)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return after - before - sys.getsizeof(row.by_slot)


def measure_long_coroutines(repeat: int | None) -> Figures:
    """Run coroutines for at least ten seconds, and unguarded tasks."""
    # The embedded cluster keeps 5 MB of a partition, so more records need more partitions.
    plan = CoroutinePlan(records=2_000_000, partitions=50)
    return coroutines.measure(replace(plan, pairs=repeat or plan.pairs))


def _fair(name: str, plan: FairPlan) -> Case:
    title = (
        f"{plan.rate}/s, {plan.hot_share:.0%} of one key at {plan.overload():.0f} times its "
        f"capacity, {plan.workers}: delay of other keys in the last third"
    )
    floor = Floor("others_p99_ms", 250, at_most=True, goal=50, runs="others_p99s_ms")
    return Case(name, title, (floor,), BenchPlan(plan, fair.measure))


def _before(name: str, what: str, floor: Floor, noop: NoopPlan, *, bare: bool = True) -> Case:
    floors = [floor]
    if bare and floor.goal is None:
        floors.append(
            Floor(
                "ratio",
                0.60,
                goal=0.75,
                runs="ratios",
                beside=("before", "before_ratio_spread"),
            )
        )
    return Case(name, f"{what}, as a share of --before", tuple(floors), BeforePlan(noop, bare=bare))


BETTER = Floor("of_before", 0.95, goal=1.0, runs="of_befores")
BOUNDS = {"zipf:1.1": 1.12, "zipf:0.8": 1.16, "uniform": 1.13}
STUCK = StuckPlan()

LINES: tuple[Case, ...] = (
    _fair("fair-threads", FairPlan()),
    _fair("fair-coroutines", FairPlan(workers="asyncio:1000")),
    # Two processes do 100 records a second of 20 ms, and the hot key can have 50 of these. So
    # the other keys have 25 here: a half of what is left.
    _fair("fair-processes", FairPlan(workers="process:2", rate=175, hot_share=6 / 7)),
    Case(
        "stuck",
        f"one record of {STUCK.stuck:g} s among {STUCK.keys:,} keys: share of the others that "
        "start within 100 ms",
        tuple(
            Floor(
                f"share {workers}",
                0.995,
                goal=0.999,
                runs=f"shares {workers}",
                beside=("before it", f"before_share {workers}"),
            )
            for workers in STUCK.workers
        ),
        BenchPlan(STUCK, stuck.measure, by_pool),
    ),
    Case(
        "skew",
        "backlog of 200,000 records, 10,000 keys, 16 threads, 1 ms: makespan to its lower bound",
        tuple(
            Floor(
                f"ratio {keys}",
                BOUNDS[keys],
                at_most=True,
                goal=1.08,
                runs=f"ratios {keys}",
                beside=("bare threads", f"bare_ratio_spread {keys}"),
            )
            for keys in DISTRIBUTIONS
        ),
        BenchPlan(SkewPlan(), skew.measure, by_keys),
    ),
    Case(
        "sleeping",
        "thread:100, 2 ms of sleep: share of what 100 bare threads do that only sleep",
        (
            Floor(
                "sleep_share",
                0.85,
                goal=0.92,
                runs="sleep_shares",
                beside=("bare/s", "bare_sleep_per_s"),
            ),
        ),
        BenchPlan(ScalePlan(parts=("sleep",)), scale.measure),
    ),
    Case(
        "workers",
        "empty handler, from 2 workers to 64: share of the throughput that is lost",
        (
            Floor(
                "workers_lost",
                0.12,
                at_most=True,
                goal=0.05,
                runs="workers_losts",
                beside=("records/s", "by_threads"),
            ),
        ),
        BenchPlan(ScalePlan(parts=("threads",)), scale.measure, with_losts),
    ),
    _before(
        "before-empty",
        "empty handler, thread:8",
        Floor("of_before", 0.97, runs="of_befores"),
        NoopPlan(),
    ),
    _before("before-one-key", "one single key", BETTER, NoopPlan(keys=1)),
    _before("before-null-keys", "10 % null keys", BETTER, NoopPlan(null_share=0.1)),
    _before("before-failures", "2 % failures", BETTER, NoopPlan(fail_every=50)),
    _before(
        "before-one-lease",
        "one single key, one in flight per key",
        BETTER,
        NoopPlan(records=200_000, keys=1, one_in_flight_per_key=True),
        bare=False,
    ),
    Case(
        "coroutines-long",
        "asyncio:1000, 2 ms of sleep, to unguarded tasks, in long runs",
        (
            Floor("ratio", 1.5, goal=2.0, runs="ratios", beside=("bare/s", "bare_per_s")),
            Floor("shortest_s", LONG_ENOUGH),
        ),
        run=measure_long_coroutines,
    ),
    Case(
        "resize",
        "app.scale(32) of 2 threads under load: ms to the first record on a new one",
        (
            Floor("resize_first_ms", 50, at_most=True, goal=10, runs="resize_firsts_ms"),
            Floor("resize_drained_slots", 0, at_most=True),
        ),
        BenchPlan(ScalePlan(parts=("resize",)), scale.measure),
    ),
    Case(
        "held",
        "memory: a held record beside its message, 256 empty shards",
        (
            *(
                Floor(f"{pool}_{figure}", bound, at_most=True)
                for pool in ("threads", "coroutines")
                for figure, bound in (("bytes", 30), ("header_bytes", 78))
            ),
            Floor("shards_kib", 100, at_most=True),
        ),
        run=measure_held,
    ),
)

BESIDE = {"sleeping": "beside-java-sleeping"}
"""Cases of ``verify.py`` that follow a line."""

NAMES = tuple(
    name for case in LINES for name in (case.name, BESIDE.get(case.name)) if name is not None
)
"""The names of the cases that ``--case scheduler`` runs, in this order."""

"""``keyshared bench scale``: the cost, throughput and start-up of more threads.

There are three parts:

- ``threads``: an empty handler on few threads and on many. The result is the share of the
  throughput that many threads lose, because they do nothing that few cannot do.
- ``sleep``: a handler that sleeps, on many threads. The result is its share of the throughput
  of as many bare threads that read nothing and only sleep.
- ``resize``: ``app.scale()`` while there is a backlog. The result is the time from the call to the
  first record on a new thread, and the number of drained slots. For functions that is none.

All runs of a part take turns, and the first one alternates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.lab.bench.common import (
    Progress,
    group_of,
    measure_on,
    require_positive,
    run_child,
    sides_of,
    topic_of_our_own,
)
from kafka_keyshared.lab.bench.figures import lost, median
from kafka_keyshared.lab.bench.noop import NoopPlan, embedded_room, fill, run_side, short_runs
from kafka_keyshared.lab.bench.resize_side import ResizeTask, ResizeTimes
from kafka_keyshared.lab.bench.sleeping import fill_backlog, fitting, run_sleeping
from kafka_keyshared.lab.bench.sleeping_side import Makespan
from kafka_keyshared.lab.bench.workloads import keys_of
from kafka_keyshared.testing.clusters.cluster import Cluster

RESIZE_WARM = 500
"""Records that are done before the thread count changes."""


class ScalePlan(msgspec.Struct, kw_only=True, frozen=True):
    """The parameters. ``repeat`` counts the turns of each part.

    ``threads`` are the counts for the empty handler, each compared with the first one, over
    ``records``. Handlers that sleep do so for ``sleep_ms``: ``sleep_records`` on ``sleep_threads``,
    and while ``resize[0]`` threads become ``resize[1]``.
    """

    parts: tuple[str, ...] = ("threads", "sleep", "resize")
    repeat: int = 5
    records: int = 2_000_000
    threads: tuple[int, ...] = (2, 64)
    sleep_records: int = 300_000
    sleep_threads: int = 100
    sleep_ms: float = 2.0
    resize: tuple[int, ...] = (2, 32)
    partitions: int = 8
    keys: int = 10_000
    value_bytes: int = 100

    @property
    def workers(self) -> str:
        """The largest thread count of any part, as the option ``workers`` takes it."""
        return f"thread:{max(*self.threads, self.sleep_threads, *self.resize)}"

    def check(self) -> None:
        """Raise :class:`ConfigError` for numbers that make no sense."""
        require_positive(
            self, "repeat", "records", "sleep_records", "sleep_threads", "partitions", "keys"
        )
        if not self.parts or not set(self.parts) <= PARTS.keys():
            raise ConfigError(f"--parts {_list(self.parts)}: give some of {_list([*PARTS])}")
        if len(self.threads) < 2 or min(self.threads) < 1:
            raise ConfigError(f"--threads {_list(self.threads)}: give two counts or more, from 1")
        if len(self.resize) != 2 or not 1 <= self.resize[0] < self.resize[1]:
            raise ConfigError(f"--resize {_list(self.resize)}: give a count and a larger one")
        if not self.sleep_ms > 0:
            raise ConfigError(f"--sleep-ms {self.sleep_ms:g}: must be above 0")
        if self.value_bytes < 0:
            raise ConfigError(f"--value-bytes {self.value_bytes}: must not be negative")

    def backlog(self, cluster: Cluster) -> list[int]:
        """Return the key of each record whose handler sleeps, as many as the cluster can hold."""
        numbers = list(keys_of("uniform", self.sleep_records, self.keys))
        if cluster.kind != "embedded":
            return numbers
        return fitting(numbers, self.partitions, embedded_room(self.value_bytes, self.keys))


def _list(values: Sequence[object]) -> str:
    return ",".join(map(str, values))


def measure(plan: ScalePlan, cluster: Cluster, progress: Progress) -> dict[str, Any]:
    """Return the figures of all parts. Raises :class:`KeySharedError` when a run failed."""
    plan.check()
    found: dict[str, Any] = {"repeat": plan.repeat, "kafka": cluster.kind, "suspect": []}
    for part in dict.fromkeys(plan.parts):
        figures = PARTS[part](plan, cluster, progress)
        found["suspect"] += figures.pop("suspect", ())
        found |= figures
    return found


# --- an empty handler on few threads and many ---


def measure_threads(plan: ScalePlan, cluster: Cluster, progress: Progress) -> dict[str, Any]:
    """Return the throughput of an empty handler by thread count, and the loss against the first."""
    noop = NoopPlan(
        records=plan.records,
        partitions=plan.partitions,
        keys=plan.keys,
        value_bytes=plan.value_bytes,
        repeat=plan.repeat,
    ).that_fits(cluster)
    turns: list[dict[int, float]] = []
    shortest: list[float] = []
    with topic_of_our_own(cluster, plan.partitions, progress) as topic:
        fill(cluster.bootstrap, topic, noop)
        for number in range(plan.repeat):
            turn: dict[int, float] = {}
            for count in plan.threads if number % 2 == 0 else reversed(plan.threads):
                of = msgspec.structs.replace(noop, workers=f"thread:{count}")
                result = run_side(of.task("keyshared", cluster.bootstrap, topic))
                turn[count] = result.records / result.seconds
                shortest.append(result.seconds)
            turns.append(turn)
            progress(
                f"threads, turn {number + 1} of {plan.repeat}: "
                + ", ".join(f"{count}: {turn[count]:,.0f}/s" for count in plan.threads)
            )
    return {
        **lost_of(plan.threads, turns),
        "records": noop.records,
        "suspect": short_runs(min(shortest)),
    }


def lost_of(counts: Sequence[int], turns: Sequence[Mapping[int, float]]) -> dict[str, Any]:
    """Return medians over turns: records per second by thread count, and the share lost.

    ``workers_lost`` is the loss of the last count against the first one.
    """
    first, *others = counts
    losts = {count: [lost(turn[first], turn[count]) for turn in turns] for count in others}
    return {
        "per_s": {str(count): round(median(turn[count] for turn in turns)) for count in counts},
        "workers_lost": median(losts[others[-1]]),
        "lost": {str(count): median(each) for count, each in losts.items()},
        "losts": {str(count): [round(each, 3) for each in losts[count]] for count in others},
    }


# --- handlers that sleep ---


def _measure_sleep(plan: ScalePlan, cluster: Cluster, progress: Progress) -> dict[str, Any]:
    numbers = plan.backlog(cluster)
    pairs: list[tuple[Makespan, Makespan]] = []
    with topic_of_our_own(cluster, plan.partitions, progress) as topic:
        fill_backlog(cluster.bootstrap, topic, numbers, plan.partitions, plan.value_bytes)
        for number in range(plan.repeat):
            pair = {
                side: run_sleeping(
                    "keyshared" if side == "keyshared" else "threads",
                    cluster,
                    topic,
                    records=len(numbers),
                    workers=f"thread:{plan.sleep_threads}",
                    sleep_ms=plan.sleep_ms,
                )
                for side in sides_of(number)
            }
            pairs.append((pair["keyshared"], pair["bare"]))
            progress(
                f"sleep, pair {number + 1} of {plan.repeat}: keyshared "
                f"{len(numbers) / pair['keyshared'].seconds:,.0f}/s, threads that only sleep "
                f"{len(numbers) / pair['bare'].seconds:,.0f}/s"
            )
    return share_of(plan, len(numbers), pairs)


def share_of(
    plan: ScalePlan, records: int, pairs: Sequence[tuple[Makespan, Makespan]]
) -> dict[str, Any]:
    """Return the package's throughput as a share of bare threads', in medians over the pairs."""
    shares = [bare.seconds / layer.seconds for layer, bare in pairs]
    return {
        "sleep_share": median(shares),
        "sleep_shares": [round(each, 3) for each in shares],
        "sleep_per_s": round(median(records / layer.seconds for layer, _ in pairs)),
        "bare_sleep_per_s": round(median(records / bare.seconds for _, bare in pairs)),
        "sleep_records": records,
        "sleep_threads": plan.sleep_threads,
        "sleep_ms": plan.sleep_ms,
    }


# --- a thread count that changes ---


def _measure_resize(plan: ScalePlan, cluster: Cluster, progress: Progress) -> dict[str, Any]:
    numbers = plan.backlog(cluster)
    before, after = plan.resize
    runs = []
    with topic_of_our_own(cluster, plan.partitions, progress) as topic:
        fill_backlog(cluster.bootstrap, topic, numbers, plan.partitions, plan.value_bytes)
        for number in range(plan.repeat):
            task = ResizeTask(
                side="keyshared",
                bootstrap=cluster.bootstrap,
                topic=topic,
                group=group_of("resize"),
                workers=f"thread:{before}",
                records=len(numbers),
                warm=min(RESIZE_WARM, len(numbers) // 4),
                before=before,
                after=after,
                sleep_ms=plan.sleep_ms,
            )
            run = run_child("resize_side", task, ResizeTimes, "measured side")
            runs.append(run)
            progress(
                f"resize, run {number + 1} of {plan.repeat}: first record on a new thread after "
                f"{run.first_ms:.1f} ms, one on each after {run.every_ms:.1f} ms; "
                f"{run.drained_slots} slots drained"
            )
    return resized_of(plan, runs)


def resized_of(plan: ScalePlan, runs: Sequence[ResizeTimes]) -> dict[str, Any]:
    """Return medians over runs in milliseconds, and the most slots that drained in one of them."""
    return {
        "resize_first_ms": median(run.first_ms for run in runs),
        "resize_firsts_ms": [round(run.first_ms, 3) for run in runs],
        "resize_every_ms": median(run.every_ms for run in runs),
        "resize_call_ms": median(run.call_ms for run in runs),
        "resize_new_threads": min(run.new_threads for run in runs),
        "resize_drained_slots": max(run.drained_slots for run in runs),
        "resize": list(plan.resize),
        "suspect": list(_drained(runs)),
    }


def _drained(runs: Sequence[ResizeTimes]) -> Iterator[str]:
    for number, run in enumerate(runs, start=1):
        if run.drained_slots:
            yield f"resize, run {number}: {run.drained_slots} slots drained, and none should"


PARTS: Mapping[str, Callable[[ScalePlan, Cluster, Progress], dict[str, Any]]] = {
    "threads": measure_threads,
    "sleep": _measure_sleep,
    "resize": _measure_resize,
}


def measure_at(plan: ScalePlan, bootstrap: str | None, progress: Progress) -> dict[str, Any]:
    """Measure on the cluster at this address, or on the best that can be started here."""
    return measure_on(bootstrap, measure, plan, progress)

"""``keyshared bench skew``: makespan of skewed backlogs over its lower bound.

Handlers that sleep work off a backlog. The *makespan* is the time from the first record to the end
of the last one. No scheduler that keeps the order of each key can be faster than the larger of two
bounds. One is all work divided by the threads. The other is the work of the hottest key, whose
records run one after the other. The result is the makespan divided by that bound; 1 is perfect.

Both bounds use the time of one ``time.sleep`` call on this machine, measured beside each run. A
sleep of 1 ms takes about 1.06 ms, and more on a busy machine.

In turn with these runs, a bare consumer reads the same records into one queue. As many bare threads
take from it. They keep no order, so their bound is all work divided by the threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.lab.bench.common import (
    Progress,
    measure_on,
    require_positive,
    sides_of,
    topic_of_our_own,
)
from kafka_keyshared.lab.bench.figures import median, spread
from kafka_keyshared.lab.bench.noop import embedded_room
from kafka_keyshared.lab.bench.sleeping import (
    fill_backlog,
    fitting,
    run_sleeping,
    sleep_cost,
    threads_of,
)
from kafka_keyshared.lab.bench.sleeping_side import Kind
from kafka_keyshared.lab.bench.workloads import keys_of, zipf
from kafka_keyshared.testing.clusters.cluster import Cluster

UNIFORM = "uniform"
ZIPF = "zipf:"
DISTRIBUTIONS = (f"{ZIPF}1.1", f"{ZIPF}0.8", UNIFORM)

BARE_RATIO_MOST = 1.2
"""Bare threads that take more than this times their bound had to wait for the processor."""


def exponent_of(distribution: str) -> float | None:
    """Return the exponent of ``zipf:1.1`` as a number, None for ``uniform``.

    Raises :class:`ConfigError` for any other text.
    """
    if distribution == UNIFORM:
        return None
    try:
        exponent = float(distribution.removeprefix(ZIPF))
    except ValueError:
        exponent = 0.0
    if not distribution.startswith(ZIPF) or not 0 < exponent < 10:
        raise ConfigError(
            f"--distributions {distribution}: give {UNIFORM}, or {ZIPF} with an exponent above 0 "
            f"and below 10, such as {ZIPF}1.1"
        )
    return exponent


class SkewPlan(msgspec.Struct, kw_only=True, frozen=True):
    """Parameters: the distribution of ``records`` over ``keys``, and how long each one takes.

    ``sleep_ms`` is the argument of the handler's ``time.sleep``. ``repeat`` counts the pairs of
    runs of each distribution.
    """

    records: int = 200_000
    keys: int = 10_000
    workers: str = "thread:16"
    sleep_ms: float = 1.0
    distributions: tuple[str, ...] = DISTRIBUTIONS
    repeat: int = 3
    partitions: int = 8
    value_bytes: int = 100

    def check(self) -> None:
        """Raise :class:`ConfigError` for numbers that make no sense."""
        require_positive(self, "records", "keys", "repeat", "partitions")
        if self.value_bytes < 0:
            raise ConfigError(f"--value-bytes {self.value_bytes}: must not be negative")
        if not self.sleep_ms > 0:
            raise ConfigError(f"--sleep-ms {self.sleep_ms:g}: must be above 0")
        if not self.distributions:
            raise ConfigError("--distributions: give at least one")
        for each in self.distributions:
            exponent_of(each)
        self.threads()

    def threads(self) -> int:
        """Return how many threads both sides have."""
        return threads_of(self.workers, "bench skew")

    def numbers(self, distribution: str) -> list[int]:
        """Return the number of each record's key, the same on every run."""
        exponent = exponent_of(distribution)
        if exponent is None:
            return list(keys_of("uniform", self.records, self.keys))
        return zipf(self.records, self.keys, exponent)


class MakespanBound(msgspec.Struct, frozen=True):
    """Least seconds that a backlog takes: for its work as a whole, and for its hottest key."""

    work: float
    hottest: float

    @property
    def seconds(self) -> float:
        """Return the least time of a scheduler that keeps the order of each key."""
        return max(self.work, self.hottest)


def bound_of(records: int, hottest: int, threads: int, cost: float) -> MakespanBound:
    """Return the bounds of ``records``, ``hottest`` of them of one key, each of ``cost`` s."""
    return MakespanBound(work=records * cost / threads, hottest=hottest * cost)


class Pair(msgspec.Struct, kw_only=True, frozen=True):
    """One run of each side, in seconds; ``cost`` is the time of one sleep beside them."""

    cost: float
    keyshared: float
    bare: float


def measure(plan: SkewPlan, cluster: Cluster, progress: Progress) -> dict[str, Any]:
    """Return the measurement. Raises :class:`KeySharedError` when a side failed."""
    plan.check()
    progress(
        f"{plan.records:,} records of {plan.keys:,} keys, {plan.workers}, {plan.sleep_ms:g} ms of "
        f"sleep each; {cluster.kind} Kafka at {cluster.bootstrap}"
    )
    rows, pairs = [], []
    for distribution in plan.distributions:
        numbers = plan.numbers(distribution)
        if cluster.kind == "embedded":
            room = embedded_room(plan.value_bytes, plan.keys)
            numbers = fitting(numbers, plan.partitions, room)
            if len(numbers) < plan.records:
                progress(f"embedded cluster: {len(numbers):,} records, because it holds no more")
        found = _pairs(plan, cluster, distribution, numbers, progress)
        rows.append(row_of(plan, distribution, numbers, found))
        pairs += found
    return {
        "rows": rows,
        "keys": plan.keys,
        "workers": plan.workers,
        "sleep_ms": plan.sleep_ms,
        "sleep_call_ms": median(pair.cost * 1e3 for pair in pairs),
        "repeat": plan.repeat,
        "kafka": cluster.kind,
        "suspect": list(doubts_of(rows)),
    }


def _pairs(
    plan: SkewPlan,
    cluster: Cluster,
    distribution: str,
    numbers: Sequence[int],
    progress: Progress,
) -> list[Pair]:
    hottest = max(Counter(numbers).values())
    pairs = []
    with topic_of_our_own(cluster, plan.partitions, progress) as topic:
        fill_backlog(cluster.bootstrap, topic, numbers, plan.partitions, plan.value_bytes)
        for number in range(plan.repeat):
            pair = _pair(plan, cluster, topic, len(numbers), number)
            bound = bound_of(len(numbers), hottest, plan.threads(), pair.cost)
            progress(
                f"{distribution}, pair {number + 1} of {plan.repeat}: keyshared "
                f"{pair.keyshared:.2f} s, {pair.keyshared / bound.seconds:.3f} of its lower bound; "
                f"bare threads {pair.bare:.2f} s, {pair.bare / bound.work:.3f}; one sleep "
                f"{pair.cost * 1e3:.3f} ms"
            )
            pairs.append(pair)
    return pairs


def _pair(plan: SkewPlan, cluster: Cluster, topic: str, records: int, number: int) -> Pair:
    costs, took = [], {}
    for side in sides_of(number):
        costs.append(sleep_cost(plan.sleep_ms / 1e3))
        kind: Kind = "keyshared" if side == "keyshared" else "queue"
        span = run_sleeping(
            kind,
            cluster,
            topic,
            records=records,
            workers=plan.workers,
            sleep_ms=plan.sleep_ms,
        )
        took[side] = span.seconds
    # The lesser of both: a bound must not be above the possible time.
    return Pair(cost=min(costs), keyshared=took["keyshared"], bare=took["bare"])


def row_of(
    plan: SkewPlan, distribution: str, numbers: Sequence[int], pairs: Sequence[Pair]
) -> dict[str, Any]:
    """Summarize the pairs of one distribution: medians, and the ratio of each pair."""
    counts = Counter(numbers)
    records, hottest = len(numbers), max(counts.values())
    bounds = [bound_of(records, hottest, plan.threads(), pair.cost) for pair in pairs]
    both = list(zip(pairs, bounds, strict=True))
    ratios = [pair.keyshared / bound.seconds for pair, bound in both]
    bare = [pair.bare / bound.work for pair, bound in both]
    return {
        "distribution": distribution,
        "records": records,
        "keys_used": len(counts),
        "hottest_records": hottest,
        "hottest_share": round(hottest / records, 4),
        "bound": "hottest key" if bounds[0].hottest > bounds[0].work else "all work",
        "bound_s": median(bound.seconds for bound in bounds),
        "makespan_s": median(pair.keyshared for pair in pairs),
        "ratio": median(ratios),
        "ratios": [round(each, 3) for each in ratios],
        "ratio_spread": spread(ratios, 3),
        "bare_bound_s": median(bound.work for bound in bounds),
        "bare_makespan_s": median(pair.bare for pair in pairs),
        "bare_ratio": median(bare),
        "bare_ratios": [round(each, 3) for each in bare],
        "bare_ratio_spread": spread(bare, 3),
    }


def doubts_of(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the reasons to doubt these rows."""
    for row in rows:
        least = min(*row["ratios"], *row["bare_ratios"])
        if least < 1:
            yield (
                f"{row['distribution']}: a run took {least:.3f} of its lower bound, so the machine "
                "was busier while the cost of a sleep was measured than in the run"
            )
        if row["bare_ratio"] > BARE_RATIO_MOST:
            yield (
                f"{row['distribution']}: the bare threads took {row['bare_ratio']:.2f} times their "
                f"lower bound (at most {BARE_RATIO_MOST:g} is normal): the machine is busy"
            )


def measure_at(plan: SkewPlan, bootstrap: str | None, progress: Progress) -> dict[str, Any]:
    """Measure on the cluster at this address, or on the best that can be started here."""
    return measure_on(bootstrap, measure, plan, progress)

"""``keyshared bench latency``: added delay of handlers against a bare poll loop.

A separate producer sends at a fixed rate, independent of the consumer. Each record carries its due
time. The delay counts from there to the start of its handler. So a stall of the producer or broker
counts on both sides ("coordinated omission"). The sides run one after the other, never at once:
they would take the processor from each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.lab.bench.child import Side
from kafka_keyshared.lab.bench.common import (
    Progress,
    group_of,
    measure_on,
    require_positive,
    run_paced,
    sides_of,
    topic_of_our_own,
)
from kafka_keyshared.lab.bench.figures import median
from kafka_keyshared.lab.bench.latency_side import Delays, LatencyTask
from kafka_keyshared.lab.bench.paced import Pace, Paced, require_room
from kafka_keyshared.testing.clusters.cluster import Cluster

WARM_BROKER = 10.0
"""Seconds of each side of a pair that do not count: Java is slow until it is compiled."""

SEEN_LEAST = 0.99
LATE_P99_MS = 2.0
"""A producer later than this at its 99th percentile causes the measured tail itself."""


class LatencyPlan(msgspec.Struct, kw_only=True, frozen=True):
    """Parameters. ``rate`` is in records per second over all partitions.

    Each run lasts ``seconds``, of which the first ``warmup`` do not count. The handler sleeps
    ``handler_ms`` after it has taken the delay.
    """

    rate: int = 5_000
    seconds: float = 20.0
    warmup: float = 3.0
    repeat: int = 9
    partitions: int = 8
    keys: int = 10_000
    value_bytes: int = 100
    workers: str = "thread:8"
    handler_ms: float = 0.0

    def check(self) -> None:
        """Raise :class:`ConfigError` for numbers that make no sense."""
        require_positive(self, "rate", "repeat", "partitions", "keys")
        if not 0 <= self.warmup < self.seconds:
            raise ConfigError(
                f"--seconds {self.seconds:g} --warmup {self.warmup:g}: the warm-up must not be "
                "negative and must be shorter than the run"
            )
        require_room(self.value_bytes)
        if not self.handler_ms >= 0:
            raise ConfigError(f"--handler-ms {self.handler_ms:g}: must not be negative")
        if self.counted() < 1:
            raise ConfigError(
                f"--rate {self.rate} --seconds {self.seconds:g}: no record is left after the "
                "warm-up; give more of either"
            )

    def records(self) -> int:
        """Return how many records a run has."""
        return int(self.rate * self.seconds)

    def counted(self) -> int:
        """Return how many of them count."""
        return self.records() - int(self.rate * self.warmup)


class LatencyRun(msgspec.Struct, kw_only=True):
    """One side of a pair and the producer that fed it."""

    delays: Delays
    paced: Paced


def measure(plan: LatencyPlan, cluster: Cluster, progress: Progress) -> dict[str, Any]:
    """Return the measurement. Raises :class:`KeySharedError` when a side failed."""
    plan.check()
    progress(
        f"{plan.rate:,} records/s for {plan.seconds:g} s a run, {cluster.kind} Kafka at "
        f"{cluster.bootstrap}; both sides with the same client settings, the package's defaults"
    )
    if WARM_BROKER and cluster.kind == "real":
        progress("one pair that does not count, because a fresh broker is slow")
        short = msgspec.structs.replace(plan, seconds=WARM_BROKER, warmup=0.0)
        for side in sides_of(0):
            _run(short, cluster, side, progress)
    pairs = [_pair(plan, cluster, number, progress) for number in range(plan.repeat)]
    return summary(plan, cluster.kind, pairs)


def _pair(
    plan: LatencyPlan, cluster: Cluster, number: int, progress: Progress
) -> dict[Side, LatencyRun]:
    pair = {side: _run(plan, cluster, side, progress) for side in sides_of(number)}
    bare, layer = pair["bare"].delays, pair["keyshared"].delays
    progress(
        f"pair {number + 1} of {plan.repeat}: bare p50 {bare.p50_ms:.2f} ms, p99 {bare.p99_ms:.2f} "
        f"ms; keyshared p50 {layer.p50_ms:.2f} ms, p99 {layer.p99_ms:.2f} ms"
    )
    return pair


def _run(plan: LatencyPlan, cluster: Cluster, side: Side, progress: Progress) -> LatencyRun:
    with topic_of_our_own(cluster, plan.partitions, progress) as topic:
        task = LatencyTask(
            side=side,
            bootstrap=cluster.bootstrap,
            topic=topic,
            group=group_of(side),
            workers=plan.workers,
            records=plan.records(),
            skip=plan.records() - plan.counted(),
            partitions=plan.partitions,
            handler_ms=plan.handler_ms,
        )
        pace = Pace(
            bootstrap=cluster.bootstrap,
            topic=topic,
            records=plan.records(),
            rate=plan.rate,
            skip=task.skip,
            partitions=plan.partitions,
            keys=plan.keys,
            value_bytes=plan.value_bytes,
        )
        delays, paced = run_paced("latency_side", task, Delays, pace, f"{side} side")
        return LatencyRun(delays=delays, paced=paced)


def summary(plan: LatencyPlan, kind: str, pairs: list[dict[Side, LatencyRun]]) -> dict[str, Any]:
    """Summarize the pairs: medians over pairs, and the reasons to doubt them."""
    bare = [pair["bare"].delays for pair in pairs]
    layer = [pair["keyshared"].delays for pair in pairs]
    both = list(zip(bare, layer, strict=True))
    added = [two.p50_ms - one.p50_ms for one, two in both]
    ratios = [two.p99_ms / one.p99_ms for one, two in both]
    runs = [run for pair in pairs for run in pair.values()]
    return {
        "bare_p50_ms": median(each.p50_ms for each in bare),
        "keyshared_p50_ms": median(each.p50_ms for each in layer),
        "added_p50_ms": median(added),
        "added_p50s_ms": [round(each, 3) for each in added],
        "bare_p99_ms": median(each.p99_ms for each in bare),
        "keyshared_p99_ms": median(each.p99_ms for each in layer),
        "p99_ratio": median(ratios),
        "p99_ratios": [round(each, 3) for each in ratios],
        "bare_cpu_share": median(each.cpu_share for each in bare),
        "keyshared_cpu_share": median(each.cpu_share for each in layer),
        "rate": plan.rate,
        "seconds": plan.seconds,
        "repeat": len(pairs),
        "records": plan.counted(),
        "seen_least": min(run.delays.seen for run in runs),
        "producer_late_p99_ms": median(run.paced.late_p99_ms for run in runs),
        "handler_ms": plan.handler_ms,
        "client_settings": "the package's defaults on both sides",
        "kafka": kind,
        "suspect": list(_doubts(plan, pairs)),
    }


def _doubts(plan: LatencyPlan, pairs: list[dict[Side, LatencyRun]]) -> Iterator[str]:
    for number, pair in enumerate(pairs, start=1):
        for side, run in pair.items():
            where = f"pair {number}, {side}"
            if run.delays.seen < SEEN_LEAST * plan.counted():
                yield (
                    f"{where}: {run.delays.seen:,} of {plan.counted():,} records were seen; the "
                    "side cannot keep up with this --rate"
                )
            if run.paced.late_p99_ms > LATE_P99_MS:
                yield (
                    f"{where}: the producer itself was {run.paced.late_p99_ms:.1f} ms late at p99 "
                    f"(at most {LATE_P99_MS:g} is normal): the machine is busy, or --rate too high"
                )


def measure_at(plan: LatencyPlan, bootstrap: str | None, progress: Progress) -> dict[str, Any]:
    """Measure on the cluster at this address, or on the best that can be started here."""
    return measure_on(bootstrap, measure, plan, progress)

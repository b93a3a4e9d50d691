"""``keyshared bench fair``: waiting time of other keys beside a hot key.

A separate producer sends at a fixed rate. A share of the records has one key, which is more than
its handler can do one after the other. So the backlog of this *hot key* grows as long as the run
lasts. All other records could run at once. The bench measures the delay of the other keys. It
counts from the due time of a record to the start of its handler. Only the last third of the run
counts. A scheduler that lets keys wait for one another shows its full effect there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.lab.bench.common import (
    Progress,
    group_of,
    measure_on,
    require_positive,
    run_paced,
    topic_of_our_own,
)
from kafka_keyshared.lab.bench.fair_side import FairTask, OtherKeyWaits
from kafka_keyshared.lab.bench.figures import median
from kafka_keyshared.lab.bench.paced import Pace, Paced, require_room
from kafka_keyshared.testing.clusters.cluster import Cluster

LATE_P99_MS = 20.0
"""A producer later than this at its 99th percentile causes the measured delays itself."""


class FairPlan(msgspec.Struct, kw_only=True, frozen=True):
    """Parameters: ``rate`` records per second, of which ``hot_share`` are of the hot key.

    The handler sleeps ``handler_ms``, so the hot key can do ``1000 / handler_ms`` a second.
    """

    rate: int = 300
    hot_share: float = 0.5
    handler_ms: float = 20.0
    seconds: float = 45.0
    repeat: int = 3
    partitions: int = 4
    keys: int = 1_000
    value_bytes: int = 100
    workers: str = "thread:16"

    def check(self) -> None:
        """Raise :class:`ConfigError` for numbers that make no sense."""
        require_positive(self, "rate", "repeat", "partitions", "keys")
        if not self.seconds >= 3:
            raise ConfigError(f"--seconds {self.seconds:g}: give at least 3")
        if not 0 <= self.hot_share < 1:
            raise ConfigError(f"--hot-share {self.hot_share:g}: give a share from 0 to below 1")
        if not self.handler_ms > 0:
            raise ConfigError(f"--handler-ms {self.handler_ms:g}: must be above 0")
        require_room(self.value_bytes)

    def records(self) -> int:
        """Return how many records a run has."""
        return int(self.rate * self.seconds)

    def overload(self) -> float:
        """Return the rate of the hot key's records over the rate that it can handle."""
        return self.rate * self.hot_share * self.handler_ms / 1e3


class FairRun(msgspec.Struct, kw_only=True):
    """Waiting times of the keys, and the producer that fed them."""

    waits: OtherKeyWaits
    paced: Paced


def measure(plan: FairPlan, cluster: Cluster, progress: Progress) -> dict[str, Any]:
    """Return the measurement. Raises :class:`KeySharedError` when a side failed."""
    plan.check()
    progress(
        f"{plan.rate:,} records/s for {plan.seconds:g} s a run, {plan.hot_share:.0%} of them of "
        f"one key, {plan.overload():.1f} times its capacity; {cluster.kind} Kafka"
    )
    runs = []
    for number in range(plan.repeat):
        run = _run(plan, cluster, progress)
        runs.append(run)
        progress(
            f"run {number + 1} of {plan.repeat}: other keys p50 {run.waits.others_p50_ms:.1f} ms, "
            f"p99 {run.waits.others_p99_ms:.1f} ms; hot key {run.waits.hot_per_s:.1f}/s"
        )
    return summary(plan, cluster.kind, runs)


def _run(plan: FairPlan, cluster: Cluster, progress: Progress) -> FairRun:
    with (
        tempfile.TemporaryDirectory() as folder,
        topic_of_our_own(cluster, plan.partitions, progress) as topic,
    ):
        task = FairTask(
            side="keyshared",
            bootstrap=cluster.bootstrap,
            topic=topic,
            group=group_of("fair"),
            workers=plan.workers,
            records=plan.records(),
            rate=plan.rate,
            hot_share=plan.hot_share,
            seconds=plan.seconds,
            partitions=plan.partitions,
            handler_ms=plan.handler_ms,
            notebook=str(Path(folder, "starts")),
        )
        pace = Pace(
            bootstrap=cluster.bootstrap,
            topic=topic,
            records=plan.records(),
            rate=plan.rate,
            skip=0,
            partitions=plan.partitions,
            keys=plan.keys,
            value_bytes=plan.value_bytes,
            hot_share=plan.hot_share,
        )
        waits, paced = run_paced("fair_side", task, OtherKeyWaits, pace, "measured side")
        return FairRun(waits=waits, paced=paced)


def summary(plan: FairPlan, kind: str, runs: Sequence[FairRun]) -> dict[str, Any]:
    """Summarize the runs: medians over runs, and the reasons to doubt them."""
    waits = [run.waits for run in runs]

    return {
        "others_p50_ms": median(each.others_p50_ms for each in waits),
        "others_p99_ms": median(each.others_p99_ms for each in waits),
        "others_p99s_ms": [round(each.others_p99_ms, 2) for each in waits],
        "others_unseen": sum(each.others_unseen for each in waits),
        "hot_per_s": median(each.hot_per_s for each in waits),
        "hot_capacity_per_s": round(1e3 / plan.handler_ms, 1),
        "overload": round(plan.overload(), 2),
        "workers": plan.workers,
        "rate": plan.rate,
        "hot_share": plan.hot_share,
        "handler_ms": plan.handler_ms,
        "seconds": plan.seconds,
        "repeat": len(runs),
        "producer_late_p99_ms": median(run.paced.late_p99_ms for run in runs),
        "kafka": kind,
        "suspect": [
            f"run {number}: the producer itself was {run.paced.late_p99_ms:.1f} ms late at p99"
            for number, run in enumerate(runs, start=1)
            if run.paced.late_p99_ms > LATE_P99_MS
        ],
    }


def measure_at(plan: FairPlan, bootstrap: str | None, progress: Progress) -> dict[str, Any]:
    """Measure on the cluster at this address, or on the best that can be started here."""
    return measure_on(bootstrap, measure, plan, progress)

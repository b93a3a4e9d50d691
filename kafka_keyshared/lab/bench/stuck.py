"""``keyshared bench stuck``: punctuality of other records while one runs for long.

A separate producer sends at a fixed rate. One record, the only one of its key, takes very long. All
others take little. So only the scheduler can make the others wait. The result covers the records
that are due while the long one runs. It is the share that starts within 100 ms of the due time,
when a consumer without any delay would start them. The same share before the long record shows the
limit of the machine.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
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
from kafka_keyshared.lab.bench.fair import LATE_P99_MS
from kafka_keyshared.lab.bench.figures import median, spread
from kafka_keyshared.lab.bench.paced import Pace, Paced, require_room
from kafka_keyshared.lab.bench.stuck_side import ON_TIME_MS, Punctual, StuckTask
from kafka_keyshared.testing.clusters.cluster import Cluster

TAIL = 2.0
"""Seconds for which the producer goes on after the end of the stuck record."""

BEFORE_LEAST = 0.99
"""A smaller share on time before any record is stuck means that the machine is busy."""


class StuckPlan(msgspec.Struct, kw_only=True, frozen=True):
    """Parameters: one record of ``stuck`` seconds among others at ``rate`` per second.

    It comes ``lead`` seconds after the first one. The others take ``handler_ms``. Each of
    ``workers`` has ``repeat`` runs, in turn.
    """

    stuck: float = 30.0
    lead: float = 5.0
    rate: int = 300
    handler_ms: float = 1.0
    keys: int = 10_000
    workers: tuple[str, ...] = ("thread:16", "asyncio:1000", "process:2")
    repeat: int = 3
    partitions: int = 4
    value_bytes: int = 100

    def check(self) -> None:
        """Raise :class:`ConfigError` for numbers that make no sense."""
        require_positive(self, "rate", "keys", "repeat", "partitions")
        for option, value, least in (
            ("--stuck", self.stuck, 0.5),
            ("--lead", self.lead, 0.5),
            ("--handler-ms", self.handler_ms, 0.0),
        ):
            if not value >= least:
                raise ConfigError(f"{option} {value:g}: give at least {least:g}")
        if self.rate * self.lead < 2:
            raise ConfigError(f"--rate {self.rate}: give more, or more --lead")
        if not self.workers:
            raise ConfigError("--workers: give at least one pool")
        require_room(self.value_bytes)

    def seconds(self) -> float:
        """Return for how many seconds the producer sends."""
        return self.lead + self.stuck + TAIL

    def records(self) -> int:
        """Return how many records a run has."""
        return int(self.rate * self.seconds())

    def stuck_at(self) -> int:
        """Return the number of the record that takes long."""
        return int(self.rate * self.lead)


class StuckRun(msgspec.Struct, kw_only=True):
    """One run: the punctuality of the others, and of the producer that fed them."""

    punctual: Punctual
    paced: Paced


def measure(plan: StuckPlan, cluster: Cluster, progress: Progress) -> dict[str, Any]:
    """Return the measurement. Raises :class:`KeySharedError` when a side failed."""
    plan.check()
    progress(
        f"one record of {plan.stuck:g} s among {plan.rate:,} records/s of {plan.keys:,} keys for "
        f"{plan.seconds():g} s a run; {cluster.kind} Kafka at {cluster.bootstrap}"
    )
    runs: dict[str, list[StuckRun]] = {workers: [] for workers in plan.workers}
    for number in range(plan.repeat):
        for workers, found in runs.items():
            run = _run(plan, workers, cluster, progress)
            found.append(run)
            progress(
                f"run {number + 1} of {plan.repeat}, {workers}: {run.punctual.share:.2%} of "
                f"{run.punctual.others:,} other records on time ({run.punctual.before_share:.2%} "
                f"before), p99 {run.punctual.p99_ms:.1f} ms"
            )
    return summary(plan, cluster.kind, runs)


def _run(plan: StuckPlan, workers: str, cluster: Cluster, progress: Progress) -> StuckRun:
    with (
        tempfile.TemporaryDirectory() as folder,
        topic_of_our_own(cluster, plan.partitions, progress) as topic,
    ):
        task = StuckTask(
            side="keyshared",
            bootstrap=cluster.bootstrap,
            topic=topic,
            group=group_of("stuck"),
            workers=workers,
            records=plan.records(),
            rate=plan.rate,
            seconds=plan.seconds(),
            partitions=plan.partitions,
            handler_ms=plan.handler_ms,
            notebook=str(Path(folder, "starts")),
            # The records that count are older than the tail, so they need no grace.
            grace=0.0,
            stuck_at=plan.stuck_at(),
            stuck_seconds=plan.stuck,
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
            hot_record=plan.stuck_at(),
        )
        punctual, paced = run_paced("stuck_side", task, Punctual, pace, f"{workers} side")
        return StuckRun(punctual=punctual, paced=paced)


def summary(plan: StuckPlan, kind: str, runs: dict[str, list[StuckRun]]) -> dict[str, Any]:
    """Summarize the runs: a row of medians for each pool, and the reasons to doubt them."""
    return {
        "rows": [_row(workers, found) for workers, found in runs.items()],
        "stuck_s": plan.stuck,
        "on_time_ms": ON_TIME_MS,
        "rate": plan.rate,
        "handler_ms": plan.handler_ms,
        "keys": plan.keys,
        "repeat": plan.repeat,
        "kafka": kind,
        "suspect": [doubt for workers, found in runs.items() for doubt in _doubts(workers, found)],
    }


def _row(workers: str, runs: Sequence[StuckRun]) -> dict[str, Any]:
    found = [run.punctual for run in runs]
    shares = [each.share for each in found]
    return {
        "workers": workers,
        "others": sum(each.others for each in found),
        "share": median(shares, 4),
        "shares": [round(each, 4) for each in shares],
        "share_spread": spread(shares, 4),
        "before_share": median((each.before_share for each in found), 4),
        "p99_ms": median(each.p99_ms for each in found),
        "unseen": sum(each.unseen for each in found),
        "producer_late_p99_ms": median(run.paced.late_p99_ms for run in runs),
    }


def _doubts(workers: str, runs: Sequence[StuckRun]) -> Iterator[str]:
    for number, run in enumerate(runs, start=1):
        where = f"{workers}, run {number}"
        if run.paced.late_p99_ms > LATE_P99_MS:
            yield f"{where}: the producer itself was {run.paced.late_p99_ms:.1f} ms late at p99"
        if run.punctual.before_share < BEFORE_LEAST:
            yield (
                f"{where}: only {run.punctual.before_share:.2%} of the records were on time before "
                "one was stuck: the machine is busy, or --rate too high"
            )


def measure_at(plan: StuckPlan, bootstrap: str | None, progress: Progress) -> dict[str, Any]:
    """Measure on the cluster at this address, or on the best that can be started here."""
    return measure_on(bootstrap, measure, plan, progress)

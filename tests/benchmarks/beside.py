"""This package beside Confluent's parallel-consumer, by key, on the same topic and in turn.

Java is slow until it is compiled, so each of its runs may take ``limit`` seconds, several times
what ours needs for its records.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.lab.bench import compare
from kafka_keyshared.lab.bench.common import Progress
from kafka_keyshared.lab.bench.compare import ComparePlan
from kafka_keyshared.testing.clusters.cluster import Cluster


@dataclass(frozen=True, slots=True)
class BesidePlan:
    """Two systems that take turns; ``records`` is as in :class:`ComparePlan`."""

    ours: str
    other: str
    work: str
    records: int
    limit: float
    pairs: int = 9


def measure(plan: BesidePlan, cluster: Cluster, progress: Progress) -> dict[str, Any]:
    """Return how many times as fast as the other one ours is, pair by pair.

    Raises :class:`KeySharedError` where one of them is not there, or failed.
    """
    told = compare.measure(
        ComparePlan(
            systems=(plan.ours, plan.other),
            traffic=("uniform",),
            work=(plan.work,),
            records=plan.records,
            limit=plan.limit,
            runs=plan.pairs,
            seconds=0,
            check=0,
        ),
        cluster,
        progress,
    )
    for lacking in (*told["left_out"], *told["failed"]):
        raise KeySharedError(f"{lacking['system']}: {lacking['why']}")
    ours, other = (row["per_s_runs"] for row in told["rows"])
    ratios = [one / two for one, two in zip(ours, other, strict=True)]
    return {
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(each, 3) for each in ratios],
        "ours_per_s": round(statistics.median(ours)),
        "other_per_s": round(statistics.median(other)),
        "suspect": told["suspect"],
    }

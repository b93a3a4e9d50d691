"""Skew analysis: load by key and slot, and its spread over workers.

Spark counts the keys. The driver gets one row for each slot, at most 65,536, and the few heaviest
keys. The slot of a key and the slot table of a ring are the same as in an instance. The busiest
worker is estimated as in ``keyshared advise``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka_keyshared.core.routing.loads import busiest, loads
from kafka_keyshared.core.routing.ring import ROUTING_VNODES, VnodeRing
from kafka_keyshared.core.subscription.settings import worker_names
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.hashing import slot_of
from kafka_keyshared.spark.audit import shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HEAVIEST = 10
ROUNDS = 40
MEASURES = ("records", "bytes", "seconds")
"""The measures; bytes need the topics, seconds a processed log."""

WEIGHT_MIN, WEIGHT_MAX = 0.05, 20.0


@dataclass(frozen=True)
class SlotCounts:
    """The counts of each measure: the total, the part of records without a key, and by slot."""

    keys: int
    totals: dict[str, float]
    keyless: dict[str, float]
    slots: dict[str, dict[int, float]]
    heaviest: dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Spread:
    """The spread of a measure over the workers of a ring.

    ``makespan`` is the load of the busiest worker. No ring can reduce it below ``bound``, the
    heaviest key. ``imbalance`` is the busiest worker's load divided by the mean load.
    """

    by_worker: dict[str, float]
    makespan: float
    imbalance: float
    speedup: float
    bound: float


def measure(source: DataFrame | None, rows: DataFrame | None) -> SlotCounts:
    """Count records and bytes of the topics, and records and seconds of a processed log, by key.

    With both, records are those of the topics. Raises :class:`KeySharedError` if there is no
    record.
    """
    from pyspark import StorageLevel
    from pyspark.sql import functions as f

    by_key = _by_key(source, rows).persist(StorageLevel.DISK_ONLY)
    try:
        keyed = by_key.where("key is not null")
        sums = [f.coalesce(f.sum(name), f.lit(0.0)).alias(name) for name in MEASURES]
        slots = {
            each["slot"]: each
            for each in keyed.groupBy(_slot().alias("slot"))
            .agg(f.count("*").alias("keys"), *sums)
            .collect()
        }
        without = by_key.where("key is null").agg(*sums).first()
        heaviest = {name: _heaviest(keyed, name) for name in MEASURES}
    finally:
        by_key.unpersist()
    keyless = {name: float(without[name]) if without is not None else 0.0 for name in MEASURES}
    by_slot = {name: {slot: float(each[name]) for slot, each in slots.items()} for name in MEASURES}
    totals = {name: sum(by_slot[name].values()) + keyless[name] for name in MEASURES}
    if not totals["records"]:
        raise KeySharedError("there is not one record in this range, so there is no skew to find")
    keys = sum(each["keys"] for each in slots.values())
    return SlotCounts(keys, totals, keyless, by_slot, heaviest)


def _by_key(source: DataFrame | None, rows: DataFrame | None) -> DataFrame:
    from pyspark.sql import functions as f

    parts = []
    if source is not None:
        parts.append(
            source.select("key", f.lit(1).alias("records"), "bytes", f.lit(0.0).alias("seconds"))
        )
    if rows is not None:
        records = 1 if source is None else 0
        settles = f.when(f.col("attempt") == 1, records).otherwise(0)
        parts.append(
            rows.where("event = 'handled'").select(
                "key",
                settles.alias("records"),
                f.lit(0).cast("bigint").alias("bytes"),
                ((f.col("ended") - f.col("started")) / 1e9).alias("seconds"),
            )
        )
    together = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
    sums = [f.sum(name).cast("double").alias(name) for name in MEASURES]
    return together.groupBy("key").agg(*sums)


def _slot() -> Any:
    import pandas
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.functions import pandas_udf

    def slots(keys: Any) -> Any:
        return keys.map(slot_of)

    # Spark reads these annotations as types. In this module they would be text.
    slots.__annotations__ = {"keys": pandas.Series, "return": pandas.Series}
    udf: Any = pandas_udf(slots, "int")  # type: ignore[call-overload]
    return udf(f.col("key"))


def _heaviest(keyed: DataFrame, name: str) -> list[dict[str, Any]]:
    from pyspark.sql import functions as f

    top = keyed.where(f.col(name) > 0).orderBy(f.desc(name), "key").limit(HEAVIEST).collect()
    return [{"key": shown(each["key"]), **{what: each[what] for what in MEASURES}} for each in top]


def spread(found: SlotCounts, name: str, workers: int, weights: Mapping[str, float] = {}) -> Spread:
    """Return the load of each worker by one measure, on a ring of this many workers."""
    names = worker_names(workers)
    table = VnodeRing(names, ROUTING_VNODES, weights).table()
    by_worker = loads(found.slots[name], table, workers)
    total = found.totals[name]
    if name == "seconds":
        # As with records, a record without a key goes to the worker with the lowest load.
        makespan = max(max(by_worker.values(), default=0.0), total / workers)
    else:
        whole = {worker: round(load) for worker, load in by_worker.items()}
        makespan = float(busiest(whole, round(total), workers))
    even = total / workers
    heaviest = found.heaviest[name][0][name] if found.heaviest[name] else 0.0
    return Spread(
        {names[worker]: load for worker, load in by_worker.items()},
        makespan,
        makespan / even if even else 1.0,
        total / makespan if makespan else 1.0,
        float(heaviest),
    )


def balanced(found: SlotCounts, name: str, workers: int) -> dict[str, float]:
    """Return weights that reduce the load of the busiest worker; 1 for each if none help.

    Each round reduces the ring share of workers with too much load, and the best result is kept.
    Weights cannot split a key, or the keys of a slot.
    """
    names = worker_names(workers)
    weights = dict.fromkeys(names, 1.0)
    best, least = dict(weights), spread(found, name, workers).makespan
    total = sum(found.slots[name].values())
    for _ in range(ROUNDS if total else 0):
        now = spread(found, name, workers, weights).by_worker
        for worker, load in now.items():
            change = (total / workers / load) ** 0.5 if load else 2.0
            weights[worker] *= min(2.0, max(0.5, change))
        mean = sum(weights.values()) / workers
        weights = {
            worker: round(min(WEIGHT_MAX, max(WEIGHT_MIN, weight / mean)), 3)
            for worker, weight in weights.items()
        }
        makespan = spread(found, name, workers, weights).makespan
        if makespan < least:
            best, least = dict(weights), makespan
    return best

"""A cheap filter for the records that an audit must judge.

Judging a record needs its key, all its calls, and the calls of every other record of its key. With
millions of records that is much to sort and to move, and nearly all of them break no rule. So each
rule first runs in a form that uses numbers only. This form may report too much, but it never misses
a record that breaks the rule. It treats two keys with the same hash as one key and two clocks as
one clock. It reports every overlap, however short. The exact rules then judge the reported records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce
from typing import TYPE_CHECKING

from kafka_keyshared.observability.audit.processed import (
    DEAD_LETTERED,
    DROPPED_BY_POLICY,
    HANDLED,
    PRODUCED,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RECORD = ("topic", "partition", "offset")

FEW = 200_000
"""Maximum number of suspects that are broadcast; with more, both sides are sorted."""


def totals_of(rows: DataFrame) -> dict[str, int]:
    """Count the records; ``suspects`` are those that may be lost, or settled more than once."""
    from pyspark.sql import functions as f

    counted = (
        _numbers(rows)
        .agg(
            f.count_if("produced").alias("produced"),
            f.count_if(~f.col("produced")).alias("not_in_source"),
            f.coalesce(f.sum("calls"), f.lit(0)).alias("calls"),
            f.count_if(f.col("oks") > 0).alias("ok"),
            f.count_if(f.expr("oks = 0 and letters > 0")).alias("dead_lettered"),
            f.count_if(f.expr("oks = 0 and letters = 0 and drops > 0")).alias("dropped"),
            f.count_if(f.expr("calls > 0 and not keyed")).alias("keyless"),
            f.count_if(_odd()).alias("suspects"),
        )
        .first()
    )
    return {} if counted is None else {name: int(n) for name, n in counted.asDict().items()}


def _numbers(rows: DataFrame) -> DataFrame:
    """Return the numeric facts of each record, which Spark aggregates before it moves rows.

    With a column of text or bytes Spark would sort all rows instead.
    """
    from pyspark.sql import functions as f

    handled, ok = f.col("event") == HANDLED, f.col("outcome") == "ok"
    letter, dropped = f.col("event") == DEAD_LETTERED, f.col("event") == DROPPED_BY_POLICY
    by_handler = f.col("outcome") == "dropped"
    settles = f.coalesce(ok | by_handler, f.lit(False)) | letter | dropped
    return rows.groupBy(*RECORD).agg(
        f.max(f.col("event") == PRODUCED).alias("produced"),
        f.max((handled | (f.col("event") == PRODUCED)) & f.col("key").isNotNull()).alias("keyed"),
        f.count_if(handled).alias("calls"),
        f.count_if(ok).alias("oks"),
        f.count_if(letter).alias("letters"),
        f.count_if(dropped | by_handler).alias("drops"),
        f.min(f.when(settles, f.col("ended"))).alias("settled"),
        f.max(f.when(handled, f.col("started"))).alias("last"),
    )


def _odd() -> Column:
    from pyspark.sql import functions as f

    return f.expr(
        "(produced and settled is null) or coalesce(last > settled, false) "
        "or letters + if(oks > 0, 1, 0) > 1 and letters > 0"
    )


@contextmanager
def suspects(
    rows: DataFrame, lane: Sequence[str], *, by_record: bool
) -> Iterator[DataFrame | None]:
    """Yield the rows of all records that may break a rule, None when there are none.

    ``lane`` are the columns within which calls may not overlap. ``by_record`` is true when some
    records may be lost, or settled more than once. A key that may be out of order is yielded with
    all its rows.
    """
    from pyspark import StorageLevel
    from pyspark.sql import functions as f

    with ExitStack() as kept:

        def keep(frame: DataFrame) -> tuple[DataFrame, int]:
            stored = frame.persist(StorageLevel.DISK_ONLY)
            kept.callback(stored.unpersist)
            return stored, stored.count()

        found = [_numbers(rows).where(_odd()).select(*RECORD)] if by_record else []
        calls = _calls(rows, lane)
        lanes, count = keep(_uneven(calls).distinct())
        if count:
            named = f.broadcast(lanes) if count <= FEW else lanes
            found.append(calls.join(named, ["lane"], "left_semi").select(*RECORD))
        if not found:
            yield None
            return
        places, count = keep(reduce(lambda some, more: some.union(more), found).distinct())
        named = f.broadcast(places) if count <= FEW else places
        few, _ = keep(rows.join(named, [*RECORD], "left_semi"))
        yield few


def _calls(rows: DataFrame, lane: Sequence[str]) -> DataFrame:
    """Return the calls with keyed records, and the other events that settled failed records.

    ``lane`` and ``line`` are hashes of the lane and of the key within its partition.
    """
    from pyspark.sql import functions as f

    calls = rows.where((f.col("event") == HANDLED) & f.col("key").isNotNull()).select(
        *RECORD,
        f.xxhash64(*lane).alias("lane"),
        f.xxhash64("topic", "partition", "key").alias("line"),
        f.col("started").alias("at"),
        "ended",
        (f.col("outcome") == "failed").alias("waits"),
    )
    # The row of a dead letter or a drop has no key. The key comes from the record's earlier calls.
    failed = calls.where("waits").select(*RECORD, "lane", "line").distinct()
    otherwise = (
        rows.where(f.col("event").isin(DEAD_LETTERED, DROPPED_BY_POLICY))
        .select(*RECORD, f.col("ended").alias("at"), "ended", f.lit(False).alias("waits"))
        .join(failed, [*RECORD])
    )
    return calls.unionByName(otherwise)


def _uneven(calls: DataFrame) -> DataFrame:
    """Return the lanes whose events are not plainly one after the other.

    Within a key of a partition, offsets must not decrease over time. The event after a failed
    attempt must be of the same record. Then no later record has started before an earlier one had
    settled.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    narrow = calls.select("lane", "line", "at", "ended", "offset", "waits")
    by_time = ("at", "ended", "offset")
    line = Window.partitionBy("lane", "line").orderBy(*by_time)
    lane = Window.partitionBy("lane").orderBy(*by_time)
    before = f.lag("offset").over(line)
    overtaken = (before > f.col("offset")) | (
        f.lag("waits").over(line) & (before != f.col("offset"))
    )
    until = f.max("ended").over(lane.rowsBetween(Window.unboundedPreceding, -1))
    # After one repartition by lane, both windows find their rows in the same place.
    return (
        narrow.repartition("lane")
        .withColumn("overtaken", overtaken)
        .withColumn("overlaps", until > f.col("at"))
        .where("overtaken or overlaps")
        .select("lane")
    )

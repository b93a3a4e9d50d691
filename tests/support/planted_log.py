"""Processed logs made to order: clean ones of any length, with faults planted in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MS = 1_000_000
PARTITIONS = 8
DEAD_EVERY = 1_000
RETRIED_EVERY = 97
CALL = 2 * MS
STEP = 10 * MS
"""From the start of a call to the start of the next one of the same key."""


def clean_log(spark: SparkSession, records: int, keys: int = 1_000) -> DataFrame:
    """A log of so many records: some retried, some dead-lettered, some without a key.

    Record n has offset n // 8 in partition n % 8. Records of a key follow one another every 10 ms
    of time; a record takes 2 ms, and after a failure 1 ms later 2 ms again.
    """
    from pyspark.sql import functions as f

    number = f.col("id")
    keyless = number % 53 == 0
    # The key says which partition it is in, so that its records are in the order of their numbers.
    lane = (number % PARTITIONS) + PARTITIONS * (
        f.floor(number / PARTITIONS) % (keys // PARTITIONS)
    )
    turn = f.floor(f.floor(number / PARTITIONS) / (keys // PARTITIONS))
    started = f.lit(10**18).cast("bigint") + turn * STEP + lane
    dead = (number % DEAD_EVERY == 7) & ~keyless
    retried = (number % RETRIED_EVERY == 5) & ~keyless & ~dead
    base = spark.range(records).select(
        f.lit("t").alias("topic"),
        (number % PARTITIONS).cast("int").alias("partition"),
        f.floor(number / PARTITIONS).cast("bigint").alias("offset"),
        f.when(~keyless, f.encode(f.concat(f.lit("k"), lane), "utf-8")).alias("key"),
        f.concat(f.lit("pod-"), lane % 2).alias("incarnation"),
        f.concat(f.lit("worker-"), lane % 4).alias("worker"),
        started.alias("at"),
        dead.alias("dead"),
        retried.alias("retried"),
    )

    def row(
        event: str, begin: int, end: int, attempt: int | None, outcome: str | None
    ) -> DataFrame:
        return base.select(
            f.lit(event).alias("event"),
            "topic",
            "partition",
            "offset",
            "incarnation",
            (f.col("at") + begin).alias("started"),
            (f.col("at") + end).alias("ended"),
            # As in a log that a run has written: a letter's row has none.
            (f.lit(None).cast("binary") if event == "dead_lettered" else f.col("key")).alias("key"),
            "worker",
            f.lit(attempt).cast("int").alias("attempt"),
            f.lit(outcome).cast("string").alias("outcome"),
            "dead",
            "retried",
        )

    whole = row("handled", 0, CALL, 1, "ok").where("not dead and not retried")
    whole = whole.union(row("handled", 0, CALL, 1, "failed").where("dead or retried"))
    again = row("handled", CALL + MS, 2 * CALL + MS, 2, "ok")
    whole = whole.union(again.where("retried"))
    whole = whole.union(row("dead_lettered", CALL + MS, CALL + MS, None, None).where("dead"))
    return whole.union(row("produced", -MS, -MS, None, None)).drop("dead", "retried")


FAULTS = ("swapped", "lost", "duplicate", "overlap")


def planted(rows: DataFrame, fault: str, partition: int = 3, offset: int = 5) -> DataFrame:
    """Plant one fault at a record that is plainly ``ok``, and whose key has a later record."""
    from pyspark.sql import functions as f

    there = (f.col("partition") == partition) & (f.col("offset") == offset)
    call = there & (f.col("event") == "handled")
    if fault == "lost":
        return rows.where(~call)
    if fault == "duplicate":
        late = 4 * MS
        again = rows.where(call).withColumn("started", f.col("started") + late)
        return rows.union(again.withColumn("ended", f.col("ended") + late))
    if fault == "overlap":
        # It goes on into the next one of its key.
        return rows.withColumn(
            "ended", f.when(call, f.col("ended") + STEP - MS).otherwise(f.col("ended"))
        )
    if fault == "swapped":
        # It changes places with the next one of its key: it starts when that has ended.
        moved = STEP + 5 * MS
        for name in ("started", "ended"):
            rows = rows.withColumn(name, f.when(call, f.col(name) + moved).otherwise(f.col(name)))
        return rows
    raise ValueError(fault)

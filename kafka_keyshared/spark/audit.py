"""Audit rules: lost, duplicate, out-of-order and overlapping records.

The rules are those of :mod:`kafka_keyshared.observability.audit.judge`, expressed on a processed
log. They apply to any number of records from any number of machines. In the examples ``10[`` is the
start of the record at offset 10, ``]10`` its end ``ok``, ``!10`` its end ``failed``. All examples
use one key.

``lost``: records that were produced and that nothing settled: no call that ended ``ok`` or
    ``dropped``, no dead letter.
``duplicates``: calls that start after their record was settled, and dead letters of a record that
    has another one or ended ``ok``. ``10[ ]10 10[`` is one; ``10[ !10 10[ ]10`` is none.
``order``: records that a later record of their key in their partition overtook. The later record
    started first, or started while this record waited for its next attempt after a failure.
    ``11[ ]11 10[ ]10`` and ``10[ !10 11[ ]11 10[ ]10`` are one each. A record that runs at that
    moment counts as an overlap instead.
``overlaps``: calls that start while another call of their lane runs: ``10[ 11[ ]10 ]11``.

Calls of one incarnation have times from one clock and are compared to the nanosecond. Calls of two
incarnations are compared only as far as two clocks agree. A call that starts within the *tolerance*
before the end of the other is no overlap and does not break the order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.observability.audit.processed import PRODUCED
from kafka_keyshared.spark.audit_suspects import RECORD, suspects, totals_of
from kafka_keyshared.spark.time_buckets import by_time

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

EXAMPLES = 5

RULES = ("lost", "duplicates", "order", "overlaps")

Scope = Literal["topic", "partition", "subscription"]
LANES: dict[str, tuple[str, ...]] = {
    "topic": ("topic", "key"),
    "partition": ("topic", "partition", "key"),
    "subscription": ("key",),
}


@dataclass
class AuditFinding:
    """How often a rule was broken, and the first cases."""

    count: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Audit:
    """The findings by rule, the totals of the log, and the spread of the load."""

    findings: dict[str, AuditFinding]
    totals: dict[str, int]
    workers: list[dict[str, Any]]
    timeline: list[dict[str, Any]]
    clock_tolerance: float

    @property
    def clean(self) -> bool:
        """Whether no rule was broken."""
        return not any(finding.count for finding in self.findings.values())


def audit(
    rows: DataFrame,
    source: DataFrame | None,
    *,
    scope: str = "topic",
    tolerance: float = 0.05,
) -> Audit:
    """Judge a processed log against the records of its topics.

    ``source`` has topic, partition, offset and key. Without it, the produced records are those that
    the log names. ``tolerance`` is in seconds. Raises :class:`KeySharedError` when neither the log
    nor the topics name any produced record.
    """

    tick, lane = round(tolerance * 1e9), LANES[scope]
    whole, handled = _with_source(rows, source), _handled(rows)
    totals = totals_of(whole)
    if not totals["produced"]:
        raise KeySharedError(
            "no produced records are known, so losses cannot be found: the topics (-t) have no "
            "record in this range, and the log has no rows of a producer"
        )
    with suspects(whole, lane, by_record=totals.pop("suspects") > 0) as few:
        found = (
            {rule: AuditFinding() for rule in RULES} if few is None else _judged(few, lane, tick)
        )
    workers = load_by_worker(handled)
    totals["failed_calls"] = sum(each["failed"] for each in workers)
    totals["incarnations"] = len({each["incarnation"] for each in workers})
    return Audit(found, totals, workers, _timeline(handled, workers), tolerance)


def _judged(rows: DataFrame, lane: tuple[str, ...], tick: int) -> dict[str, AuditFinding]:
    """Apply every rule to the suspects.

    Each key in ``rows`` has all its rows, or can only break a rule with the rows that are present.
    """
    from pyspark import StorageLevel

    handled = _handled(rows)
    records = _records(rows).persist(StorageLevel.DISK_ONLY)
    try:
        return _findings(
            {
                "lost": _lost(records),
                "duplicates": _repeated(records, handled),
                "order": _overtaken(records, handled, tick),
                "overlaps": _overlapping(handled, lane, tick),
            }
        )
    finally:
        records.unpersist()


def _handled(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return rows.where(f.col("event") == "handled").drop("event", "attempt")


def _with_source(rows: DataFrame, source: DataFrame | None) -> DataFrame:
    """Return the rows, with the produced records taken from the source if there is one."""
    from pyspark.sql import functions as f

    if source is None:
        return rows
    told = source.select(
        f.lit(PRODUCED).alias("event"),
        *RECORD,
        f.lit("").alias("incarnation"),
        f.lit(None).cast("bigint").alias("started"),
        f.lit(None).cast("bigint").alias("ended"),
        "key",
        f.lit(None).cast("string").alias("worker"),
        f.lit(None).cast("int").alias("attempt"),
        f.lit(None).cast("string").alias("outcome"),
    )
    return rows.where(f.col("event") != PRODUCED).select(told.columns).unionByName(told)


def _records(rows: DataFrame) -> DataFrame:
    """Return one row for each record: whether it was produced, and how it ended."""
    from pyspark.sql import functions as f

    def of(event: str) -> Column:
        return f.col("event") == event

    ok, settled = f.col("outcome") == "ok", f.col("outcome").isin("ok", "dropped")
    started = f.struct("started", "incarnation")
    return rows.groupBy(*RECORD).agg(
        # The key that determined the order. The source may only know the record's own key.
        f.coalesce(
            f.max(f.when(of("handled"), f.col("key"))), f.max(f.when(of("produced"), f.col("key")))
        ).alias("key"),
        f.max(of("produced")).alias("produced"),
        f.count_if(of("handled")).alias("calls"),
        f.count_if(ok).alias("oks"),
        f.count_if(of("dead_lettered")).alias("letters"),
        f.count_if(of("dropped") | (f.col("outcome") == "dropped")).alias("drops"),
        f.min(f.when(settled | of("dropped") | of("dead_lettered"), f.col("ended"))).alias(
            "settled"
        ),
        f.min(f.when(of("handled"), started)).alias("first"),
        f.max(f.when(of("handled"), f.col("started"))).alias("last"),
    )


def _lost(records: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    tried = f.concat(f.lit("it failed "), f.col("calls"), f.lit(" times and nothing settled it"))
    return records.where("produced and settled is null").select(
        *RECORD, "key", f.when(f.col("calls") > 0, tried).otherwise("it never started").alias("why")
    )


def _repeated(records: DataFrame, handled: DataFrame) -> DataFrame:
    """Return one row for each call or dead letter that followed the settling of its record."""
    from pyspark.sql import functions as f

    again = records.where("last > settled").select(*RECORD, "settled")
    calls = (
        handled.join(again, [*RECORD])
        .where(f.col("started") > f.col("settled"))
        .select(
            *RECORD,
            "key",
            f.concat(f.lit("it was settled and started again in "), _who()).alias("why"),
        )
    )
    letters = records.where(
        "letters > 0 and letters + if(oks > 0, 1, 0) > 1 and not coalesce(last > settled, false)"
    ).select(
        *RECORD,
        "key",
        f.concat(
            f.lit("it has "),
            f.col("letters"),
            f.when(f.col("oks") > 0, f.lit(" dead letters and ended ok")).otherwise(
                f.lit(" dead letters")
            ),
        ).alias("why"),
    )
    return calls.unionByName(letters)


def _overtaken(records: DataFrame, handled: DataFrame, tick: int) -> DataFrame:
    """Return the records that a later record of their key overtook.

    One window over each key of a partition finds the first start among all later records. The
    record's own calls are read only when that start was before the record had settled.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    behind = (
        Window.partitionBy("topic", "partition", "key")
        .orderBy(f.desc("offset"))
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    later = (
        records.where("key is not null and calls > 0")
        .select(*RECORD, "key", "first", "settled", f.min("first").over(behind).alias("later"))
        .where("later is not null")
    )
    apart = f.when(f.col("later.incarnation") == f.col("first.incarnation"), 0).otherwise(tick)
    first = f.col("later.started") + apart < f.col("first.started")
    waiting = ~first & (
        f.col("settled").isNull() | (f.col("later.started") + apart < f.col("settled"))
    )
    early = later.where(first).select(
        *RECORD, "key", f.lit("it first started after a later record of its key had").alias("why")
    )
    # A record of another process may have been running then, within the clock tolerance.
    running = handled.select(*RECORD, "started", "ended", "incarnation")
    other = f.when(f.col("later.incarnation") == f.col("incarnation"), 0).otherwise(tick)
    idle = (
        later.where(waiting)
        .join(running, [*RECORD])
        .groupBy(*RECORD, "key")
        .agg(
            f.max(
                (f.col("started") <= f.col("later.started") + other)
                & (f.col("later.started") < f.col("ended"))
            ).alias("ran")
        )
        .where("not ran")
        .select(
            *RECORD, "key", f.lit("it waited when a later record of its key started").alias("why")
        )
    )
    return early.unionByName(idle)


def _overlapping(handled: DataFrame, lane: tuple[str, ...], tick: int) -> DataFrame:
    """Return the calls that started while another call of their lane ran.

    The window goes through a lane by start time. It keeps the call with the latest end among all
    that started before.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    before = (
        Window.partitionBy(*lane)
        .orderBy("started", "ended", *RECORD)
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    named = f.format_string("%s-%d@%d", f.col("topic"), f.col("partition"), f.col("offset"))
    latest = f.max(f.struct("ended", "incarnation", "worker", named.alias("record"))).over(before)
    apart = f.when(f.col("latest.incarnation") == f.col("incarnation"), 0).otherwise(tick)
    return (
        handled.where("key is not null")
        .withColumn("latest", latest)
        .where(f.col("started") + apart < f.col("latest.ended"))
        .select(
            *RECORD,
            "key",
            f.concat(
                f.lit("it started in "),
                _who(),
                f.lit(" while "),
                f.col("latest.record"),
                f.lit(" ran in "),
                f.concat_ws("/", "latest.incarnation", "latest.worker"),
            ).alias("why"),
        )
    )


def _who() -> Column:
    from pyspark.sql import functions as f

    return f.concat_ws("/", "incarnation", "worker")


def _findings(broken: Mapping[str, DataFrame]) -> dict[str, AuditFinding]:
    """Count the cases of all rules in one pass, and collect the first few of each."""
    from pyspark import StorageLevel
    from pyspark.sql import functions as f

    every = [cases.withColumn("rule", f.lit(rule)) for rule, cases in broken.items()]
    together = reduce(lambda some, more: some.unionByName(more), every)
    together = together.persist(StorageLevel.DISK_ONLY)
    counts = {each["rule"]: each["count"] for each in together.groupBy("rule").count().collect()}
    found = {}
    for rule in broken:
        examples = []
        if rule in counts:
            some = together.where(f.col("rule") == rule).drop("rule").orderBy(*RECORD)
            examples = [each.asDict() for each in some.limit(EXAMPLES).collect()]
        found[rule] = AuditFinding(
            counts.get(rule, 0), [{**each, "key": shown(each["key"])} for each in examples]
        )
    together.unpersist()
    return found


def shown(key: bytes | None) -> str | None:
    """Return a key as text if it is printable text, else in hexadecimal digits as ``hex:00ff``."""
    if key is None:
        return None
    try:
        text = bytes(key).decode("utf-8")
    except UnicodeDecodeError:
        return f"hex:{bytes(key).hex()}"
    return text if text.isprintable() else f"hex:{bytes(key).hex()}"


def load_by_worker(handled: DataFrame) -> list[dict[str, Any]]:
    """Return the calls, failures, seconds and time range (ns) of each worker, the busiest first."""
    from pyspark.sql import functions as f

    found = handled.groupBy("incarnation", "worker").agg(
        f.count("*").alias("calls"),
        f.count_if(f.col("outcome") == "failed").alias("failed"),
        (f.sum(f.col("ended") - f.col("started")) / 1e9).alias("seconds"),
        f.min("started").alias("from"),
        f.max("ended").alias("until"),
    )
    rows = [each.asDict() for each in found.collect()]
    return sorted(
        rows, key=lambda each: (-each["seconds"], each["incarnation"], each["worker"] or "")
    )


def _timeline(handled: DataFrame, workers: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the calls over time, in at most :data:`.time_buckets.STEPS` steps of the same
    length."""
    from pyspark.sql import functions as f

    if not workers:
        return []
    low = min(each["from"] for each in workers)
    high = max(each["until"] for each in workers)
    calls = f.count("*").alias("calls")
    failed = f.count_if(f.col("outcome") == "failed").alias("failed")
    step, found = by_time(handled, "ended", low, high, [calls, failed])
    return [
        {
            "from": begin // 1_000_000,
            "seconds": step / 1e9,
            "calls": row["calls"] if row else 0,
            "failed": row["failed"] if row else 0,
        }
        for begin, row in found
    ]

"""Input frames of the batch tools: processed logs and topic records.

No function of this module brings a record to the driver.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.observability.audit.processed import LINES_SUFFIX, TOPIC
from kafka_keyshared.spark.java import java_conf
from kafka_keyshared.spark.rows import SPARK_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARQUET_SUFFIX = ".parquet"

ROW = (
    "event string, topic string, partition int, offset bigint, incarnation string, "
    "started bigint, ended bigint, key {key}, worker string, attempt int, outcome string"
)
"""The columns of a processed log, as in ``observability.audit.processed.ProcessedRow``."""

_NEEDED = ("event", "topic", "partition", "offset", "incarnation", "started", "ended")
_NAMES = [part.split()[0] for part in ROW.split(", ")]
_DAMAGED = "_damaged"


class OffsetSpan(NamedTuple):
    """An offset range of a partition, from ``begin`` up to ``end``, exclusive."""

    topic: str
    partition: int
    begin: int
    end: int


def processed_log(
    spark: SparkSession, place: str, conf: Mapping[str, Any], spans: Sequence[OffsetSpan] = ()
) -> DataFrame:
    """Return the rows of a processed log; ``spans`` are those of its topic, if it is a topic.

    ``place`` is a folder with files of JSON lines or Parquet, such a file, or ``topic:NAME``.
    Raises :class:`ConfigError` when there is no log, or the files are not a processed log.
    """
    if place.startswith(TOPIC):
        # A client writes a record completely or not at all.
        found, writers = _rows_of_json(_kafka(spark, conf, spans).select(_text("value"))), 0
    elif files := _files(place, PARQUET_SUFFIX):
        if _files(place, LINES_SUFFIX):
            raise ConfigError(f"{place}: it has Parquet and JSON lines; give a folder with one")
        found, writers = _parquet(spark, place, files), 0
    elif files := _files(place, LINES_SUFFIX):
        found, writers = _rows_of_json(spark.read.text(files)), len(files)
    else:
        what = "no file that ends in .jsonl or .parquet" if Path(place).exists() else "not there"
        raise ConfigError(
            f"{place}: {what}; give the folder that --audit-log was given, or {TOPIC}NAME"
        )
    return _checked(found, place, writers)


def source_records(
    spark: SparkSession, conf: Mapping[str, Any], spans: Sequence[OffsetSpan]
) -> DataFrame:
    """Return topic, partition, offset, key, bytes and time (ms) of the records of the topics."""
    from pyspark.sql import functions as f

    size = f.coalesce(f.octet_length("key"), f.lit(0)) + f.coalesce(
        f.octet_length("value"), f.lit(0)
    )
    return _kafka(spark, conf, spans).select(
        "topic",
        "partition",
        "offset",
        "key",
        size.cast("bigint").alias("bytes"),
        f.unix_millis("timestamp").alias("at"),
    )


def whole_records(
    spark: SparkSession, conf: Mapping[str, Any], spans: Sequence[OffsetSpan]
) -> DataFrame:
    """Return the records of these spans with their full content, by :data:`.rows.COLUMNS`."""
    found = _kafka(spark, conf, spans)
    return found.selectExpr(*(f"{made} AS {name}" for name, made in SPARK_COLUMNS.items()))


def _kafka(spark: SparkSession, conf: Mapping[str, Any], spans: Sequence[OffsetSpan]) -> DataFrame:
    """Return the records of these spans, without those that were deleted since.

    As in pods, records of aborted transactions are never seen.
    """
    bounds: dict[str, dict[str, dict[str, int]]] = {"begin": {}, "end": {}, "assign": {}}
    assigned: dict[str, list[int]] = {}
    for span in spans:
        assigned.setdefault(span.topic, []).append(span.partition)
        for which in ("begin", "end"):
            bounds[which].setdefault(span.topic, {})[str(span.partition)] = getattr(span, which)
    return (
        spark.read.format("kafka")
        .options(**java_conf(conf))
        .option("assign", json.dumps(assigned))
        .option("startingOffsets", json.dumps(bounds["begin"]))
        .option("endingOffsets", json.dumps(bounds["end"]))
        .option("includeHeaders", "true")
        .option("failOnDataLoss", "false")
        .option("kafka.isolation.level", str(conf.get("isolation.level", "read_committed")))
        .load()
    )


def _text(column: str) -> Any:
    from pyspark.sql import functions as f

    return f.col(column).cast("string").alias("value")


def _files(place: str, suffix: str) -> list[str]:
    path = Path(place)
    if path.is_file():
        return [str(path)] if path.suffix == suffix else []
    return [str(each) for each in sorted(path.glob(f"**/*{suffix}")) if each.is_file()]


def _rows_of_json(lines: DataFrame) -> DataFrame:
    """Parse lines into rows; an unparsable line is kept as it is in its own column."""
    from pyspark.sql import functions as f

    schema = f"{ROW.format(key='string')}, {_DAMAGED} string"
    parsed = f.from_json(
        "value", schema, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _DAMAGED}
    )
    rows = lines.select(parsed.alias("row")).select("row.*")
    return rows.withColumn("key", f.unbase64("key"))


def _parquet(spark: SparkSession, place: str, files: Sequence[str]) -> DataFrame:
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as f

    try:
        found = spark.read.parquet(*files)
    except PySparkException as error:
        raise ConfigError(f"{place}: Spark cannot read it as Parquet; is it whole?") from error
    _require(place, [name for name in _NEEDED if name not in found.columns])
    columns = []
    for part in ROW.format(key="binary").split(", "):
        name, kind = part.split()
        there = f.col(name) if name in found.columns else f.lit(None)
        columns.append(there.cast(kind).alias(name))
    return found.select(*columns)


def _checked(found: DataFrame, place: str, writers: int) -> DataFrame:
    """Return the rows, after a check that each has the required columns.

    At most one unparsable line is accepted for each writer, because a kill cuts the last line
    short. Rows parsed from lines are stored on disk. With Parquet each query reads its few columns
    from the files, which is cheaper than writing and re-reading all of them.
    """
    from pyspark.sql import functions as f

    if _DAMAGED in found.columns:
        found = found.persist(_on_disk())
    else:
        found = found.withColumn(_DAMAGED, f.lit(None).cast("string"))
    whole, handled = f.col(_DAMAGED).isNull(), f.col("event") == "handled"
    counted = found.agg(
        f.count_if(whole).alias("rows"),
        *(f.count_if(whole & f.col(name).isNull()).alias(name) for name in _NEEDED),
        f.count_if(handled & f.col("outcome").isNull()).alias("outcome"),
        f.count_if(f.col("ended") < f.col("started")).alias("backwards"),
        f.count_if(~whole).alias("damaged"),
        f.min(_DAMAGED).alias("one"),
    ).first()
    if counted is not None and counted["damaged"] > writers:
        raise ConfigError(
            f"{place}: {counted['damaged']:,} lines are no rows of a processed log, such as "
            f"{counted['one']!r:.80}; give what --audit-log wrote"
        )
    if counted is None or not counted["rows"]:
        raise KeySharedError(
            f"{place}: there is not one row in it, so there is nothing to look at; was it written?"
        )
    _require(place, [name for name in (*_NEEDED, "outcome") if counted[name]])
    if counted["backwards"]:
        raise ConfigError(f"{place}: {counted['backwards']:,} rows end before they start")
    return found.where(f.col(_DAMAGED).isNull()).select(*_NAMES)


def _require(place: str, absent: Sequence[str]) -> None:
    if absent:
        raise ConfigError(
            f"{place}: there are rows without {', '.join(absent)}, so this is no processed log, or "
            "a damaged one; give what --audit-log wrote"
        )


def _on_disk() -> Any:
    from pyspark import StorageLevel

    return StorageLevel.DISK_ONLY

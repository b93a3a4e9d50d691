"""The execution of one batch on Spark.

The driver reads the records, assigns places, and runs one task for each worker. It then writes the
dead letters and collects the reports. Nothing of a batch counts before it is committed. Nothing is
committed that was not written. Therefore the output of the tasks is first stored on the executors'
disks, cut off from its lineage. If Spark re-ran a task after an executor was lost, its records
might end differently from the task's first report. A lost block fails the batch instead, and
nothing of the batch is committed. Spark may run a task twice at the same time. The attempt id then
identifies the rows of the attempt that counts.
"""

from __future__ import annotations

import json
import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from kafka_keyshared.core.keys.extraction import KeyOf
from kafka_keyshared.errors import InvariantError, KeySharedError
from kafka_keyshared.executors.handling import outputs as handed
from kafka_keyshared.observability.audit.processed import TOPIC, incarnation_name
from kafka_keyshared.spark.driver.lost import TornBatchError
from kafka_keyshared.spark.driver.placing import place_column
from kafka_keyshared.spark.key_reading import read_keys
from kafka_keyshared.spark.packaging import without_java
from kafka_keyshared.spark.placement import RecordPlacement, derived_key, spark_partition
from kafka_keyshared.spark.rows import COLUMNS, KEY_COLUMNS, SPARK_COLUMNS, records_of
from kafka_keyshared.spark.task import Drive, NamedOutput, SparkJob, TaskLetter, TaskReport
from kafka_keyshared.spark.task_log import LogRow, write_whole

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame, SparkSession

TOLD = (
    "kind string, attempt bigint, topic string, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>"
)
LETTER, OUTPUT, ROW, REPORT = "letter", "output", "row", "report"

Told: TypeAlias = TaskLetter | NamedOutput | LogRow | TaskReport

ROWS = 1_000
"""Rows of an Arrow batch, into and out of a task."""


@dataclass(frozen=True)
class TopicSource:
    """How Spark reads the topics: its options, with the connection by Java's names."""

    connection: Mapping[str, str]
    isolation: str = "read_committed"


def read(spark: SparkSession, source: TopicSource, job: SparkJob) -> DataFrame:
    """Return the records of the batch, in the columns that tasks take."""
    partitions: defaultdict[str, list[int]] = defaultdict(list)
    begins: defaultdict[str, dict[str, int]] = defaultdict(dict)
    ends: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for (topic, number), share in job.shares.items():
        partitions[topic].append(number)
        begins[topic][str(number)] = share.begin
        ends[topic][str(number)] = share.end
    frame = (
        spark.read.format("kafka")
        .options(**source.connection)
        .option("assign", json.dumps(partitions))
        .option("startingOffsets", json.dumps(begins))
        .option("endingOffsets", json.dumps(ends))
        .option("includeHeaders", "true")
        .option("failOnDataLoss", "true")
        # As in the pods' client, records of aborted transactions are never seen.
        .option("kafka.isolation.level", source.isolation)
        .load()
    )
    return frame.selectExpr(*(f"{made} AS {name}" for name, made in SPARK_COLUMNS.items()))


def placed(frame: DataFrame, job: SparkJob) -> DataFrame:
    """Return the records with their places and their derived keys."""
    from pyspark.sql import functions

    places, key_of = RecordPlacement(job.settings), derived_key(job.settings)
    if key_of is None and (column := place_column(places)) is not None:
        return frame.withColumn("place", column)
    if key_of is None:
        told = functions.pandas_udf(_places_of(places), "int")  # type: ignore[attr-defined]
        return frame.withColumn("place", told("key", "partition", "offset"))
    made = functions.pandas_udf(  # type: ignore[attr-defined]
        _keys_of(places, key_of), "place int, made_key binary, unreadable string"
    )
    return frame.withColumn("made", made(*COLUMNS)).select(*COLUMNS, "made.*")


def _places_of(places: RecordPlacement) -> Callable[..., Any]:
    import pandas as pd

    def place(keys: Any, partitions: Any, offsets: Any) -> Any:
        found = places.of(keys.tolist(), partitions.tolist(), offsets.tolist())
        return pd.Series(found, dtype="int32")

    return _typed(place, pd.Series, pd.Series)


def _typed(function: Callable[..., Any], given: type, returned: type) -> Callable[..., Any]:
    """Annotate a function as Spark requires; pandas is known only where Spark is."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount or 1]
    function.__annotations__ = {**dict.fromkeys(names, given), "return": returned}
    return function


def _keys_of(places: RecordPlacement, key_of: KeyOf) -> Callable[..., Any]:
    import pandas as pd

    def make(*columns: Any) -> Any:
        lists = [list(column) for column in columns]
        records = records_of(lists)
        found = read_keys(key_of, records)
        keys, reasons = [key for key, _ in found], [reason for _, reason in found]
        for at in {0, len(records) - 1} if records else ():
            _require_the_same(key_of, records[at], found[at])
        _, partitions, offsets = lists[:3]
        placed = places.of(keys, partitions, offsets)
        return pd.DataFrame({"place": placed, "made_key": keys, "unreadable": reasons})

    return _typed(make, pd.Series, pd.DataFrame)


def _require_the_same(key_of: KeyOf, record: Any, found: tuple[bytes | None, str | None]) -> None:
    """Refuse a key function that returns another key when it is called again.

    Spark recomputes the keys that are lost with an executor. A record whose key has changed may
    then go to a second worker, or to none. To detect that, two records of each thousand are keyed
    twice.
    """
    from kafka_keyshared.model import name_of

    key, reason = found
    if reason is not None:
        return  # it has no key, and a single record cannot be judged a second time
    [(again, _)] = read_keys(key_of, [record])
    if again != key:
        raise KeySharedError(
            f"the key of {name_of(record)} was {key!r}, and asked again {again!r}: a key function "
            "must return the same key for a record each time, because Spark repeats the work of a "
            "lost executor"
        )


def run_tasks(frame: DataFrame, job: SparkJob) -> DataFrame:
    """Return the output of the tasks, computed once and stored on disk."""
    from pyspark import StorageLevel

    workers = len(job.settings.workers)
    mine = frame.repartition(workers, "place").sortWithinPartitions(number_of(job))
    out = mine.mapInArrow(_task(job), TOLD)
    return out.localCheckpoint(eager=True, storageLevel=StorageLevel.DISK_ONLY)


def number_of(job: SparkJob) -> Column:
    """Return a sort key for topic, partition and offset, as one number.

    With one number Spark sorts without comparing rows. When the offsets are too large for one
    number, the sort key is a struct of three columns.
    """
    from pyspark.sql import functions as f

    bits = max(share.end for share in job.shares.values()).bit_length()
    topics = sorted({each.topic for each in job.shares})
    first, count = f.lit(0), 0
    for topic in topics:
        if count:
            first = f.when(f.col("topic") == topic, f.lit(count)).otherwise(first)
        count += 1 + max(each.partition for each in job.shares if each.topic == topic)
    if count << bits >= 1 << 63:
        return f.struct("topic", "partition", "offset")
    return f.shiftleft((first + f.col("partition")).cast("bigint"), bits) + f.col("offset")


def _task(
    job: SparkJob,
) -> Callable[[Iterable[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    def run(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise InvariantError("a task of Spark runs in a task of Spark")
        without_java()
        worker, attempt = context.partitionId(), context.taskAttemptId()
        drive = Drive(job, worker, attempt=attempt)
        rows = drive.run_all(_records(drive, worker, batches))
        while chunk := list(islice(rows, ROWS)):
            yield _out(chunk, attempt)

    return run


def _records(
    drive: Drive, worker: int, batches: Iterable[pyarrow.RecordBatch]
) -> Iterator[list[Any]]:
    """Yield the records of a task, batch by batch; refuse records of another worker."""
    workers = drive.workers_in_all
    for batch in batches:
        for place in batch.column("place").unique().to_pylist():
            if spark_partition(place, workers) != worker:
                raise InvariantError(
                    f"task {worker} of {workers} was given the records of place {place}: they are "
                    "another worker's"
                )
        records = records_of([batch.column(name).to_pylist() for name in COLUMNS])
        if drive.made_keys is not None:
            made = [batch.column(name).to_pylist() for name in KEY_COLUMNS]
            for record, key, unreadable in zip(records, *made, strict=True):
                drive.made_keys.note(record, key, unreadable)
        yield records


def _out(rows: Iterable[Told], attempt: int) -> pyarrow.RecordBatch:
    import pyarrow as pa

    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    schema = pa.schema(
        [
            ("kind", pa.string()),
            ("attempt", pa.int64()),
            ("topic", pa.string()),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", headers),
        ]
    )
    told = [{**_cells(row), "attempt": attempt} for row in rows]
    return pa.RecordBatch.from_pylist(told, schema)


def _cells(row: Told) -> dict[str, Any]:
    if isinstance(row, TaskReport):
        return {"kind": REPORT, "value": pickle.dumps(row)}
    if isinstance(row, LogRow):
        return {"kind": ROW, "key": row.key, "value": row.line}
    headers = [{"key": name, "value": _bytes(value)} for name, value in row.headers]
    kept = {"key": row.key, "value": row.value, "headers": headers}
    if isinstance(row, TaskLetter):
        return {"kind": LETTER, "topic": row.topic, **kept}
    return {"kind": OUTPUT, "topic": row.identity, **kept}


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode("utf-8") if isinstance(value, str) else value


def reports_of(out: DataFrame, workers: int) -> tuple[list[TaskReport], DataFrame]:
    """Return the reports of all tasks, and the other output of the attempts that made them.

    Raises :class:`TornBatchError` unless there is one report for each worker.
    """
    rows = out.filter(out.kind == REPORT).select("attempt", "value").collect()
    reports: list[TaskReport] = [pickle.loads(row.value) for row in rows]
    if sorted(each.worker for each in reports) != list(range(workers)):
        raise TornBatchError(
            f"{len(reports)} of {workers} workers reported the results of a task: nothing of the "
            "batch is committed"
        )
    counted = out.attempt.isin([row.attempt for row in rows])
    return reports, out.filter((out.kind != REPORT) & counted)


def write_letters(told: DataFrame, source: TopicSource, expected: int) -> None:
    """Write the dead letters, and return once the brokers have all of them.

    Raises :class:`TornBatchError` when their number differs from the tasks' reports.
    """
    if not expected:
        return
    letters = told.filter(told.kind == LETTER)
    _require(letters, expected, "dead letters")
    _to_kafka(letters.select("topic", "key", "value", "headers"), source)


def write_outputs(
    told: DataFrame, source: TopicSource, place: handed.OutputTarget, name: str, expected: int
) -> None:
    """Write the outputs of handlers, and return once they are written.

    In a folder each batch has its own folder, ``batch=NAME``. A batch that was not committed is
    overwritten when it is run again. Raises :class:`TornBatchError` as :func:`write_letters` does.
    """
    if not expected:
        return
    outputs = told.filter(told.kind == OUTPUT)
    _require(outputs, expected, "outputs")
    if place.kind == handed.TOPIC:
        named = outputs.selectExpr(f"'{place.name}' AS topic", "key", "value", "headers")
        _to_kafka(named, source)
        return
    folder = f"{place.name.rstrip('/')}/batch={name}"
    if place.kind == handed.JSON:
        outputs.selectExpr("CAST(value AS string)").write.mode("overwrite").text(folder)
    else:
        columns = outputs.selectExpr("topic AS output", "key", "value", "headers")
        columns.write.mode("overwrite").parquet(folder)


def _require(rows: DataFrame, expected: int, what: str) -> None:
    found = rows.count()
    if found != expected:
        raise TornBatchError(
            f"{found} {what} are there of {expected} that the tasks have made: nothing of the "
            "batch is committed"
        )


def _to_kafka(rows: DataFrame, source: TopicSource) -> None:
    (
        rows.write.format("kafka")
        .options(**source.connection)
        # A dead letter may be as large as a record. The broker refuses one that is too large.
        .option("kafka.max.request.size", str(64 << 20))
        .option("kafka.acks", "all")
        .save()
    )


def write_rows(told: DataFrame, source: TopicSource, place: str, expected: int) -> None:
    """Write the processed-log rows of the tasks, once the dead letters are written.

    In a folder a file of rows is complete or absent, even if Spark runs a task again.
    """
    if not expected:
        return
    rows = told.filter(told.kind == ROW)
    if place.startswith(TOPIC):
        target = rows.selectExpr("key", "value").write.format("kafka").options(**source.connection)
        target.option("topic", place.removeprefix(TOPIC)).option("kafka.acks", "all").save()
        return
    folder, name = Path(place), incarnation_name()

    def write(lines: Iterable[Any]) -> None:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise InvariantError("a task of Spark runs in a task of Spark")
        write_whole(folder, f"{name}-{context.partitionId()}", (each.value for each in lines))

    rows.select("value").foreachPartition(write)

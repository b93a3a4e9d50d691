"""Dead letters on Spark: reading, selection, grouping and export.

The code of ``keyshared dlq`` reads them. Every record of the dead-letter topic becomes a row, from
any client. A dead letter that cannot be read is also a row, with the reason in ``problem``. The
driver gets counts and the first few dead letters of each kind. It gets the places of the chosen
dead letters one by one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from kafka_keyshared.dlq.envelope import LONG_MAX
from kafka_keyshared.dlq.filter import Choice
from kafka_keyshared.dlq.json_view import whole
from kafka_keyshared.dlq.letter import (
    Letter,
    LetterFailure,
    LetterForm,
    LetterPlace,
    LetterSource,
    read_letter,
)
from kafka_keyshared.dlq.payload import Decoder, PayloadFormat
from kafka_keyshared.dlq.replay_plan import digest_of, mark_of
from kafka_keyshared.spark.rows import COLUMNS, records_of
from kafka_keyshared.spark.time_buckets import by_time

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

OUTLINE = (
    "partition int, offset bigint, written bigint, kind string, problem string, mark string, "
    "chosen boolean, key binary, source_topic string, source_partition int, source_offset bigint, "
    "source_group string, attempts bigint, replays bigint, error_type string, error_message string"
)
"""The columns that describe a dead letter, without the content of the record."""

WHOLE = (
    f"{OUTLINE}, error_stack string, source_timestamp bigint, first_failure bigint, "
    "last_failure bigint, value binary, headers array<struct<name: string, value: binary>>"
)

LINE = "chosen boolean, partition int, offset bigint, line string"

READABLE = (LetterForm.HEADERS.value, LetterForm.AVRO.value)

PLACE = ("partition", "offset")
LANE = ("source_topic", "key")

Fields = Callable[[Letter], dict[str, Any]]


def letters_of(records: DataFrame, choice: Choice, schema: str, fields: Fields) -> DataFrame:
    """Return a row for each record of a dead-letter topic; ``chosen`` marks the selected ones."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    # Only the driver can parse a schema given as text.
    made = cast("StructType", StructType.fromDDL(schema))
    return records.mapInArrow(_reading(choice, to_arrow_schema(made), fields), made)


def _reading(choice: Choice, schema: pyarrow.Schema, fields: Fields) -> Callable[..., Any]:
    def read(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            records = records_of([batch.column(name).to_pylist() for name in COLUMNS])
            letters = map(read_letter, records)
            rows = [{**fields(each), "chosen": choice.takes(each)} for each in letters]
            yield pa.RecordBatch.from_pylist(rows, schema)

    return read


def outline_of(letter: Letter) -> dict[str, Any]:
    """Return a dead letter in the columns of :data:`OUTLINE`."""
    told, (partition, offset) = letter.told, letter.at
    row = {
        "partition": partition,
        "offset": offset,
        "written": letter.written,
        "kind": letter.kind.value,
        "problem": letter.problem,
        "mark": f"{mark_of(letter, digest_of(letter)):016x}",
        "key": letter.key,
    }
    if told is not None:
        row |= {
            "source_topic": told.source.topic,
            "source_partition": told.source.partition,
            "source_offset": told.source.offset,
            "source_group": told.group or "",
            "attempts": _long(told.attempts),
            "replays": _long(told.replays),
            "error_type": told.error_type,
            "error_message": told.error_message,
        }
    return row


def whole_of(letter: Letter) -> dict[str, Any]:
    """Return a dead letter in the columns of :data:`WHOLE`."""
    told = letter.told
    headers = [
        {"name": name, "value": value.encode() if isinstance(value, str) else value}
        for name, value in letter.headers
    ]
    row = {**outline_of(letter), "value": letter.value, "headers": headers}
    if told is not None:
        row |= {
            "error_stack": told.error_stack,
            "source_timestamp": _long(told.timestamp),
            "first_failure": _long(told.first_failure),
            "last_failure": _long(told.last_failure),
        }
    return row


def line_of(letter: Letter, topic: str) -> dict[str, Any]:
    """Return a dead letter as a line of ``keyshared dlq export``, with its mark."""
    told = {"topic": topic, **whole(letter, Decoder(PayloadFormat.AUTO))}
    mark = f"{mark_of(letter, digest_of(letter)):016x}"
    place = dict(zip(PLACE, letter.at, strict=True))
    return {**place, "line": json.dumps({**told, "mark": mark})}


def _long(number: int | None) -> int | None:
    """Return a number, or None when it does not fit in a column; a dead letter may have any."""
    return None if number is None or abs(number) > LONG_MAX else number


def letter_of(row: Mapping[str, Any]) -> Letter:
    """Return the dead letter that a row outlines."""
    key = None if row["key"] is None else bytes(row["key"])
    told = None
    if row["source_topic"] is not None:
        source = LetterSource(row["source_topic"], row["source_partition"], row["source_offset"])
        told = LetterFailure(
            source,
            group=row["source_group"] or None,
            attempts=row["attempts"],
            error_type=row["error_type"],
            error_message=row["error_message"],
            replays=row["replays"] or 0,
        )
    at = LetterPlace(row["partition"], row["offset"])
    return Letter(
        at, row["written"], LetterForm(row["kind"]), key, None, [], told, problem=row["problem"]
    )


# --- selection ---


def outstanding(letters: DataFrame, replayed: Iterable[int]) -> DataFrame:
    """Return the dead letters that no replay has sent; ``replayed`` has the marks of the others."""
    import pyarrow as pa

    marks = pa.table({"mark": pa.array((f"{each:016x}" for each in replayed), pa.string())})
    return letters.join(letters.sparkSession.createDataFrame(marks), "mark", "left_anti")


def chosen(letters: DataFrame, *, whole_keys: bool) -> DataFrame:
    """Return the chosen dead letters; with ``whole_keys`` also all others of their keys."""
    meant = letters.where("chosen")
    return meant.unionByName(same_keys(letters)) if whole_keys else meant


def same_keys(letters: DataFrame) -> DataFrame:
    """Return the dead letters that are not chosen but share a key with a chosen dead letter."""
    from pyspark.sql import functions as f

    others = letters.where(~f.col("chosen"))
    return others.join(_lanes(letters.where("chosen")), list(LANE), "left_semi")


def _lanes(letters: DataFrame) -> DataFrame:
    return letters.where("key is not null and source_topic is not null").select(*LANE).distinct()


def places(letters: DataFrame, topic: str) -> Iterator[str]:
    """Yield the lines of a selection that names these dead letters (:mod:`..dlq.selection`)."""
    from pyspark.sql import functions as f

    readable = letters.where(f.col("kind").isin(*READABLE))
    for row in readable.select(*PLACE, "mark").orderBy(*PLACE).toLocalIterator():
        at = f"{row['partition']}:{row['offset']}"
        yield json.dumps({"topic": topic, "at": at, "mark": row["mark"]}) + "\n"


# --- overview ---


@dataclass(frozen=True)
class Groups:
    """Dead letters in groups, the most frequent first. Times are in milliseconds since 1970."""

    kinds: dict[str, int]
    errors: Sequence[Mapping[str, Any]]
    keys: Sequence[Mapping[str, Any]]
    topics: Sequence[Mapping[str, Any]]
    timeline: Sequence[Mapping[str, Any]]
    samples: Sequence[Letter]
    unusable: Sequence[Letter]

    @property
    def letters(self) -> int:
        """The number of readable dead letters."""
        return sum(self.kinds.get(kind, 0) for kind in READABLE)


PATTERN = "substring(regexp_replace(split_part(error_message, '\\n', 1), '[0-9]+', '#'), 1, 120)"
"""The pattern that groups error messages: the first line, with every number replaced."""


def grouped(letters: DataFrame, most: int, samples: int) -> Groups:
    """Group dead letters by error, key, topic and time; return at most ``most`` groups of each.

    The samples are the newest dead letters of each error.
    """
    from pyspark.sql import functions as f

    kinds = {each["kind"]: each["count"] for each in letters.groupBy("kind").count().collect()}
    usable = letters.where(f.col("kind").isin(*READABLE)).withColumn("pattern", f.expr(PATTERN))
    error = ("error_type", "pattern")
    errors = _most(usable, error, most, f.count_distinct("source_topic", "key").alias("keys"))
    return Groups(
        kinds,
        errors,
        _most(usable.where("key is not null"), LANE, most),
        _most(usable, ("source_topic", "source_group"), most),
        _timeline(usable),
        _samples(usable, error, errors, samples),
        _first(letters.where(~f.col("kind").isin(*READABLE)), samples),
    )


def _most(letters: DataFrame, by: Sequence[str], most: int, *more: Any) -> list[dict[str, Any]]:
    from pyspark.sql import functions as f

    counted = letters.groupBy(*by).agg(
        f.count("*").alias("letters"),
        f.min("written").alias("first"),
        f.max("written").alias("last"),
        f.max("replays").alias("replays"),
        *more,
    )
    found = counted.orderBy(f.desc("letters"), *by).limit(most).collect()
    return [each.asDict() for each in found]


def _samples(
    letters: DataFrame, by: Sequence[str], groups: Sequence[Mapping[str, Any]], count: int
) -> list[Letter]:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    if not groups or not count:
        return []
    newest = Window.partitionBy(*by).orderBy(f.desc("written"), *PLACE)
    numbered = letters.withColumn("number", f.row_number().over(newest))
    shown = [tuple(each[name] for name in by) for each in groups]
    in_these = f.struct(*by).isin([f.struct(*map(f.lit, each)) for each in shown])
    rows = numbered.where(in_these & (f.col("number") <= count)).collect()
    rows.sort(key=lambda row: (shown.index(tuple(row[name] for name in by)), row["number"]))
    return [letter_of(row.asDict()) for row in rows]


def _first(letters: DataFrame, count: int) -> list[Letter]:
    rows = letters.orderBy(*PLACE).limit(count).collect()
    return [letter_of(row.asDict()) for row in rows]


def _timeline(letters: DataFrame) -> list[dict[str, Any]]:
    from pyspark.sql import functions as f

    ends = letters.agg(f.min("written").alias("low"), f.max("written").alias("high")).first()
    if ends is None or ends["low"] is None:
        return []
    counts = [f.count("*").alias("letters")]
    step, found = by_time(letters, "written", ends["low"], ends["high"], counts)
    return [
        {"from": begin, "seconds": step / 1e3, "letters": row["letters"] if row else 0}
        for begin, row in found
    ]


# --- export ---


def whole_letters(records: DataFrame, choice: Choice, topic: str, form: str) -> DataFrame:
    """Return the dead letters with their full content, ``parquet`` by column, ``json`` by line.

    They are read a second time, because the outline has no values.
    """
    if form == "parquet":
        return letters_of(records, choice, WHOLE, whole_of)
    return letters_of(records, choice, LINE, partial(line_of, topic=topic))


def export(letters: DataFrame, meant: DataFrame | None, place: str) -> None:
    """Write whole dead letters to a new folder: the ``meant`` ones, else the chosen ones."""
    if meant is None:
        found = letters.where("chosen")
    else:
        found = letters.join(meant.select(*PLACE), list(PLACE), "left_semi")
    if "line" in found.columns:
        found.select("line").write.text(place)
    else:
        found.drop("chosen").write.parquet(place)

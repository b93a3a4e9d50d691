"""``keyshared spark dlq``: millions of dead letters, grouped, chosen and exported."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_keyshared.cli.dlq_options import (
    LetterOptions,
    LetterTopicOptions,
    ProgressPlace,
    cut,
    hint,
    loaded,
    moment,
    others,
    printable,
    reading,
    words,
)
from kafka_keyshared.cli.no_broker import Away
from kafka_keyshared.cli.output import OutputFormat, write_note, write_result, write_table
from kafka_keyshared.cli.spark_tools import SparkPlaceArguments, on_spark
from kafka_keyshared.config.local_paths import local_path
from kafka_keyshared.dlq import scan
from kafka_keyshared.dlq.filter import Choice
from kafka_keyshared.dlq.json_view import in_a_line, when
from kafka_keyshared.dlq.letter import LetterForm
from kafka_keyshared.dlq.payload import Decoder, PayloadFormat
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.spark import letters as on_letters
from kafka_keyshared.spark.audit_report import write_report
from kafka_keyshared.spark.letters import Groups
from kafka_keyshared.spark.logs import OffsetSpan, whole_records
from kafka_keyshared.spark.plots import columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FORMS = ("json", "parquet")
CELL = 60
"""Characters of a key or an error in a table."""


@dataclass(frozen=True, slots=True)
class DlqArguments:
    """The values from the command line.

    ``known`` is the replay progress; with ``outstanding`` replayed dead letters are left out.
    ``select`` is the file for the places of the chosen dead letters. ``export`` is the folder for
    the dead letters themselves, in one of :data:`FORMS`.
    """

    where: LetterTopicOptions
    wanted: LetterOptions
    known: ProgressPlace
    outstanding: bool
    whole_keys: bool
    most: int
    samples: int
    select: Path | None
    export: str | None
    form: str
    out: Path | None
    spark: SparkPlaceArguments


def dlq_verb(arguments: DlqArguments, output: OutputFormat) -> int:
    """Group the chosen dead letters; write their places or contents on request."""
    topic, choice = arguments.where.name(), arguments.wanted.choice()
    select, out = arguments.select, arguments.out
    arguments = replace(
        arguments,
        select=None if select is None else local_path("--select", select, "a file of this machine"),
        out=None if out is None else local_path("--out", out),
    )
    _check(arguments)
    conf = arguments.where.conf()
    spans = _spans(conf, topic)
    replayed = _replayed(arguments, conf, topic)
    with ExitStack() as stack:
        spark = stack.enter_context(on_spark(arguments.spark))
        # A dead letter may be as large as a record, and an Arrow batch has whole dead letters.
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
        records = whole_records(spark, conf, spans)
        every = on_letters.letters_of(records, choice, on_letters.OUTLINE, on_letters.outline_of)
        if replayed is not None:
            every = on_letters.outstanding(every, replayed)
        every = every.persist(_on_disk())
        meant = on_letters.chosen(every, whole_keys=arguments.whole_keys)
        found = on_letters.grouped(meant, arguments.most, arguments.samples)
        result = _told(topic, found)
        if choice != Choice():
            result["same_keys"] = on_letters.same_keys(every).count()
        _write_out(arguments, found, records, meant)
    if found.kinds.get(LetterForm.FOREIGN.value) and not found.letters:
        with reading(conf, Away(write_note)) as consumer:
            hint(consumer, topic)
    if arguments.out is not None:
        plot = _plot(found)
        text = json.dumps(result, indent=2) + "\n"
        write_report(arguments.out, {"dlq.json": text, **plot})
    if output is OutputFormat.TABLE:
        _write(result)
    else:
        write_result(result, output, topic)
    _notes(arguments, result)
    return 0


def _replayed(
    arguments: DlqArguments, conf: Mapping[str, Any], topic: str
) -> Collection[int] | None:
    """Return the marks of replayed dead letters, if those are to be left out."""
    if not arguments.outstanding:
        return None
    progress = arguments.known.of(conf, topic, Away(write_note))
    loaded(progress)
    for line in others(progress):
        write_note(line)
    return progress


def _on_disk() -> Any:
    from pyspark import StorageLevel

    return StorageLevel.DISK_ONLY


def _check(arguments: DlqArguments) -> None:
    if arguments.form not in FORMS:
        raise ConfigError(f"--format {arguments.form}: give {' or '.join(FORMS)}")
    place = arguments.export
    if place is not None and "://" not in place and Path(place).exists():
        raise ConfigError(f"--export {place}: the folder exists; name a new one")
    file = arguments.select
    if file is not None and not file.parent.is_dir():
        raise ConfigError(f"--select {file}: there is no folder {file.parent}")


def _spans(conf: Mapping[str, Any], topic: str) -> list[OffsetSpan]:
    """Return the current content of the topic as spans; raise if it is empty."""
    with reading(conf) as consumer:
        bounds = scan.bounds_of(consumer, topic)
    if not any(low < high for low, high in bounds.values()):
        raise KeySharedError(f"{topic!r} is empty: there are no dead letters")
    return [OffsetSpan(topic, partition, *bound) for partition, bound in bounds.items()]


def _write_out(
    arguments: DlqArguments, found: Groups, records: DataFrame, meant: DataFrame
) -> None:
    topic = arguments.where.name()
    if arguments.select is not None:
        if not found.letters:
            raise KeySharedError(
                "no dead letter is selected, so --select has nothing to write: change the selection"
            )
        _write_places(arguments.select, on_letters.places(meant, topic))
    if arguments.export is not None:
        choice = arguments.wanted.choice()
        letters = on_letters.whole_letters(records, choice, topic, arguments.form)
        places = meant if arguments.whole_keys or arguments.outstanding else None
        on_letters.export(letters, places, arguments.export)


def _write_places(file: Path, lines: Iterable[str]) -> None:
    """Write the file; it gets its name only when it is complete."""
    part = file.with_name(f"{file.name}.part")
    try:
        with part.open("w", encoding="ascii") as out:
            out.writelines(lines)
        part.replace(file)
    except OSError as error:
        raise ConfigError(f"--select {file}: {error.strerror}") from error


def _told(topic: str, found: Groups) -> dict[str, Any]:
    plain = Decoder(PayloadFormat.AUTO).plain

    def times(row: Mapping[str, Any]) -> dict[str, Any]:
        return {**row, "first": when(row["first"]), "last": when(row["last"])}

    return {
        "topic": topic,
        "letters": found.letters,
        **{
            kind.value: found.kinds.get(kind.value, 0)
            for kind in (LetterForm.FOREIGN, LetterForm.UNREADABLE)
        },
        "errors": [times(each) for each in found.errors],
        "keys": [{**times(each), "key": plain(bytes(each["key"]))} for each in found.keys],
        "topics": [times(each) for each in found.topics],
        "timeline": [{**each, "from": when(each["from"])} for each in found.timeline],
        "samples": [in_a_line(each) for each in found.samples],
        "not_letters": [in_a_line(each) for each in found.unusable],
    }


def _plot(found: Groups) -> dict[str, str]:
    if not found.timeline:
        return {}
    steps = [(each["letters"],) for each in found.timeline]
    first, length = found.timeline[0], found.timeline[0]["seconds"]
    span = f"from {moment(when(first['from']))} UTC on, {length:,.3g} s each"
    return {"dlq.svg": columns("dead letters over time", steps, ["letters"], "count", span)}


def _write(result: Mapping[str, Any]) -> None:
    def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        if rows:
            justified: dict[str, Any] = dict.fromkeys(columns, "left")
            write_table(title, justified | {"letters": "right"}, list(map(printable, rows)))

    def counts(each: Mapping[str, Any]) -> tuple[str, str]:
        return f"{each['letters']:,}", f"{moment(each['first'])}\n{moment(each['last'])}"

    table(
        f"{result['topic']}: {result['letters']:,} dead letters, by error",
        ("error", "keys", "letters", "first, last"),
        [
            (
                cut(f"{each['error_type']}: {each['pattern']}", CELL),
                f"{each['keys']:,}",
                *counts(each),
            )
            for each in result["errors"]
        ],
    )
    table(
        "by key",
        ("key", "source", "letters", "first, last"),
        [
            (cut(words(each["key"]), CELL), each["source_topic"], *counts(each))
            for each in result["keys"]
        ],
    )
    table(
        "by topic",
        ("source", "group", "letters", "first, last"),
        [(each["source_topic"], each["source_group"], *counts(each)) for each in result["topics"]],
    )
    table(
        "samples of each error",
        ("letter", "written", "source", "key", "error"),
        [
            (
                each["at"],
                moment(each["written"]),
                each["source"] or "",
                cut(words(each["key"]), CELL),
                cut(each["error"], CELL),
            )
            for each in (*result["samples"], *result["not_letters"])
        ],
    )


def _notes(arguments: DlqArguments, result: Mapping[str, Any]) -> None:
    strange = result["foreign"] + result["unreadable"]
    if strange:
        write_note(
            f"{strange:,} records are no dead letters of this package, or cannot be read; such as "
            f"{', '.join(each['at'] for each in result['not_letters'])}"
        )
    if others := result.get("same_keys"):
        write_note(
            f"{others:,} of them were added because of their keys"
            if arguments.whole_keys
            else f"{others:,} more letters have the same keys and are not selected: --whole-keys "
            "includes them, so that a replay has all of a key in order"
        )
    if arguments.export is not None:
        write_note(f"the letters are in {arguments.export}")
    if arguments.select is not None:
        write_note(
            f"{result['letters']:,} letters are named in {arguments.select}: keyshared dlq replay "
            f"--dlq {result['topic']} --selection {arguments.select}"
        )

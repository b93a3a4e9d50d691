"""``keyshared dlq ls``, ``show`` and ``export``: the content of a dead-letter topic."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from confluent_kafka import Consumer

from kafka_keyshared.cli.dlq_options import (
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
from kafka_keyshared.cli.output import (
    Justify,
    OutputFormat,
    standard_output,
    write_note,
    write_result,
    write_table,
)
from kafka_keyshared.dlq import avro, scan
from kafka_keyshared.dlq.filter import Choice
from kafka_keyshared.dlq.json_view import in_a_line, when, whole
from kafka_keyshared.dlq.letter import Letter, LetterForm, as_avro
from kafka_keyshared.dlq.payload import Decoder
from kafka_keyshared.dlq.replay_plan import is_replayed
from kafka_keyshared.dlq.summary import NO_LETTERS, Summary
from kafka_keyshared.errors import ConfigError, KeySharedError

MESSAGE_SHOWN = 60
"""Characters of an error message in a list."""

KEY_SHOWN = 40
"""Characters of a key in a list."""

_PLACE = re.compile(r"(?:(.+)-)?(\d+)[:@](\d+)")


@dataclass(frozen=True, slots=True)
class LsArguments:
    """The values from the command line."""

    where: LetterTopicOptions
    choice: Choice
    known: ProgressPlace
    limit: int
    outstanding: bool


# --- ls ---


def ls_verb(arguments: LsArguments, output: OutputFormat) -> int:
    """Print the counts of dead letters by group, and the newest of them."""
    topic = arguments.where.name()
    summary = Summary(arguments.limit)
    conf = arguments.where.conf()
    away = Away(write_note)
    progress = arguments.known.of(conf, topic, away)
    with reading(conf, away) as consumer:
        bounds = scan.bounds_of(consumer, topic)
        known = loaded(progress)
        for letter in scan.letters(consumer, topic, arguments.choice, bounds, patience=away):
            replayed = is_replayed(letter, progress)
            if not (replayed and arguments.outstanding):
                summary.add(letter, replayed=replayed)
        if not summary.letters and summary.kinds[LetterForm.FOREIGN]:
            hint(consumer, topic)
    found = _summary(topic, summary, known=known)
    if output is OutputFormat.TABLE:
        _write_summary(found)
    else:
        write_result(found, output, topic)
    for line in others(progress):
        write_note(line)
    return 0


def _summary(topic: str, summary: Summary, *, known: bool) -> dict[str, Any]:
    ordered = sorted(summary.counts.items(), key=lambda item: (-item[1].letters, item[0]))
    return {
        "topic": topic,
        "letters": summary.letters,
        "outstanding": summary.letters - summary.replayed if known else None,
        "replayed": summary.replayed if known else None,
        **{kind.value: summary.kinds[kind] for kind in (LetterForm.FOREIGN, LetterForm.UNREADABLE)},
        "errors": [
            {
                "source_topic": source,
                "source_group": group,
                "error_type": error,
                "letters": count.letters,
                "outstanding": count.letters - count.replayed
                if known and source not in NO_LETTERS
                else None,
                "first": when(count.first),
                "last": when(count.last),
                "replays": count.replays,
            }
            for (source, group, error), count in ordered
        ],
        "newest": [
            {**in_a_line(letter), "replayed": replayed if known else None}
            for letter, replayed in summary.newest()
        ],
    }


def _write_summary(found: Mapping[str, Any]) -> None:
    title = f"{found['topic']}: {found['letters']:,} dead letters"
    if found["outstanding"] is not None:
        title += f", {found['outstanding']:,} outstanding, {found['replayed']:,} replayed"
    came_back = any(each["replays"] for each in found["errors"])
    columns: dict[str, Justify] = {
        "source, group": "left",
        "error": "left",
        "outstanding": "right",
        "of": "right",
        "first, last": "left",
        **({"came back": "right"} if came_back else {}),
    }
    rows = [
        (
            f"{each['source_topic']}\n{each['source_group']}",
            each["error_type"],
            "" if each["outstanding"] is None else f"{each['outstanding']:,}",
            f"{each['letters']:,}",
            f"{moment(each['first'])}\n{moment(each['last'])}",
            *([f"{each['replays']} x"] if came_back else []),
        )
        for each in found["errors"]
    ]
    write_table(title, columns, list(map(printable, rows)))
    if not found["newest"]:
        return
    newest: dict[str, Justify] = {
        "letter": "left",
        "written": "left",
        "source, group": "left",
        "key": "left",
        "error": "left",
    }
    states = {None: "", True: "replayed", False: "outstanding"}
    write_table(
        "the newest",
        newest,
        [
            printable(
                (
                    f"{each['at']}\n{states[each['replayed']] if each['source'] else ''}",
                    moment(each["written"]),
                    f"{each['source'] or ''}\n{each['group'] or ''}",
                    cut(words(each["key"]), KEY_SHOWN),
                    cut(each["error"], MESSAGE_SHOWN),
                )
            )
            for each in found["newest"]
        ],
    )


# --- show ---


def show_verb(where: LetterTopicOptions, place: str, decoder: Decoder, output: OutputFormat) -> int:
    """Print one dead letter."""
    match = _PLACE.fullmatch(place)
    if match is None:
        raise ConfigError(
            f"{place!r}: give PARTITION:OFFSET as in dlq ls, such as 0:12, or a place as "
            "in the log, "
            "such as orders.dlq-0@12"
        )
    topic = match[1] or where.name()
    choice = Choice(partition=int(match[2]), offset=int(match[3]))
    away = Away(write_note)
    with reading(where.conf(), away) as consumer:
        letter = next(scan.letters(consumer, topic, choice, patience=away), None)
        if letter is not None and letter.kind is LetterForm.FOREIGN:
            hint(consumer, topic)
    if letter is None:
        raise KeySharedError(
            f"{topic!r} has no record at {place}: it may be deleted, compacted away, a transaction "
            "marker, or not written yet; see `keyshared dlq ls`"
        )
    found = whole(letter, decoder)
    if output is OutputFormat.TABLE:
        rows = [
            ("headers", "\n".join(f"{each['name']} = {words(each['value'])}" for each in value))
            if name == "headers"
            else (name, words(value) if name in {"key", "value"} else _plain(value))
            for name, value in found.items()
        ]
        columns: dict[str, Justify] = {"": "left", " ": "left"}
        write_table(f"{topic} {place}", columns, list(map(printable, rows)))
    else:
        write_result(found, output, topic)
    return 0


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{value['topic']}-{value['partition']}@{value['offset']}"
    return "" if value is None else str(value)


# --- export ---


FORMATS = ("jsonl", "avro")


@dataclass(frozen=True, slots=True)
class ExportArguments:
    """The values from the command line; with ``outstanding``, replayed ones are left out."""

    where: LetterTopicOptions
    choice: Choice
    file: Path | None
    form: str
    decoder: Decoder
    outstanding: ProgressPlace | None


def export_verb(arguments: ExportArguments) -> int:
    """Write the chosen dead letters to a file or to standard output."""
    topic = arguments.where.name()
    form, decoder = arguments.form, arguments.decoder
    if form not in FORMATS:
        raise ConfigError(f"--format {form}: give jsonl or avro")
    if form == "avro" and not decoder.is_default:
        raise ConfigError(
            "--format avro exports keys and values as bytes: leave out --payload and --schema"
        )
    counted = _Counted()
    conf = arguments.where.conf()
    away = Away(write_note)
    with reading(conf, away) as consumer, _opened(arguments.file) as out:
        letters = counted.all(_meant(arguments, conf, consumer, topic, away))
        if form == "avro":
            avro.write_file(out, (as_avro(letter) for letter in counted.told(letters)))
        else:
            for letter in letters:
                line = json.dumps({"topic": topic, **whole(letter, decoder)})
                out.write(line.encode("ascii") + b"\n")
    left_out = (
        f", {counted.left_out:,} records that are no dead letters left out"
        if counted.left_out
        else ""
    )
    write_note(f"{topic}: {counted.taken - counted.left_out:,} dead letters exported{left_out}")
    return 0


def _meant(
    arguments: ExportArguments,
    conf: Mapping[str, Any],
    consumer: Consumer,
    topic: str,
    away: Away,
) -> Iterator[Letter]:
    bounds = scan.bounds_of(consumer, topic)
    letters = scan.letters(consumer, topic, arguments.choice, bounds, patience=away)
    if arguments.outstanding is None:
        return letters
    progress = arguments.outstanding.of(conf, topic, away).load()
    return (each for each in letters if each.told is not None and not is_replayed(each, progress))


class _Counted:
    """Counts dead letters in a stream."""

    def __init__(self) -> None:
        self.taken = 0
        self.left_out = 0

    def all(self, letters: Iterable[Letter]) -> Iterator[Letter]:
        for letter in letters:
            self.taken += 1
            yield letter

    def told(self, letters: Iterable[Letter]) -> Iterator[Letter]:
        for letter in letters:
            if letter.told is None:
                self.left_out += 1
            else:
                yield letter


@contextlib.contextmanager
def _opened(file: Path | None) -> Iterator[IO[bytes]]:
    """Open the output; a file gets its name only when it is complete."""
    if file is None:
        with standard_output() as out:
            yield out
        return
    part = file.with_name(f"{file.name}.part")
    try:
        out = part.open("wb")
    except OSError as error:
        raise ConfigError(f"--file {file}: {error.strerror}") from error
    with out:
        yield out
    part.replace(file)

"""``keyshared dlq export``: complete dead letters, as a stream."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from confluent_kafka import Consumer

from kafka_keyshared.cli.dlq_options import LetterTopicOptions, reading
from kafka_keyshared.cli.dlq_progress import ProgressPlace
from kafka_keyshared.cli.no_broker import Away
from kafka_keyshared.cli.output import standard_output, write_note
from kafka_keyshared.dlq import avro, scan
from kafka_keyshared.dlq.filter import Choice
from kafka_keyshared.dlq.json_view import whole
from kafka_keyshared.dlq.letter import Letter, as_avro
from kafka_keyshared.dlq.payload import Decoder
from kafka_keyshared.dlq.replay_plan import is_replayed
from kafka_keyshared.errors import ConfigError

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

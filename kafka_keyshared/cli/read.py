"""``keyshared read``: the records of some slots, as a stream."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Literal

from kafka_keyshared.app.reader import Reader
from kafka_keyshared.app.reader_bounds import moment_of, single_of
from kafka_keyshared.cli.arguments import RunArguments
from kafka_keyshared.cli.dlq_options import cut, moment, printable, words
from kafka_keyshared.cli.output import OutputFormat, standard_output, write_note
from kafka_keyshared.cli.run import layer, missing
from kafka_keyshared.cli.settings import file_here, typed_time
from kafka_keyshared.client.bounds import Everywhere, ReadingBound
from kafka_keyshared.client.standalone import address_of
from kafka_keyshared.config import Layers, make_options, refuse
from kafka_keyshared.core.routing.slot_ranges import SlotRange, parse_ranges
from kafka_keyshared.dlq.json_view import when
from kafka_keyshared.dlq.payload import Decoder
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import SLOT_FUNCTIONS, SLOTS
from kafka_keyshared.headers import HeadersError, read_headers
from kafka_keyshared.model import TopicPartition, counted

KEY_SHOWN = 24
VALUE_SHOWN = 80
"""Characters of a key and of a value in a line of the table."""

SAY_EVERY = 5.0
"""Seconds between two progress notes of a reading that has an end."""

_SINGLE = re.compile(r"(\d{1,9}):(-?\d{1,19})|(.+)-(\d{1,9})@(-?\d{1,19})", re.ASCII)
_WORDS: Mapping[str, Literal["earliest", "latest"]] = {"earliest": "earliest", "latest": "latest"}
_BACK = re.compile(r"-[1-9]\d{0,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ReadArguments:
    """The values from the command line; None for options not given."""

    run: RunArguments
    ranges: str | None
    start: str
    until: str | None
    follow: bool
    limit: int | None
    keyless: bool
    slot_function: str | None
    decoder: Decoder


def read_verb(arguments: ReadArguments, output: OutputFormat) -> int:
    """Print the chosen records, one per line."""
    if arguments.follow and arguments.until is not None:
        raise ConfigError("--follow and --until exclude each other: give one of them")
    if arguments.run.config is None and (path := file_here()) is not None:
        write_note(f"using the settings of {path} in this folder")
    layers = layer(arguments.run)
    refuse(each for each in missing(layers) if each.settings != ("group",))
    ranges = _ranges(arguments.ranges)
    with _reader(arguments, layers, ranges) as reader:
        starts = reader.open()
        _tell_start(arguments, layers, starts, ranges)
        several = len({topic for topic, _ in starts}) > 1
        line = {
            OutputFormat.TABLE: _Table(reader, arguments.decoder, several=several).line,
            OutputFormat.JSON: lambda record: (
                json.dumps(whole(reader, record, arguments.decoder)) + "\n"
            ),
            OutputFormat.YAML: lambda record: _yaml(whole(reader, record, arguments.decoder)),
        }[output]
        reading = _Reading(reader, line, arguments.limit, told=not arguments.follow)
        try:
            with standard_output() as out:
                if output is OutputFormat.TABLE:
                    out.write(heading(several=several).encode())
                    out.flush()
                reading.write(out)
        except KeyboardInterrupt:
            if not arguments.follow:
                raise
        finally:
            write_note(reading.summary(keyless=arguments.keyless))
    return 0


def _ranges(text: str | None) -> tuple[SlotRange, ...]:
    if text is None:
        raise ConfigError(
            "no slots are given: give --key-hash-range 0-10000,20001-30000, or "
            f"--key-hash-range 0-{SLOTS - 1} for all of them"
        )
    try:
        return parse_ranges(text)
    except ConfigError as error:
        raise ConfigError(f"--key-hash-range {text}: {error}") from error


def _reader(arguments: ReadArguments, layers: Layers, ranges: tuple[SlotRange, ...]) -> Reader:
    slot_function = arguments.slot_function
    if slot_function is not None and slot_function not in SLOT_FUNCTIONS:
        raise ConfigError(
            f"--slot-function {slot_function}: give one of {', '.join(SLOT_FUNCTIONS)}"
        )
    start = parse_bound("--from", arguments.start, layers.topics)
    until = None
    if arguments.until is not None:
        until = parse_bound("--until", arguments.until, layers.topics)
    elif not arguments.follow:
        until = ReadingBound("the end", "latest")
        if start.everywhere == "latest" and not start.single:
            raise ConfigError(
                "--from latest: the range is empty; give --follow to wait for new records"
            )
    given = ("key", "key_schema", "slot_function")
    options = make_options({each: layers.options[each] for each in given if each in layers.options})
    try:
        return Reader(
            layers.conf,
            layers.topics,
            ranges,
            start=start,
            until=until,
            slot_function=slot_function or options.slot_function,  # type: ignore[arg-type]
            key=options.key,
            key_schema=options.key_schema,
            keyless=arguments.keyless,
            tell=write_note,
        )
    except ConfigError as error:
        raise layers.with_origins(error) from error


def parse_bound(
    flag: str, text: str, topics: Sequence[str], clock: Callable[[], float] = time.time
) -> ReadingBound:
    """Parse a bound: pieces separated by commas, at most one of them for all partitions.

    Raises :class:`ConfigError` for an invalid bound.
    """
    everywhere: Everywhere | None = None
    single: dict[TopicPartition, int] = {}
    for piece in map(str.strip, text.split(",")):
        if match := _SINGLE.fullmatch(piece):
            number, offset, topic, its_number, its_offset = match.groups()
            named: Any = int(number) if number is not None else (topic, int(its_number))
            found = single_of(flag, {named: int(offset or its_offset)}, topics)
            if twice := found.keys() & single.keys():
                raise ConfigError(f"{flag} {text}: {twice.pop()} is given twice")
            single |= found
        elif everywhere is not None:
            raise ConfigError(f"{flag} {text}: {piece!r} is a second bound for all partitions")
        else:
            everywhere = _everywhere(flag, piece, clock)
    return ReadingBound(flag, everywhere, single)


def _everywhere(flag: str, piece: str, clock: Callable[[], float]) -> Everywhere:
    if word := _WORDS.get(piece):
        return word
    if _BACK.fullmatch(piece):
        return int(piece)
    try:
        milliseconds = typed_time(flag, piece)
    except ConfigError as error:
        raise ConfigError(
            f"{flag} {piece}: give earliest, latest, PARTITION:OFFSET, TOPIC-PARTITION@OFFSET, -N "
            "for N offsets before the end, or a time such as 2026-01-31T12:00Z or 2h ago as 2h"
        ) from error
    return moment_of(f"{flag} {piece}", milliseconds or 0, clock())


def _tell_start(
    arguments: ReadArguments,
    layers: Layers,
    starts: Mapping[TopicPartition, int],
    ranges: Iterable[SlotRange],
) -> None:
    slots = sum(each.last - each.first + 1 for each in ranges)
    end = f"before {arguments.until}" if arguments.until else "at the current ends of the logs"
    write_note(
        f"reading {counted(len(starts), 'partition')} of {', '.join(layers.topics)} at "
        f"{address_of(layers.conf)} for {slots / SLOTS:.1%} of the slots; "
        f"{'runs until Ctrl-C' if arguments.follow else f'ends {end}'}; joins no group and "
        "commits nothing"
    )


class _Reading:
    """Writes the records of a reader; with ``told`` it prints progress notes."""

    def __init__(
        self, reader: Reader, line: Callable[[Any], str], limit: int | None, *, told: bool
    ) -> None:
        self._reader = reader
        self._line = line
        self._limit = limit
        self._told = told
        self._said = time.monotonic()
        self._written = 0

    def write(self, out: IO[bytes]) -> None:
        reader, line = self._reader, self._line
        while not reader.done:
            records = reader.read()
            if self._limit is not None:
                records = records[: self._limit - self._written]
            if records:
                out.write("".join(map(line, records)).encode())
                # Counted before the user can see the records and press Ctrl-C.
                self._written += len(records)
                out.flush()
            if self._written == self._limit:
                return
            if self._told and (now := time.monotonic()) - self._said >= SAY_EVERY:
                self._said = now
                counts = reader.counts
                write_note(f"read {counts.read:,} records, {self._written:,} of them printed")

    def summary(self, *, keyless: bool) -> str:
        """Return the numbers of records read and left out, as one line."""
        counts = self._reader.counts
        text = f"{counted(counts.read, 'record')} read, {self._written:,} printed"
        if counts.keyless and not keyless:
            text += f"; {counts.keyless:,} without a key left out (--keyless includes them)"
        if counts.undecodable:
            text += f"; {counts.undecodable:,} with an unreadable key left out"
        return text + ("; ended by --limit" if self._written == self._limit else "")


# --- display of a record ---


def whole(reader: Reader, record: Any, decoder: Decoder) -> dict[str, Any]:
    """Return the full content of a record, for JSON."""
    key = reader.key(record)
    result: dict[str, Any] = {
        "topic": record.topic(),
        "partition": record.partition(),
        "offset": record.offset(),
        "timestamp": when(_milliseconds(record)),
        "slot": reader.slot(record),
        "key": decoder.plain(key),
    }
    if key != (own := record.key()):
        result["record_key"] = decoder.plain(own)
    result["value"] = decoder.value(record.value())
    try:
        result["headers"] = [
            {"name": name, "value": decoder.plain(value)} for name, value in read_headers(record)
        ]
    except HeadersError as error:
        result |= {"headers": None, "problem": str(error)}
    return result


def _yaml(found: Mapping[str, Any]) -> str:
    import yaml

    return "---\n" + str(yaml.safe_dump(found, sort_keys=False, allow_unicode=True))


def _milliseconds(record: Any) -> int | None:
    kind, at = record.timestamp()
    return at if kind and at >= 0 else None


def heading(*, several: bool) -> str:
    """Return the names of the table's columns."""
    return _row("partition", "offset", "time", "slot", "key", "value", several=several)


def _row(*cells: str, several: bool) -> str:
    partition, offset, at, slot, key, value = printable(cells)
    width = 30 if several else 9
    place = f"{partition:>{width}}  {offset:>12}  {at:<19}  {slot:>5}"
    return f"{place}  {key:<{KEY_SHOWN}}  {value}".rstrip() + "\n"


class _Table:
    """Formats a record as a line; with several topics the partition includes its topic."""

    def __init__(self, reader: Reader, decoder: Decoder, *, several: bool) -> None:
        self._reader = reader
        self._decoder = decoder
        self._several = several

    def line(self, record: Any) -> str:
        decoder, slot = self._decoder, self._reader.slot(record)
        partition = TopicPartition(record.topic(), record.partition())
        return _row(
            str(partition if self._several else partition.partition),
            str(record.offset()),
            moment(when(_milliseconds(record))),
            "" if slot is None else str(slot),
            cut(words(decoder.plain(self._reader.key(record))), KEY_SHOWN),
            cut(words(decoder.value(record.value())), VALUE_SHOWN),
            several=self._several,
        )

"""``keyshared dlq ls`` and ``show``, and what all verbs on dead letters share."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer

from kafka_keyshared.cli.arguments import RunArguments
from kafka_keyshared.cli.output import Justify, Output, write_result, write_table
from kafka_keyshared.cli.reach import outsider, require_broker
from kafka_keyshared.cli.ring import key_bytes
from kafka_keyshared.cli.run import layer
from kafka_keyshared.dlq import scan
from kafka_keyshared.dlq.choice import Choice
from kafka_keyshared.dlq.letter import Kind, Letter, read_letter
from kafka_keyshared.dlq.payload import Decoder, Payload
from kafka_keyshared.dlq.summary import Summary
from kafka_keyshared.errors import ConfigError, KeySharedError

MESSAGE_SHOWN = 60
"""Characters of an error message in a list."""

_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_PLACE = re.compile(r"(\d+):(\d+)")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options that choose letters, as they were typed."""

    source_topic: str | None = None
    source_group: str | None = None
    error: str | None = None
    key: str | None = None
    since: str | None = None
    until: str | None = None
    partition: int | None = None
    offset: int | None = None

    def choice(self) -> Choice:
        """Return what they mean; raise :class:`ConfigError` for what means nothing."""
        try:
            pattern = None if self.error is None else re.compile(self.error)
        except re.error as error:
            raise ConfigError(f"--error {self.error}: not a regular expression: {error}") from error
        return Choice(
            source_topic=self.source_topic,
            source_group=self.source_group,
            error=pattern,
            key=None if self.key is None else key_bytes(self.key),
            since=_milliseconds("--since", self.since),
            until=_milliseconds("--until", self.until),
            partition=self.partition,
            offset=self.offset,
        )


def _milliseconds(flag: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        if ago := _AGO.fullmatch(text):
            seconds = float(ago[1]) * _SECONDS[ago[2]]
            moment = datetime.now(UTC) - timedelta(seconds=seconds)
        else:
            moment = datetime.fromisoformat(text)
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return int(moment.timestamp() * 1_000)
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"{flag} {text}: give a time such as 2026-01-31T12:00Z (UTC unless it says otherwise), "
            "or how long ago: 90s, 15m, 2h, 7d"
        ) from error


@dataclass(frozen=True, slots=True)
class Where:
    """Which topic of which cluster, as it was typed."""

    bootstrap: str | None
    topic: str | None
    config: Path | None
    settings: list[str]

    def name(self) -> str:
        """Return the dead-letter topic; raise :class:`ConfigError` when none is named."""
        if not self.topic:
            raise ConfigError("no dead-letter topic is named: give -t NAME, such as -t orders.dlq")
        return self.topic

    def conf(self) -> dict[str, Any]:
        """Return the client's settings, once a broker has answered."""
        arguments = RunArguments(bootstrap=self.bootstrap, config=self.config, client=self.settings)
        conf = layer(arguments).conf
        if not conf.get("bootstrap.servers"):
            raise ConfigError(
                "no broker is named: give -b host:port, bootstrap in the file, or "
                "KEYSHARED_BOOTSTRAP"
            )
        require_broker(conf)
        return conf


@contextlib.contextmanager
def reading(conf: Mapping[str, Any]) -> Iterator[Consumer]:
    """Open a consumer that belongs to no group."""
    consumer = outsider(scan.reader_conf(conf), [])
    try:
        yield consumer
    finally:
        consumer.close()


def letters_of(
    consumer: Consumer, topic: str, choice: Choice, bounds: scan.Bounds | None = None
) -> Iterator[Letter]:
    """Yield the letters that are meant."""
    found = dict(bounds or scan.bounds_of(consumer, topic))
    if choice.partition is not None:
        if choice.partition not in found:
            raise ConfigError(
                f"{topic!r} has no partition {choice.partition}: it has {len(found)}, from 0"
            )
        found = {choice.partition: found[choice.partition]}
    if choice.offset is not None:
        at = choice.offset
        found = {
            partition: (max(low, at), min(high, at + 1)) for partition, (low, high) in found.items()
        }
    for message in scan.messages(consumer, topic, found):
        letter = read_letter(message)
        if choice.takes(letter):
            yield letter


# --- ls ---


def ls_verb(where: Where, choice: Choice, limit: int, output: Output) -> int:
    """Print how many letters there are of what, and the newest of them."""
    topic = where.name()
    summary = Summary(limit)
    with reading(where.conf()) as consumer:
        for letter in letters_of(consumer, topic, choice):
            summary.add(letter)
    if output is Output.TABLE:
        _write_summary(topic, summary)
    else:
        write_result(_summary(topic, summary), output, topic)
    return 0


def _summary(topic: str, summary: Summary) -> dict[str, Any]:
    ordered = sorted(summary.counts.items(), key=lambda item: (-item[1].letters, item[0]))
    return {
        "topic": topic,
        "letters": summary.kinds[Kind.HEADERS] + summary.kinds[Kind.AVRO],
        **{kind.value: summary.kinds[kind] for kind in (Kind.FOREIGN, Kind.UNREADABLE)},
        "errors": [
            {
                "source_topic": source,
                "error_type": error,
                "letters": count.letters,
                "first": when(count.first),
                "last": when(count.last),
                "replays": count.replays,
            }
            for (source, error), count in ordered
        ],
        "newest": [_line(letter) for letter in summary.newest()],
    }


def _line(letter: Letter) -> dict[str, Any]:
    told = letter.told
    return {
        "at": str(letter.at),
        "written": when(letter.written),
        "source": str(told.source) if told else None,
        "key": Decoder(Payload.AUTO).plain(letter.key),
        "error": told.error if told else letter.problem,
        "attempts": told.attempts if told else None,
        "replays": told.replays if told else None,
    }


def _write_summary(topic: str, summary: Summary) -> None:
    found = _summary(topic, summary)
    columns: dict[str, Justify] = {
        "source": "left",
        "error": "left",
        "letters": "right",
        "first, last": "left",
        "replays": "right",
    }
    rows = [
        (
            each["source_topic"],
            each["error_type"],
            f"{each['letters']:,}",
            f"{_moment(each['first'])}\n{_moment(each['last'])}",
            str(each["replays"]),
        )
        for each in found["errors"]
    ]
    write_table(f"{topic}: {found['letters']:,} dead letters", columns, list(map(printable, rows)))
    if not found["newest"]:
        return
    newest: dict[str, Justify] = {
        "at": "left",
        "written": "left",
        "source": "left",
        "key": "left",
        "error": "left",
    }
    write_table(
        "the newest",
        newest,
        [
            printable(
                (
                    each["at"],
                    _moment(each["written"]),
                    each["source"] or "",
                    _words(each["key"]),
                    _short(each["error"]),
                )
            )
            for each in found["newest"]
        ],
    )


def printable(row: Iterable[str]) -> tuple[str, ...]:
    """Return cells without what a terminal would obey: texts in letters come from anywhere."""
    return tuple(
        "".join(each if each.isprintable() or each in "\n\t" else "\ufffd" for each in cell)
        for cell in row
    )


def _moment(text: str | None) -> str:
    """Return a time as a table has room for: to the second."""
    return (text or "").replace("T", " ").partition(".")[0]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MESSAGE_SHOWN else f"{line[: MESSAGE_SHOWN - 1]}…"


def _words(shown: Mapping[str, Any] | None) -> str:
    """Return a key, value or header for a table."""
    if shown is None:
        return "null"
    (name, inner), *rest = shown.items()
    text = inner if isinstance(inner, str) else json.dumps(inner, indent=2)
    text = text if name in {"text", "json", "avro"} else f"{name}:{text}"
    return f"{text} ({rest[0][1]})" if rest else text


def when(milliseconds: int | None) -> str | None:
    """Return a time in UTC as text; a number where it is beyond the calendar."""
    if milliseconds is None:
        return None
    try:
        moment = datetime.fromtimestamp(milliseconds / 1_000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# --- show ---


def show_verb(where: Where, place: str, decoder: Decoder, output: Output) -> int:
    """Print one letter."""
    topic = where.name()
    match = _PLACE.fullmatch(place)
    if match is None:
        raise ConfigError(f"{place!r}: give PARTITION:OFFSET as ls lists them, such as 0:12")
    choice = Choice(partition=int(match[1]), offset=int(match[2]))
    with reading(where.conf()) as consumer:
        letter = next(letters_of(consumer, topic, choice), None)
    if letter is None:
        raise KeySharedError(
            f"{topic!r} has no record at {place}: it may be deleted, compacted away, a transaction "
            "marker, or still to come; see `keyshared dlq ls`"
        )
    found = whole(letter, decoder)
    if output is Output.TABLE:
        rows = [
            ("headers", "\n".join(f"{each['name']} = {_words(each['value'])}" for each in value))
            if name == "headers"
            else (name, _words(value) if name in {"key", "value"} else _plain(value))
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


def make_decoder(payload: str, schema: Path | None) -> Decoder:
    """Return what shows payloads; raise :class:`ConfigError` for a form that is none."""
    if payload not in list(Payload):
        raise ConfigError(f"--payload {payload}: give {', '.join(Payload)}")
    return Decoder(Payload(payload), schema)


def whole(letter: Letter, decoder: Decoder) -> dict[str, Any]:
    """Return everything in a letter, for JSON."""
    told = letter.told
    result: dict[str, Any] = {
        "at": str(letter.at),
        "written": when(letter.written),
        "form": letter.kind.value,
    }
    if told is None:
        result["problem"] = letter.problem
    else:
        result |= {
            "source": told.source._asdict(),
            "source_timestamp": when(told.timestamp),
            "source_group": told.group,
            "attempts": told.attempts,
            "replays": told.replays,
            "error_type": told.error_type,
            "error_message": told.error_message,
            "error_stack": told.error_stack,
            "first_failure": when(told.first_failure),
            "last_failure": when(told.last_failure),
        }
    result["key"] = decoder.plain(letter.key)
    result["value"] = decoder.value(letter.value)
    result["headers"] = [
        {"name": name, "value": decoder.plain(value)} for name, value in letter.headers
    ]
    return result

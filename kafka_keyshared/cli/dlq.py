"""``keyshared dlq ls`` and ``show``: what is in a dead-letter topic."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from kafka_keyshared.cli.letters import Where, printable, reading, when, whole
from kafka_keyshared.cli.output import Justify, Output, write_result, write_table
from kafka_keyshared.dlq import scan
from kafka_keyshared.dlq.choice import Choice
from kafka_keyshared.dlq.letter import Kind, Letter
from kafka_keyshared.dlq.payload import Decoder, Payload
from kafka_keyshared.dlq.summary import Summary
from kafka_keyshared.errors import ConfigError, KeySharedError

MESSAGE_SHOWN = 60
"""Characters of an error message in a list."""

_PLACE = re.compile(r"(\d+):(\d+)")


# --- ls ---


def ls_verb(where: Where, choice: Choice, limit: int, output: Output) -> int:
    """Print how many letters there are of what, and the newest of them."""
    topic = where.name()
    summary = Summary(limit)
    with reading(where.conf()) as consumer:
        for letter in scan.letters(consumer, topic, choice):
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


# --- show ---


def show_verb(where: Where, place: str, decoder: Decoder, output: Output) -> int:
    """Print one letter."""
    topic = where.name()
    match = _PLACE.fullmatch(place)
    if match is None:
        raise ConfigError(f"{place!r}: give PARTITION:OFFSET as ls lists them, such as 0:12")
    choice = Choice(partition=int(match[1]), offset=int(match[2]))
    with reading(where.conf()) as consumer:
        letter = next(scan.letters(consumer, topic, choice), None)
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

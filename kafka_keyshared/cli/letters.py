"""What the verbs on dead letters share: which topic, which letters, and how one is shown."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer

from kafka_keyshared.cli.arguments import RunArguments
from kafka_keyshared.cli.reach import require_broker
from kafka_keyshared.cli.run import layer
from kafka_keyshared.cli.settings import typed_key, typed_time
from kafka_keyshared.dlq import scan
from kafka_keyshared.dlq.choice import Choice
from kafka_keyshared.dlq.letter import Letter
from kafka_keyshared.dlq.payload import Decoder, Payload
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.runtime.outsider import outsider


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
            key=None if self.key is None else typed_key(self.key),
            since=typed_time("--since", self.since),
            until=typed_time("--until", self.until),
            partition=self.partition,
            offset=self.offset,
        )


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


def when(milliseconds: int | None) -> str | None:
    """Return a time in UTC as text; a number where it is beyond the calendar."""
    if milliseconds is None:
        return None
    try:
        moment = datetime.fromtimestamp(milliseconds / 1_000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def printable(row: Iterable[str]) -> tuple[str, ...]:
    """Return cells without what a terminal would obey: texts in letters come from anywhere."""
    return tuple(
        "".join(each if each.isprintable() or each in "\n\t" else "\ufffd" for each in cell)
        for cell in row
    )

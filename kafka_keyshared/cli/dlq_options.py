"""Shared parts of the dead-letter commands: topic, selection, progress and display."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeAlias

from confluent_kafka import Consumer

from kafka_keyshared.cli.app_settings import app_layers
from kafka_keyshared.cli.arguments import RunArguments
from kafka_keyshared.cli.no_broker import Away
from kafka_keyshared.cli.output import write_note
from kafka_keyshared.cli.run import layer
from kafka_keyshared.cli.settings import file_here, typed_key, typed_time
from kafka_keyshared.client.probe import require_broker
from kafka_keyshared.config import Layers, make_options
from kafka_keyshared.config.options import AUTO
from kafka_keyshared.dlq import scan
from kafka_keyshared.dlq.filter import Choice
from kafka_keyshared.dlq.payload import Decoder, PayloadFormat
from kafka_keyshared.dlq.replay_file import Journal
from kafka_keyshared.dlq.replay_log import DEFAULT_ID, KafkaProgress
from kafka_keyshared.dlq.selection import LetterSelection
from kafka_keyshared.errors import ConfigError


@dataclass(frozen=True, slots=True)
class LetterOptions:
    """The options that choose dead letters, as they were typed."""

    source_topic: str | None = None
    source_group: str | None = None
    error: str | None = None
    key: str | None = None
    since: str | None = None
    until: str | None = None
    partition: int | None = None
    offset: int | None = None
    selection: Path | None = None

    def choice(self) -> Choice:
        """Return the parsed options; raise :class:`ConfigError` for an invalid one."""
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
            selection=None if self.selection is None else LetterSelection(self.selection),
        )


@dataclass(frozen=True, slots=True)
class LetterTopicOptions:
    """The dead-letter topic and its cluster, as they were typed.

    ``topic`` is the source topic of the dead letters, ``dlq`` the dead-letter topic itself.
    """

    bootstrap: str | None
    topic: str | None
    dlq: str | None
    config: Path | None
    settings: list[str]
    app: str | None = None
    """The app (MODULE:ATTR) that replaces the other sources of settings."""

    def told(self) -> Self:
        """Print the name of the settings file found in this folder, if there is one."""
        if self.app is None and self.config is None and (path := file_here()) is not None:
            write_note(f"using the settings of {path} in this folder")
        return self

    def name(self) -> str:
        """Return the dead-letter topic; raise :class:`ConfigError` if it is not determined.

        It is derived as in an instance, from the topics and the setting ``dlq``.
        """
        layers = self._layers()
        options = make_options({"dlq": layers.options.get("dlq", False)})
        if isinstance(options.dlq, str) and options.dlq != AUTO:
            return options.dlq
        patterns = [topic for topic in layers.topics if topic.startswith("^")]
        names = sorted({options.dlq_topic(topic) for topic in layers.topics if topic[0] != "^"})
        if len(names) == 1 and not patterns:
            return names[0]
        if not names and not patterns:
            why = "no dead-letter topic is named"
        else:
            why = f"there may be several dead-letter topics ({', '.join([*names, *patterns])})"
        raise ConfigError(
            f"{why}: give -t TOPIC for the dead letters of that topic, --dlq NAME for the "
            "dead-letter topic itself, or topics and dlq in the file"
        )

    def conf(self) -> dict[str, Any]:
        """Return the client's settings, once a broker has answered."""
        conf = self._layers().conf
        if not conf.get("bootstrap.servers"):
            raise ConfigError(
                "no broker is named: give -b host:port, bootstrap in the file, or "
                "KEYSHARED_BOOTSTRAP"
            )
        require_broker(conf)
        return conf

    def _layers(self) -> Layers:
        if self.app is not None:
            layers = app_layers(
                self.app, self.settings, bootstrap_server=self.bootstrap, config=self.config
            )
            topics = layers.topics if self.topic is None else [self.topic]
            dlq = layers.options["dlq"] if self.dlq is None else self.dlq
            return replace(layers, topics=topics, options={**layers.options, "dlq": dlq})
        return layer(
            RunArguments(
                bootstrap=self.bootstrap,
                topics=[] if self.topic is None else [self.topic],
                dlq=self.dlq,
                config=self.config,
                client=self.settings,
            )
        )


def absent(choice: Choice) -> str | None:
    """Return a text with the number of selected dead letters not found; None if all were found."""
    selection = choice.selection
    if selection is None or (choice.partition, choice.offset) != (None, None):
        return None
    if not (missing := len(selection) - selection.met):
        return None
    return (
        f"{missing:,} of {len(selection):,} selected letters do not exist: they were "
        "deleted, or the "
        "topic was created again"
    )


@contextlib.contextmanager
def reading(conf: Mapping[str, Any], away: Away | None = None) -> Iterator[Consumer]:
    """Open a consumer without a group; it reports to ``away`` when no broker answers."""
    consumer = scan.connected(conf, away)
    if away is not None:
        away.asks = consumer
    try:
        yield consumer
    finally:
        if away is not None:
            away.asks = None
        consumer.close()


def hint(consumer: Consumer, topic: str) -> None:
    """Print where the dead letters may be instead, after none was found in this topic."""
    there = consumer.list_topics(timeout=scan.ANSWER_TIMEOUT).topics
    if (name := scan.meant(topic, there)) is not None:
        write_note(
            f"{topic!r} contains no dead letters; its dead letters are in {name!r}: give "
            f"-t {topic}, or --dlq {name}"
        )


def make_decoder(payload: str, schema: Path | None) -> Decoder:
    """Return the decoder of payloads; raise :class:`ConfigError` for an unknown form."""
    if payload not in list(PayloadFormat):
        raise ConfigError(f"--payload {payload}: give {', '.join(PayloadFormat)}")
    return Decoder(PayloadFormat(payload), schema)


def cut(text: str, most: int) -> str:
    """Return a text as one line of at most ``most`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def printable(row: Iterable[str]) -> tuple[str, ...]:
    """Return cells without terminal control characters, because the texts are untrusted."""
    return tuple(
        "".join(each if each.isprintable() or each in "\n\t" else "\ufffd" for each in cell)
        for cell in row
    )


def moment(text: str | None) -> str:
    """Return a time for a table, to the second."""
    return (text or "").replace("T", " ").partition(".")[0].removesuffix("Z")


def words(shown: Mapping[str, Any] | None) -> str:
    """Return a key, value or header for a table."""
    if shown is None:
        return "null"
    (name, inner), *rest = shown.items()
    text = inner if isinstance(inner, str) else json.dumps(inner, indent=2)
    text = text if name in {"text", "json", "avro"} else f"{name}:{text}"
    return f"{text} ({rest[0][1]})" if rest else text


# --- replay progress ---


Progress: TypeAlias = Journal | KafkaProgress


@dataclass(frozen=True, slots=True)
class ProgressPlace:
    """The location of the replay progress, as given on the command line."""

    id: str | None = None
    state: Path | None = None

    def __post_init__(self) -> None:
        if self.id is not None and self.state is not None:
            raise ConfigError("--id names progress in Kafka, --state a file: give one of them")

    def of(self, conf: Mapping[str, Any], topic: str, away: Away) -> Progress:
        """Return the progress of the replays of a dead-letter topic, not yet read."""
        if self.state is not None:
            return Journal(self.state, topic)
        id_ = self.id or DEFAULT_ID
        return KafkaProgress(conf, lambda: scan.connected(conf, away), topic, id_, patience=away)


def loaded(progress: Progress) -> bool:
    """Read the progress; return False with a message if it cannot be read."""
    try:
        progress.load()
    except ConfigError as error:
        write_note(f"the replay progress is unknown: {error}")
        return False
    return True


def others(progress: Progress) -> list[str]:
    """Return notes about other replays of the topic."""
    if not isinstance(progress, KafkaProgress):
        return []
    notes = [
        f"another replay has the id {name!r}, with {count:,} letters"
        for name, count in sorted(progress.others.items())
        if name != progress.id
    ]
    if progress.foreign:
        notes.append(
            f"{progress.topic} has records that are no replay's progress, such as "
            f"{progress.foreign[0]}: they were passed over"
        )
    return notes

"""Replay progress for the dead-letter verbs, from Kafka or a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from kafka_keyshared.cli.no_broker import Away
from kafka_keyshared.cli.output import write_note
from kafka_keyshared.dlq import scan
from kafka_keyshared.dlq.replay_file import Journal
from kafka_keyshared.dlq.replay_log import DEFAULT_ID, KafkaProgress
from kafka_keyshared.errors import ConfigError

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

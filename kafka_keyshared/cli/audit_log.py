"""``--audit-log``: the destination of processed-log rows, a folder or a topic."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from errno import EACCES
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from kafka_keyshared.config.local_paths import FOLDER, local_path
from kafka_keyshared.dlq.publish import producer_conf
from kafka_keyshared.dlq.topics import require_topics
from kafka_keyshared.errors import ConfigError, KeySharedError, TopicMissingError
from kafka_keyshared.logs import log_of
from kafka_keyshared.observability.audit.ledger import LineFile
from kafka_keyshared.observability.audit.processed import (
    LINES_SUFFIX,
    TOPIC,
    ProcessedLog,
    ProcessedRow,
    incarnation_name,
    to_lines,
)

log = log_of("kafka_keyshared.cli")

ANSWER_TIMEOUT = 10.0
"""Seconds for the brokers to answer at the start, and to accept the last rows at the end."""


@contextmanager
def audit_log(place: str, conf: Mapping[str, Any] | None = None) -> Iterator[ProcessedLog]:
    """Open the processed log of this process; ``conf`` is the consumer's, for a topic.

    In a folder a row is written when the handler call returns, even if the process is killed later.
    In a topic a kill may lose the last rows, because they are still in flight.

    Raises :class:`ConfigError` for a place that cannot be written.
    """
    if place.startswith(TOPIC):
        with _TopicRows(place, conf).open() as opened:
            yield opened
        return
    incarnation, folder = incarnation_name(), log_folder(place)
    require_folder(folder)
    file = LineFile(folder / f"{incarnation}{LINES_SUFFIX}")
    try:
        yield ProcessedLog(to_lines(file), incarnation, worker_name)
    finally:
        file.close()


def log_folder(place: str, option: str = "--audit-log") -> Path:
    """Return the folder of a processed log; raise :class:`ConfigError` if it is remote.

    ``option`` is the option with which the place was given.
    """
    return local_path(option, place, f"{FOLDER}, or {TOPIC}NAME")


def require_folder(folder: Path) -> None:
    """Create the folder if it is missing; raise :class:`ConfigError` if it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(EACCES, os.strerror(EACCES))
    except OSError as error:
        raise ConfigError(
            f"--audit-log {folder}: {error.strerror}; give a writable folder, or {TOPIC}NAME"
        ) from error


def require_log_topic(place: str, conf: Mapping[str, Any] | None) -> str:
    """Return the topic for rows.

    Raises :class:`ConfigError` for a place that names none, and :class:`TopicMissingError`.
    """
    name = place.removeprefix(TOPIC)
    if not name or conf is None:
        raise ConfigError(f"--audit-log {place}: give {TOPIC}NAME, or a folder")
    try:
        require_topics(conf, [name], create=False, timeout=ANSWER_TIMEOUT)
    except TopicMissingError as error:
        raise TopicMissingError(
            f"--audit-log {place}: there is no such topic; create it first, with the retention "
            "of the log"
        ) from error
    return name


def worker_name() -> str:
    """Return the name of the worker of the current thread."""
    name = threading.current_thread().name
    pool, _, worker = name.partition("-")
    _, found, worker = worker.partition("-")
    return worker if pool == "keyshared" and found else name


class _TopicRows:
    """Writes rows to a topic, each in the same partition as the other rows of its key."""

    def __init__(self, place: str, conf: Mapping[str, Any] | None) -> None:
        self._name = require_log_topic(place, conf)
        self._refused = 0
        self._why = ""
        self._producer = Producer({**producer_conf(conf or {}), "linger.ms": 50, "log_level": 2})

    @contextmanager
    def open(self) -> Iterator[ProcessedLog]:
        try:
            yield ProcessedLog(self._send, incarnation_name(), worker_name)
        finally:
            left = self._producer.flush(ANSWER_TIMEOUT)
        if missing := self._refused + left:
            raise KeySharedError(
                f"--audit-log {TOPIC}{self._name}: {missing:,} rows were not written "
                f"({self._why or 'no answer in time'}); an audit will miss them"
            )

    def _send(self, row: ProcessedRow, line: bytes) -> None:
        while True:
            try:
                self._producer.produce(self._name, line, row.key, on_delivery=self._delivered)
            except BufferError:
                # The handlers wait for the log, because otherwise the log's queue would grow
                # without bound.
                self._producer.poll(0.1)
            except KafkaException as error:
                self._count(error.args[0])
                return
            else:
                self._producer.poll(0)
                return

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._count(error)

    def _count(self, error: KafkaError) -> None:
        self._refused += 1
        if not self._why:
            self._why = error.str()
            log.error("--audit-log: a row was not written to %s: %s", self._name, self._why)

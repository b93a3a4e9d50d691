"""``--outputs``: the destination of handler outputs, a topic or folder."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from kafka_keyshared.config.local_paths import FOLDER, local_path, scheme_of
from kafka_keyshared.dlq.json_view import output_line
from kafka_keyshared.dlq.publish import producer_conf
from kafka_keyshared.dlq.topics import require_topics
from kafka_keyshared.errors import ConfigError, KeySharedError, TopicMissingError
from kafka_keyshared.executors.handling.outputs import (
    HEADER,
    PARQUET,
    TOPIC,
    OutputTarget,
    Take,
    identity,
    place_of,
)
from kafka_keyshared.model import Output, Record
from kafka_keyshared.observability.audit.ledger import LineFile
from kafka_keyshared.observability.audit.processed import LINES_SUFFIX, incarnation_name

ANSWER_TIMEOUT = 10.0
"""Seconds for the brokers to say whether the topic exists."""

DELIVERY_TIMEOUT = 40.0
"""Seconds after which an output counts as not written; the client gives up before that."""


def checked_place(text: str, conf: Mapping[str, Any], topics: Sequence[str]) -> OutputTarget:
    """Return the place for outputs, after a check that it can be used.

    Raises :class:`ConfigError` for an invalid place or a topic that the handler itself reads, and
    :class:`TopicMissingError`.
    """
    place = place_of(text)
    if place.kind != TOPIC:
        return place
    if place.name in topics:
        raise ConfigError(f"--outputs {text}: the handler reads that topic; name another one")
    try:
        require_topics(conf, [place.name], create=False, timeout=ANSWER_TIMEOUT)
    except TopicMissingError as error:
        raise TopicMissingError(
            f"--outputs {text}: there is no such topic; create it first"
        ) from error
    return place


def whole_place(place: OutputTarget) -> OutputTarget:
    """Return a place with its full path.

    Executors may run in another folder than the driver. A URI is left to Spark, which writes to any
    file system that Hadoop supports.
    """
    if place.kind == TOPIC or scheme_of(place.name) is not None:
        return place
    return place._replace(name=str(Path(place.name).resolve()))


def require_here(place: OutputTarget) -> None:
    """Raise :class:`ConfigError` for a place that a pod cannot write, only Spark."""
    if place.kind == PARQUET:
        raise ConfigError(
            "--outputs parquet: a Parquet file is complete only when it is closed, which "
            "is too late "
            "for a record of a pod; give topic:NAME, or a folder for JSON lines"
        )
    if place.kind != TOPIC:
        _folder(place)


def _folder(place: OutputTarget) -> Path:
    return local_path("--outputs", place.name, f"{FOLDER}, or {TOPIC}:NAME")


@contextmanager
def outputs_to(place: OutputTarget, conf: Mapping[str, Any]) -> Iterator[Take]:
    """Yield a function that writes the outputs of a record and returns once they are written.

    Raises :class:`ConfigError` for a place that cannot be written.
    """
    require_here(place)
    if place.kind == TOPIC:
        with _TopicSink(place.name, conf).open() as take:
            yield take
        return
    folder = _folder(place)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = LineFile(folder / f"{incarnation_name()}{LINES_SUFFIX}")
    except OSError as error:
        raise ConfigError(
            f"--outputs {place.name}: {error.strerror}; give a writable folder, or topic:NAME"
        ) from error

    def write(record: Record, outputs: Sequence[Output]) -> None:
        for number, output in enumerate(outputs):
            file.write(output_line(identity(record, number), output).encode("ascii"))

    try:
        yield write
    finally:
        file.close()


class _TopicSink:
    """Writes outputs to a topic and waits for the brokers, one record at a time per worker."""

    def __init__(self, name: str, conf: Mapping[str, Any]) -> None:
        self._name = name
        self._conf = {
            **producer_conf(conf),
            "linger.ms": 1,
            "log_level": 2,
        }
        self._producer = Producer(self._conf)
        self._changing = threading.Lock()
        self._over = threading.Event()

    @contextmanager
    def open(self) -> Iterator[Take]:
        thread = threading.Thread(target=self._serve, name="keyshared-outputs", daemon=True)
        thread.start()
        try:
            yield self._take
        finally:
            self._over.set()
            thread.join()

    def _serve(self) -> None:
        while not self._over.is_set():
            self._producer.poll(0.1)

    def _take(self, record: Record, outputs: Sequence[Output]) -> None:
        answers: SimpleQueue[KafkaError | None] = SimpleQueue()

        def answered(error: KafkaError | None, _: Message) -> None:
            answers.put(error)

        producer, error = self._producer, None
        try:
            for number, output in enumerate(outputs):
                mark = (HEADER, identity(record, number).encode())
                self._send(producer, output, [*output.headers, mark], answered)
            # A list, so that every answer is taken, also those that come after an error.
            told = [answers.get(timeout=DELIVERY_TIMEOUT) for _ in outputs]
            error = next((each for each in told if each is not None), None)
        except KafkaException as refused:
            error = refused.args[0]
        except Empty:
            raise KeySharedError(
                f"an output was not written to {self._name!r}: no answer in {DELIVERY_TIMEOUT:g} s"
            ) from None
        if error is not None:
            self._replace(producer, error)
            raise KeySharedError(f"an output was not written to {self._name!r}: {error.str()}")

    def _send(self, producer: Producer, output: Output, headers: Any, answered: Any) -> None:
        while True:
            try:
                producer.produce(
                    self._name, output.value, output.key, headers=headers, on_delivery=answered
                )
            except BufferError:
                self._over.wait(0.02)
            else:
                return

    def _replace(self, producer: Producer, error: KafkaError) -> None:
        """Make a new producer once this one refuses everything."""
        with self._changing:
            if error.fatal() and producer is self._producer:
                self._producer = Producer(self._conf)

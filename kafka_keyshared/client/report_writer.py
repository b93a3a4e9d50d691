"""A writer of an instance's reports to a topic.

Nothing waits for it and nothing depends on it. It has its own thread. It gives up a report that
cannot be written within seconds; the next report replaces it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from kafka_keyshared.client.standalone import text_of
from kafka_keyshared.config import connection_conf
from kafka_keyshared.errors import KeySharedError

WITHIN = 5.0
"""Seconds in which the broker has to answer."""

_SETTINGS: Mapping[str, Any] = {
    "acks": 1,
    "linger.ms": 0,
    "message.timeout.ms": int(WITHIN * 900),
    "queue.buffering.max.messages": 16,
    # The caller reports the failure. The client would log every attempt.
    "log_level": 2,
    "enable.metrics.push": False,
}


class ReportWriter:
    """Writes to a topic; for use by one thread. ``missing`` is called to create a missing topic.

    It may raise :class:`KeySharedError` instead, and is called again with the next report.
    """

    def __init__(self, conf: Mapping[str, Any], topic: str, missing: Callable[[], None]) -> None:
        self._conf = {**connection_conf(conf), **_SETTINGS}
        self._topic = topic
        self._missing = missing
        self._producer: Producer | None = None
        self._seen = False

    def write(self, key: bytes, value: bytes | None) -> None:
        """Write a report, or None to delete the last one, and wait for the broker's answer.

        Raises :class:`KeySharedError` with the reason if it was not written within :data:`WITHIN`
        seconds.
        """
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Any) -> None:
            if error is not None:
                errors.append(error)

        try:
            producer = self._open()
            producer.produce(self._topic, value, key, on_delivery=delivered)
            left = producer.flush(WITHIN)
        except (BufferError, KafkaException, TypeError, ValueError) as error:
            self._seen = False
            raise KeySharedError(f"{self._topic}: {text_of(error)}") from error
        if errors or left:
            self._seen = False
            raise KeySharedError(self._why(errors[0] if errors else None))

    def _why(self, error: KafkaError | None) -> str:
        """Return the cause of the failure, and the remedy if an operator has to act."""
        topic = self._topic
        if error is None:
            return f"{topic}: no answer within {WITHIN:g} s"
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return f"this user may not write to topic {topic!r}; allow WRITE on topic {topic}"
        return f"{topic}: {error.str()}"

    def _open(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(self._conf)
        if not self._seen:
            # List all topics: a request for one by name might create it, with a broker's defaults.
            if self._topic not in self._producer.list_topics(timeout=WITHIN).topics:
                self._missing()
            self._seen = True
        return self._producer

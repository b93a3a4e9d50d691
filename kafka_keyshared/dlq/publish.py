"""Writes dead letters with an idempotent producer; settled only when the broker has acknowledged.

The producer is served by the owner thread, so its answers reach the core like everything else:
through the mailbox. It is made when the first dead letter is due.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaException, Producer

from kafka_keyshared.core.events import DeadLettered, Publish
from kafka_keyshared.dlq.envelope import headers_of

MESSAGE_BYTES_MAX = 64 << 20
"""The producer refuses nothing for its size; whether a dead letter fits is the broker's to say."""

_SHARED_PREFIXES = ("bootstrap.", "security.", "sasl.", "ssl.", "client.", "socket.", "broker.")
_SHARED_NAMES = ("metadata.broker.list", "oauth_cb", "enable.ssl.certificate.verification")


class DeadLetterPublisher:
    """Writes the records of :class:`Publish` commands to the topic that ``topic_for`` names.

    ``conf`` is the consumer's; what concerns the connection is taken over. ``post`` is told the
    outcome of each dead letter.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        topic_for: Callable[[str], str],
        post: Callable[[DeadLettered], None],
    ) -> None:
        self._conf = producer_conf(conf)
        self._group = str(conf.get("group.id", ""))
        self._topic_for = topic_for
        self._post = post
        self._producer: Producer | None = None
        self._pending = 0

    def publish(self, publish: Publish) -> None:
        """Send a dead letter."""
        record = publish.record
        if self._producer is None:
            self._producer = Producer(self._conf)

        def delivered(error: Any, _message: Any) -> None:
            self._pending -= 1
            self._post(DeadLettered(publish, None if error is None else str(error)))

        self._pending += 1
        try:
            self._producer.produce(
                self._topic_for(record.topic()),
                key=record.key(),
                value=record.value(),
                headers=list(headers_of(publish, self._group)),
                on_delivery=delivered,
            )
        except (BufferError, KafkaException, ValueError, TypeError) as error:
            self._pending -= 1
            self._post(DeadLettered(publish, f"{type(error).__name__}: {error}"))

    def serve(self) -> None:
        """Let the broker's answers in."""
        if self._pending and self._producer is not None:
            self._producer.poll(0)

    def pending(self) -> int:
        """Return how many dead letters have not been answered."""
        return self._pending

    def close(self, timeout: float) -> None:
        """Wait at most ``timeout`` seconds for what is on the way, then disconnect."""
        if self._producer is not None:
            self._producer.flush(timeout)
            self._producer = None


def connection_conf(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of the consumer's configuration concerns the connection."""
    return {
        name: value
        for name, value in conf.items()
        if name.startswith(_SHARED_PREFIXES) or name in _SHARED_NAMES
    }


def producer_conf(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return the producer's configuration: the consumer's connection, idempotent, not hurried."""
    return {
        **connection_conf(conf),
        "enable.idempotence": True,
        "linger.ms": 5,
        "message.max.bytes": MESSAGE_BYTES_MAX,
        "delivery.timeout.ms": 30_000,
    }

"""The writer of dead letters, with an idempotent producer.

A dead letter is settled only when the broker has acknowledged it. The owner thread serves the
producer. Therefore the broker's answers reach the core through the mailbox like all other events.
The producer is created when the first dead letter is due.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Literal, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Producer

from kafka_keyshared.config import connection_conf
from kafka_keyshared.config.client import client_error
from kafka_keyshared.config.properties import FOR_LETTERS
from kafka_keyshared.core.contract.commands import Publish
from kafka_keyshared.core.contract.events import DeadLetterAnswer
from kafka_keyshared.dlq import envelope
from kafka_keyshared.logs import quietly
from kafka_keyshared.model import name_of

Form: TypeAlias = Literal["headers", "avro"]
"""The form of the failure's description: headers beside the record, or an Avro envelope."""

MESSAGE_BYTES_MAX = 64 << 20
"""Producer limit that refuses no size; the broker decides whether a dead letter fits."""

CODECS = ("zstd", "lz4", "gzip")
"""Codecs by preference; the client may be built without any of them.

Brokers accept zstd from 2.1 on (KIP-110).
"""

JAVAS_PARTITIONER = "murmur2_random"
"""librdkafka's name of the partitioner for keys that Java's clients and Spark use."""

REMAKE_AFTER = 0.9
"""Seconds without a new producer after a fatal error; less than the first back-off."""

_ALONE: Mapping[str, Any] = {"batch.num.messages": 1}


class _LetterProducer:
    """A producer with its count of unanswered dead letters.

    ``fatal`` is the error after which the producer refuses everything, even after the broker is
    fixed.
    """

    def __init__(self, conf: Mapping[str, Any], *, alone: bool) -> None:
        self.alone = alone
        self.unanswered = 0
        self.fatal: KafkaError | None = None
        self.producer = Producer(quietly({**conf, **(_ALONE if alone else {})}))

    def serve(self, act: Callable[[], object]) -> None:
        """Call ``act`` to process answers; the client raises fatal errors from it."""
        try:
            act()
        except KafkaException as error:
            self.fatal = error.args[0]
        if self.fatal is not None and self.unanswered:
            # Refuse them now so that the next producer writes them again, without waiting for a
            # time-out.
            self.producer.purge()


class DeadLetterPublisher:
    """Writes the records of :class:`Publish` commands to the topic that ``topic_for`` names.

    ``conf`` is the consumer's; its connection settings are used. ``post`` is called with the
    outcome of each dead letter. A refusal has the topic, the reason and the cure. ``form`` is the
    form of the dead letters.

    A broker applies its size limit to whole batches. So a dead letter that was refused for its size
    in a shared batch is sent again alone. Only a second refusal is reported.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        topic_for: Callable[[str], str],
        post: Callable[[DeadLetterAnswer], None],
        clock: Callable[[], float] = time.monotonic,
        form: Form = "headers",
    ) -> None:
        self._pack = envelope.pack
        if form == "avro":
            from kafka_keyshared.dlq import avro

            self._pack = avro.pack
        self._conf = producer_conf(conf)
        self._group = str(conf.get("group.id", ""))
        self._topic_for = topic_for
        self._post = post
        self._clock = clock
        self._lines: list[_LetterProducer] = []
        # The last fatal error, and the time until which no new producer is created.
        self._failed: tuple[KafkaError, float] | None = None

    def publish(self, publish: Publish) -> None:
        """Send a dead letter."""
        self._send(publish, alone=False)

    def _send(self, publish: Publish, *, alone: bool) -> None:
        record = publish.record
        try:
            line = self._line(alone=alone)
        except KafkaException as error:
            self._refused(publish, error.args[0])
            return

        def delivered(error: KafkaError | None, letter: Any) -> None:
            line.unanswered -= 1
            if error is None:
                self._post(DeadLetterAnswer(publish, None, name_of(letter)))
            elif error.code() == KafkaError.MSG_SIZE_TOO_LARGE and not alone:
                self._send(publish, alone=True)
            else:
                self._refused(publish, error, line)

        line.unanswered += 1
        try:
            value, headers = self._pack(publish, self._group)
            line.producer.produce(
                self._topic_for(record.topic()),
                key=record.key(),
                value=value,
                headers=headers,
                on_delivery=delivered,
            )
        except (BufferError, KafkaException, ValueError, TypeError) as error:
            line.unanswered -= 1
            reason = error.args[0] if isinstance(error, KafkaException) else error
            self._refused(publish, reason, line)

    def _line(self, *, alone: bool) -> _LetterProducer:
        for line in self._lines:
            if line.alone is alone and line.fatal is None:
                return line
        if self._failed is not None and self._clock() < self._failed[1]:
            raise KafkaException(self._failed[0])
        line = _LetterProducer(self._conf, alone=alone)
        self._lines.append(line)
        return line

    def _refused(
        self, publish: Publish, error: Exception | KafkaError, line: _LetterProducer | None = None
    ) -> None:
        if line is not None and isinstance(error, KafkaError):
            if error.fatal() or error.code() == KafkaError._FATAL:
                line.fatal = line.fatal or error
            if line.fatal is not None:
                # Report why the producer failed, and not that its queue was purged because of that.
                error = line.fatal
                self._failed = (error, self._clock() + REMAKE_AFTER)
        why = why_refused(self._topic_for, publish, error)
        self._post(DeadLetterAnswer(publish, why, for_good=is_for_good(error)))

    def serve(self) -> None:
        """Process the broker's answers."""
        for line in list(self._lines):
            if line.unanswered:
                line.serve(partial(line.producer.poll, 0))
            elif line.fatal is not None:
                self._lines.remove(line)

    def unanswered(self) -> int:
        """Return the number of unanswered dead letters."""
        return sum(line.unanswered for line in self._lines)

    def close(self, timeout: float) -> None:
        """Wait at most ``timeout`` seconds for unanswered dead letters, then disconnect."""
        deadline = self._clock() + timeout
        # Twice, because the first flush may send dead letters again that were refused in a shared
        # batch.
        for _ in range(2):
            for line in list(self._lines):
                left = max(0.0, deadline - self._clock())
                line.serve(partial(line.producer.flush, left))
        self._lines.clear()


_CURES: Mapping[int, str] = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "allow this user to WRITE to it",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "allow this user to WRITE to it",
    KafkaError.SASL_AUTHENTICATION_FAILED: "see sasl.username and sasl.password",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "create it again",
    KafkaError._UNKNOWN_TOPIC: "create it again",
    KafkaError._UNKNOWN_PARTITION: "create it again",
    KafkaError._MSG_TIMED_OUT: "see that it still exists and that its brokers run",
    KafkaError.INVALID_RECORD: "a compacted topic takes no record without a key: set its "
    "cleanup.policy to delete",
    KafkaError.NOT_ENOUGH_REPLICAS: "see that enough of its brokers run (min.insync.replicas)",
    KafkaError.MSG_SIZE_TOO_LARGE: "raise its max.message.bytes",
}


def cure_for(error: KafkaError) -> str:
    """Return the cure for a topic that the broker does not let this user write to."""
    return _CURES.get(error.code(), "see what `keyshared doctor` says about it")


_FOR_GOOD = frozenset(
    {
        *(KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC),
        *(KafkaError._UNKNOWN_PARTITION, KafkaError.TOPIC_EXCEPTION),
        *(KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED),
        *(KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION),
        *(KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError.POLICY_VIOLATION),
        # The client has retried for 30 s. This happens when the topic was deleted.
        KafkaError._MSG_TIMED_OUT,
    }
)


def is_for_good(error: Exception | KafkaError) -> bool:
    """Return whether a retry fails the same way until an operator changes something.

    This holds for everything that the client refuses, except for a full queue.
    """
    if isinstance(error, KafkaError):
        return error.code() in _FOR_GOOD
    return not isinstance(error, BufferError)


def why_refused(
    topic_for: Callable[[str], str], publish: Publish, error: Exception | KafkaError
) -> str:
    """Return a text with the topic that refused a dead letter, the reason and the cure."""
    record = publish.record
    topic = topic_for(record.topic())
    if not isinstance(error, KafkaError):
        return f"{topic!r}: {type(error).__name__}: {error}"
    cure = cure_for(error)
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        size = len(record.key() or b"") + len(record.value() or b"")
        cure += f": {size:,} bytes and the headers have to fit"
    return f"{topic!r}: {error.str()}; {cure}"


def producer_conf(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return the producer's configuration: the consumer's connection, idempotent, with linger.

    The partitioner is Spark's, so that pods and Spark write a key to the same partition. A record
    that was compressed must fit again, so dead letters are compressed too.
    """
    shared = connection_conf(conf)
    for name in _OF_ORDER:
        shared.pop(name, None)
    return {
        **shared,
        **_compression(conf),
        "partitioner": JAVAS_PARTITIONER,
        "enable.idempotence": True,
        "linger.ms": 5,
        "message.max.bytes": MESSAGE_BYTES_MAX,
        "delivery.timeout.ms": 30_000,
    }


_OF_ORDER = ("max.in.flight", "max.in.flight.requests.per.connection")
"""Settings that an idempotent producer refuses when too large; the client's default keeps order."""


def _compression(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return the compression for dead letters and outputs: the user's setting, or our default."""
    given = {name: conf[name] for name in FOR_LETTERS if name in conf}
    if "compression.type" not in given and "compression.codec" not in given:
        given["compression.type"] = best_codec()
    return given


def codec_of(conf: Mapping[str, Any]) -> str:
    """Return the name of the codec for dead letters, ``none`` without compression."""
    found = _compression(conf)
    return str(found.get("compression.type", found.get("compression.codec"))).lower()


@cache
def best_codec() -> str:
    """Return the first codec of ``zstd``, ``lz4`` and ``gzip`` that the client supports."""
    return next(
        (each for each in CODECS if client_error({"compression.type": each}) is None), "none"
    )

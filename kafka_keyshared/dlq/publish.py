"""Writes dead letters with an idempotent producer; settled only when the broker has acknowledged.

The producer is served by the owner thread, so its answers reach the core like everything else:
through the mailbox. It is made when the first dead letter is due.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Literal, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Producer

from kafka_keyshared.config import connection_conf
from kafka_keyshared.config.client import ask
from kafka_keyshared.config.properties import FOR_LETTERS
from kafka_keyshared.core.commands import Publish
from kafka_keyshared.core.events import DeadLettered
from kafka_keyshared.dlq import envelope
from kafka_keyshared.logs import quietly
from kafka_keyshared.model import name_of

Form: TypeAlias = Literal["headers", "avro"]
"""How a dead letter says what happened: in headers beside the record, or in an Avro envelope."""

MESSAGE_BYTES_MAX = 64 << 20
"""The producer refuses nothing for its size; whether a dead letter fits is the broker's to say."""

CODECS = ("zstd", "lz4", "gzip")
"""The client may be built without any of them. Brokers take zstd from 2.1 on (KIP-110)."""

JAVAS_PARTITIONER = "murmur2_random"
"""What Java's clients choose the partition of a key by, and Spark: librdkafka's name of it."""

REMAKE_AFTER = 0.9
"""Seconds for which no producer is made after one failed for good: less than the first back-off."""

_ALONE: Mapping[str, Any] = {"batch.num.messages": 1}


class _Line:
    """A producer, and how many of its letters the broker has not answered.

    ``fatal`` is the error after which such a producer refuses everything, whatever is mended at the
    broker.
    """

    def __init__(self, conf: Mapping[str, Any], *, alone: bool) -> None:
        self.alone = alone
        self.unanswered = 0
        self.fatal: KafkaError | None = None
        self.producer = Producer(quietly({**conf, **(_ALONE if alone else {})}))

    def serve(self, act: Callable[[], object]) -> None:
        """Let answers in by ``act``, out of which the client raises what is fatal."""
        try:
            act()
        except KafkaException as error:
            self.fatal = error.args[0]
        if self.fatal is not None and self.unanswered:
            # Refused now, and written again by the next producer, instead of after a time-out.
            self.producer.purge()


class DeadLetterPublisher:
    """Writes the records of :class:`Publish` commands to the topic that ``topic_for`` names.

    ``conf`` is the consumer's; what concerns the connection is taken over. ``post`` is told the
    outcome of each dead letter, a refusal with the topic, the reason and what to do. ``form`` is
    how the letters are written.

    A broker measures its limit on whole batches. So a letter that was refused for its size in
    company is sent again alone before that is called a refusal.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        topic_for: Callable[[str], str],
        post: Callable[[DeadLettered], None],
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
        self._lines: list[_Line] = []
        # The last fatal error and until when no producer is made after it.
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
                self._post(DeadLettered(publish, None, name_of(letter)))
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

    def _line(self, *, alone: bool) -> _Line:
        for line in self._lines:
            if line.alone is alone and line.fatal is None:
                return line
        if self._failed is not None and self._clock() < self._failed[1]:
            raise KafkaException(self._failed[0])
        line = _Line(self._conf, alone=alone)
        self._lines.append(line)
        return line

    def _refused(
        self, publish: Publish, error: Exception | KafkaError, line: _Line | None = None
    ) -> None:
        if line is not None and isinstance(error, KafkaError):
            if error.fatal() or error.code() == KafkaError._FATAL:
                line.fatal = line.fatal or error
            if line.fatal is not None:
                # Why the producer failed, and not that its queue was emptied for it.
                error = line.fatal
                self._failed = (error, self._clock() + REMAKE_AFTER)
        why = why_refused(self._topic_for, publish, error)
        self._post(DeadLettered(publish, why, for_good=is_for_good(error)))

    def serve(self) -> None:
        """Let the broker's answers in."""
        for line in list(self._lines):
            if line.unanswered:
                line.serve(partial(line.producer.poll, 0))
            elif line.fatal is not None:
                self._lines.remove(line)

    def unanswered(self) -> int:
        """Return how many dead letters have not been answered."""
        return sum(line.unanswered for line in self._lines)

    def close(self, timeout: float) -> None:
        """Wait at most ``timeout`` seconds for what is on the way, then disconnect."""
        deadline = self._clock() + timeout
        # Twice, because what is refused in company goes on its way again while the first waits.
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
    """Return what to do about a topic that the broker does not let us write to."""
    return _CURES.get(error.code(), "see what `keyshared doctor` says about it")


_FOR_GOOD = frozenset(
    {
        *(KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC),
        *(KafkaError._UNKNOWN_PARTITION, KafkaError.TOPIC_EXCEPTION),
        *(KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED),
        *(KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION),
        *(KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError.POLICY_VIOLATION),
        # The client has tried for 30 s by itself: so it is where the topic was deleted.
        KafkaError._MSG_TIMED_OUT,
    }
)


def is_for_good(error: Exception | KafkaError) -> bool:
    """Say whether another try gets the same answer until a person changes something.

    So it is with whatever the client refuses to take, but for a full queue.
    """
    if isinstance(error, KafkaError):
        return error.code() in _FOR_GOOD
    return not isinstance(error, BufferError)


def why_refused(
    topic_for: Callable[[str], str], publish: Publish, error: Exception | KafkaError
) -> str:
    """Return in words where a dead letter was not written, why, and what to do about it."""
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
    """Return the producer's configuration: the consumer's connection, idempotent, not hurried.

    A key has the partition that Spark gives it, so that what pods and Spark write of it is in one.
    A record that was compressed has to fit again, so letters are compressed too.
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
"""An idempotent producer keeps order with the client's own value, and is refused with a larger."""


def _compression(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user's compression, or ours where there is none: of letters and outputs."""
    given = {name: conf[name] for name in FOR_LETTERS if name in conf}
    if "compression.type" not in given and "compression.codec" not in given:
        given["compression.type"] = best_codec()
    return given


def codec_of(conf: Mapping[str, Any]) -> str:
    """Return the name of the codec that letters are compressed with, ``none`` for none."""
    found = _compression(conf)
    return str(found.get("compression.type", found.get("compression.codec"))).lower()


@cache
def best_codec() -> str:
    """Return the name of the first codec of ``zstd``, ``lz4`` and ``gzip`` that the client has."""
    return next((each for each in CODECS if ask({"compression.type": each}) is None), "none")

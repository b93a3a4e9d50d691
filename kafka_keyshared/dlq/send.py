"""The producer of replayed records, which is idempotent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from kafka_keyshared.dlq.envelope import Headers
from kafka_keyshared.dlq.letter import Letter
from kafka_keyshared.dlq.publish import JAVAS_PARTITIONER, cure_for, producer_conf
from kafka_keyshared.dlq.read_timeout import ReadTimeout
from kafka_keyshared.dlq.replay import LetterRefusal
from kafka_keyshared.dlq.sync_writer import GIVEN_UP_MS

ANY_PARTITION = -1
PARTITIONERS = (JAVAS_PARTITIONER, "murmur2", "consistent_random", "consistent", "fnv1a_random")

_EVERYWHERE = {
    KafkaError._MSG_TIMED_OUT,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError._FATAL,
    KafkaError._PURGE_QUEUE,
    KafkaError._PURGE_INFLIGHT,
}

Tell = Callable[[LetterRefusal | None], None]


class KafkaSender:
    """Sends the records of dead letters to ``to``, or to their source topics.

    ``partitions`` has the number of partitions of each topic. A record goes back to its source
    partition, so that the reader of its key's other records reads it. With ``to``, with a
    ``partitioner`` (librdkafka's name), or without such a partition, the key chooses the partition.
    The default partitioner is that of Java's producers.

    The record's own timestamp is not sent, because retention would delete a record with an old one.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        to: str | None,
        partitions: Mapping[str, int],
        partitioner: str | None = None,
        patience: ReadTimeout | None = None,
    ) -> None:
        self._patience = patience or ReadTimeout()
        self._to = to
        self._partitions = partitions
        self._by_key = to is not None or partitioner is not None
        self._conf = {
            **producer_conf(conf),
            # Each key has one record in flight, so a linger time would only add delay.
            "linger.ms": 0,
            "partitioner": partitioner or JAVAS_PARTITIONER,
            # Until the patience is over, the client retries a record with the same sequence number,
            # so that it is written once. A new attempt might write it a second time.
            "delivery.timeout.ms": GIVEN_UP_MS,
            # The result reports each error once.
            "log_level": 2,
            "error_cb": self._patience.heard,
        }
        self._unanswered = 0
        self._given_up: str | None = None
        self._fatal: KafkaError | None = None
        self._shared = Producer(self._conf)
        self._alone: Producer | None = None

    def send(self, letter: Letter, headers: Headers, tell: Tell) -> None:
        """Send a record; ``tell`` is called from inside :meth:`serve`, or at once."""
        self._send(letter, headers, tell, self._shared)

    def _send(self, letter: Letter, headers: Headers, tell: Tell, producer: Producer) -> None:
        source = letter.told.source if letter.told else None
        topic = self._to or (source.topic if source else "")
        count = self._partitions.get(topic)
        if count is None:
            tell(
                LetterRefusal(
                    f"there is no topic {topic!r}: create it, or name another with --to", False
                )
            )
            return
        partition = ANY_PARTITION
        if source is not None and not self._by_key and source.partition < count:
            partition = source.partition

        def delivered(error: KafkaError | None, _message: Any) -> None:
            self._unanswered -= 1
            if self._given_up is not None and error is not None:
                tell(LetterRefusal(self._given_up, True))
                return
            if error is None or error.code() > 0:  # codes below zero are the client's own
                self._patience.came()
            if error is None:
                tell(None)
            elif error.code() == KafkaError.MSG_SIZE_TOO_LARGE and producer is not self._alone:
                # A broker applies its limit to whole batches. The record may fit alone.
                self._send(letter, headers, tell, self._lone())
            else:
                tell(_refusal(topic, self._fatal or error))

        if not self._unanswered:
            self._patience.began()
        self._unanswered += 1
        try:
            producer.produce(
                topic,
                key=letter.key,
                value=letter.value,
                headers=headers,
                partition=partition,
                on_delivery=delivered,
            )
        except (BufferError, KafkaException) as error:
            reason = error.args[0]
            if not isinstance(reason, KafkaError):
                reason = KafkaError(KafkaError._QUEUE_FULL)
            delivered(reason, None)

    def _lone(self) -> Producer:
        if self._alone is None:
            self._alone = Producer({**self._conf, "batch.num.messages": 1})
        return self._alone

    def serve(self, timeout: float) -> None:
        """Wait for answers, at most ``timeout`` seconds."""
        if self._alone is not None and len(self._alone):
            self._poll(self._alone, 0)
            timeout = min(timeout, 0.01)
        self._poll(self._shared, timeout)
        if self._unanswered and (why := self._patience.over()) is not None:
            self._given_up = f"{why}; they may or may not have been written"
            for producer in filter(None, (self._shared, self._alone)):
                producer.purge()

    def _poll(self, producer: Producer, timeout: float) -> None:
        try:
            producer.poll(timeout)
        except KafkaException as error:
            # The client raises fatal errors here. None of its unanswered records will be answered.
            self._fatal = error.args[0]
            producer.purge()


def _refusal(topic: str, error: KafkaError) -> LetterRefusal:
    everywhere = error.fatal() or error.code() in _EVERYWHERE
    return LetterRefusal(f"{topic!r}: {error.str()}; {cure_for(error)}", everywhere)

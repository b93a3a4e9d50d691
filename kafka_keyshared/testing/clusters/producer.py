"""A producer with a bounded backlog, for embedded clusters of small capacity."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Condition
from typing import Any, Self
from zlib import crc32

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from kafka_keyshared.errors import (
    BrokerUnavailableError,
    ConfigError,
    KeySharedError,
    TopicMissingError,
)

DEFAULT_LIMIT = 2 * 1024 * 1024
"""Maximum bytes of a partition ahead of its safe position."""

RECORD_OVERHEAD = 32
"""Bytes added to the size of a record's key, value and headers.

A record of a large batch costs about 10, one alone in its batch about 73 (the record batch format
of KIP-98). With 32, even a limit full of empty records in batches of one stays at 2.3 times the
count. So the default limit stays below the 5 MiB at which an embedded partition deletes.
"""

_POLL_EVERY = 500
_POLL_WHILE_BLOCKED = 0.01
_LOOK_AGAIN_AFTER = 0.5
_METADATA_TIMEOUT = 10.0

_NO_TOPIC = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)
_NO_BROKER = (
    KafkaError._MSG_TIMED_OUT,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
)

Headers = Sequence[tuple[str, str | bytes | None]]


class _Meter:
    """The bytes produced to one partition, and the part behind its safe position.

    The producing thread writes ``produced``. The thread that serves deliveries writes ``sizes`` and
    the open chunk. ``released`` is written under the producer's condition. Therefore a record takes
    no lock.
    """

    __slots__ = (
        "_chunk",
        "_grain",
        "_on_failure",
        "callback",
        "delivered",
        "position",
        "produced",
        "released",
        "sizes",
    )

    def __init__(self, grain: int, on_failure: Callable[[KafkaError, Message], None]) -> None:
        self._grain = grain
        self._on_failure = on_failure
        self._chunk = 0
        # Bound once, because each record would otherwise make a new bound method.
        self.callback = self._on_delivery
        self.produced = 0
        self.released = 0
        self.position = 0
        self.sizes: deque[int] = deque()
        self.delivered: deque[tuple[int, int]] = deque()

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        """Add the oldest record in flight to the open chunk, and close the chunk when it is full.

        An idempotent producer (KIP-98) delivers a partition in the order of its records, so this is
        the oldest one. A chunk is identified by its last offset.
        """
        self._chunk += self.sizes.popleft()
        if error is not None:
            self._on_failure(error, message)
        elif self._chunk >= self._grain or not self.sizes:
            offset = message.offset()
            if offset is not None:
                self.delivered.append((offset, self._chunk))
                self._chunk = 0

    def release(self) -> int:
        """Drop the chunks behind the safe position; return the bytes not behind it."""
        delivered = self.delivered
        while delivered and delivered[0][0] < self.position:
            self.released += delivered.popleft()[1]
        return self.produced - self.released


class MeteredProducer:
    """A producer that keeps at most ``limit_bytes`` per partition ahead of the safe position.

    ``conf`` is a configuration of ``confluent_kafka.Producer``. One thread produces; any thread may
    call :meth:`settled` and :meth:`close`. Bytes are counted as key, value and headers plus
    :data:`RECORD_OVERHEAD`. A record larger than the limit is sent alone. The producer is
    idempotent, so its records are written once and in order. After a failed delivery every call
    raises.
    """

    def __init__(self, conf: Mapping[str, Any], *, limit_bytes: int = DEFAULT_LIMIT) -> None:
        if limit_bytes < 1:
            raise ConfigError(f"MeteredProducer(limit_bytes={limit_bytes}): at least 1 is needed")
        if str(conf.get("enable.idempotence", True)).lower() != "true":
            raise ConfigError(
                "MeteredProducer matches records to offsets by their order, which only an "
                "idempotent producer keeps; take enable.idempotence out of its configuration"
            )
        self._producer = Producer({"linger.ms": 5, **conf, "enable.idempotence": True})
        self._hand_over = self._producer.produce
        self._limit = limit_bytes
        self._grain = max(1, limit_bytes // 64)
        self._changed = Condition()
        self._topics: dict[str, list[_Meter]] = {}
        self._early: dict[tuple[str, int], int] = {}
        self._next_keyless: dict[str, int] = {}
        self._until_poll = _POLL_EVERY
        self._failure: tuple[type[KeySharedError], str] | None = None
        self._closed = False
        self._refusing = False

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        partition: int | None = None,
        headers: Headers | None = None,
    ) -> int:
        """Pass one record to the client and return its partition; wait while that is at the limit.

        Without ``partition``, librdkafka's default partitioner (CRC-32) decides by the key. Null
        keys go to the partitions in turn. Raises :class:`TopicMissingError`, and
        :class:`ConfigError` for a partition that the topic does not have. Raises
        :class:`KeySharedError` when the record is refused, the producer is closed (also during the
        wait), or an earlier delivery failed.
        """
        if self._refusing:
            raise self._refusal()
        meters = self._topics.get(topic) or self._open(topic)
        if partition is None:
            if key is None:
                partition = self._next_keyless[topic]
                self._next_keyless[topic] = (partition + 1) % len(meters)
            else:
                partition = crc32(key) % len(meters)
        elif not 0 <= partition < len(meters):
            raise ConfigError(
                f"topic {topic!r} has {len(meters)} partitions, numbered from 0; "
                f"there is no partition {partition}"
            )
        meter = meters[partition]
        size = RECORD_OVERHEAD
        if key is not None:
            size += len(key)
        if value is not None:
            size += len(value)
        if headers:
            size += sum(len(name) + len(content or b"") for name, content in headers)
        if meter.produced - meter.released + size > self._limit:
            self._await_room(meter, size)
        # Counted before the client has it, because another thread's flush may deliver it at once.
        meter.produced += size
        meter.sizes.append(size)
        sent = list(headers) if headers else None
        try:
            self._hand_over(topic, value, key, partition, on_delivery=meter.callback, headers=sent)
        except (TypeError, ValueError):
            meter.produced -= meter.sizes.pop()
            raise
        except (BufferError, KafkaException) as refused:
            send = partial(
                self._hand_over,
                *(topic, value, key, partition),
                on_delivery=meter.callback,
                headers=sent,
            )
            self._hand_over_later(meter, f"{topic}-{partition}", send, refused)
        self._until_poll -= 1
        if self._until_poll <= 0:
            self._until_poll = _POLL_EVERY
            self._producer.poll(0)
        return partition

    def settled(self, topic: str, partition: int, position: int) -> None:
        """Report that all offsets below ``position`` are settled; a lower position is ignored."""
        with self._changed:
            meters = self._topics.get(topic, [])
            if not 0 <= partition < len(meters):
                # Not written to so far, or added since, so none of its records is counted.
                early = self._early.get((topic, partition), 0)
                self._early[topic, partition] = max(early, position)
                return
            meter = meters[partition]
            meter.position = max(meter.position, position)
            meter.release()
            self._changed.notify_all()

    def ahead_bytes(self, topic: str, partition: int) -> int:
        """Return the bytes of the partition ahead of its safe position, those in flight included.

        They leave the count in chunks of 1/64 of the limit, so the number is never too low.
        """
        with self._changed:
            meters = self._topics.get(topic, [])
            return meters[partition].release() if 0 <= partition < len(meters) else 0

    def flush(self, timeout: float = 30.0) -> None:
        """Wait until every record is delivered, at most ``timeout`` seconds.

        Raises :class:`BrokerUnavailableError` when some are still in flight then. Raises the error
        of the first record that could not be delivered.
        """
        left = self._producer.flush(timeout)
        if self._failure is not None:
            raise self._refusal()
        if left:
            raise BrokerUnavailableError(
                f"{left} records were not acknowledged within {timeout:.0f} s; see whether the "
                "broker is up, then flush again"
            )

    def close(self, timeout: float = 10.0) -> None:
        """End a waiting :meth:`produce`, flush, refuse further records; a second call does nothing.

        Raises as :meth:`flush` does when not every record was delivered.
        """
        with self._changed:
            if self._closed:
                return
            self._closed = self._refusing = True
            self._changed.notify_all()
        left = self._producer.flush(timeout)
        if self._failure is not None:
            raise self._refusal()
        if left:
            raise BrokerUnavailableError(
                f"closed with {left} records not acknowledged within {timeout:.0f} s; see whether "
                "the broker is up and write them again"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, topic: str) -> list[_Meter]:
        try:
            # Not list_topics(topic), because an embedded cluster creates a topic that is queried by
            # name.
            known = self._producer.list_topics(timeout=_METADATA_TIMEOUT).topics
        except KafkaException as refused:
            raise BrokerUnavailableError(
                f"no metadata for topic {topic!r} within {_METADATA_TIMEOUT:.0f} s "
                f"({refused.args[0]}); see whether a broker listens at bootstrap.servers"
            ) from refused
        if topic not in known or not known[topic].partitions:
            raise TopicMissingError(f"topic {topic!r} does not exist; create it before producing")
        with self._changed:
            meters = [_Meter(self._grain, self._failed) for _ in known[topic].partitions]
            for partition, meter in enumerate(meters):
                meter.position = self._early.pop((topic, partition), 0)
            self._next_keyless[topic] = 0
            self._topics[topic] = meters
            return meters

    def _await_room(self, meter: _Meter, size: int) -> None:
        while True:
            if self._refusing:
                raise self._refusal()
            with self._changed:
                ahead = meter.release()
                if ahead == 0 or ahead + size <= self._limit:
                    return
                # While records are in flight, only polling brings their offsets.
                if not len(self._producer) and not self._refusing:
                    self._changed.wait(_LOOK_AGAIN_AFTER)
                    continue
            self._producer.poll(_POLL_WHILE_BLOCKED)

    def _hand_over_later(
        self, meter: _Meter, where: str, send: Callable[[], None], refused: Exception
    ) -> None:
        """Send again while the client's queue is full; otherwise remove the record from the count.

        Raises the reason why the record was not accepted.
        """
        failure: KeySharedError | None = None
        while failure is None:
            if self._refusing:
                failure = self._refusal()
            elif isinstance(refused, BufferError):
                self._producer.poll(_POLL_WHILE_BLOCKED)
                try:
                    send()
                except (BufferError, KafkaException) as again:
                    refused = again
                else:
                    return
            else:
                failure = KeySharedError(
                    f"a record for {where} was refused by the client: "
                    f"{refused.args[0]}; it is not in the topic"
                )
        meter.produced -= meter.sizes.pop()
        raise failure from refused

    def _failed(self, error: KafkaError, message: Message) -> None:
        kind: type[KeySharedError] = KeySharedError
        if error.code() in _NO_TOPIC:
            kind = TopicMissingError
        elif error.code() in _NO_BROKER:
            kind = BrokerUnavailableError
        where = f"{message.topic()}-{message.partition()}"
        text = (
            f"a record for {where} was not delivered: {error}; later records may be "
            "missing too, so write again from the last safe position with a new producer"
        )
        with self._changed:
            self._failure = self._failure or (kind, text)
            self._refusing = True
            self._changed.notify_all()

    def _refusal(self) -> KeySharedError:
        kind, text = self._failure or (KeySharedError, "this producer is closed; make a new one")
        return kind(text)

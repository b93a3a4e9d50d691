"""A writer of single records, each acknowledged before the next."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from kafka_keyshared.dlq.publish import cure_for, producer_conf
from kafka_keyshared.dlq.read_timeout import ReadTimeout
from kafka_keyshared.errors import ConfigError, KeySharedError

AT_LEAST = 5.0
"""Minimum seconds of waiting for an answer, however short the patience."""

GIVEN_UP_MS = 3_600_000
"""Delivery timeout of the client, longer than any wait of a caller."""

_DENIED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)


class Writer:
    """Writes to one partition of a topic. Two threads may use it."""

    def __init__(
        self,
        conf: Mapping[str, Any],
        topic: str,
        partition: int,
        patience: ReadTimeout,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._patience = patience
        self._clock = clock
        self._producer = Producer(
            {
                **producer_conf(conf),
                "linger.ms": 0,
                "log_level": 2,
                "delivery.timeout.ms": GIVEN_UP_MS,
                "error_cb": patience.heard,
            }
        )

    def write(self, key: bytes, value: bytes | None, *, patient: bool = True) -> int:
        """Write a record, and return its offset once the broker has acknowledged it.

        Without ``patient`` it waits :data:`AT_LEAST` seconds. Raises :class:`ConfigError` when this
        user may not write, and :class:`KeySharedError` for any other reason.
        """
        answered = threading.Event()
        error: KafkaError | None = None
        offset = -1

        def delivered(refusal: KafkaError | None, message: Any) -> None:
            nonlocal error, offset
            error = refusal
            offset = -1 if refusal is not None else message.offset()
            answered.set()

        try:
            self._producer.produce(self._topic, value, key, self._partition, on_delivery=delivered)
            why = self._await(answered, patient=patient)
        except (BufferError, KafkaException) as refusal:
            reason = refusal.args[0]
            why = reason.str() if isinstance(reason, KafkaError) else str(reason)
        if error is not None:
            raise self._refused(error)
        if why is not None:
            raise KeySharedError(f"{self._topic}: {why}")
        self._patience.came()
        return offset

    def _await(self, answered: threading.Event, *, patient: bool) -> str | None:
        """Wait for an answer; return the reason for giving up, or None."""
        began = self._clock()
        while not answered.is_set():
            self._producer.poll(0.1)
            # Other waits of this command may have used up most of the shared patience before this
            # one.
            waited = self._clock() - began
            if waited >= AT_LEAST and not answered.is_set():
                why = self._patience.over() if patient else f"no answer within {waited:.0f} s"
                if why is not None:
                    return why
        return None

    def _refused(self, error: KafkaError) -> KeySharedError:
        if error.code() in _DENIED:
            return ConfigError(f"{self._topic}: {error.str()}: allow this user to WRITE to it")
        return KeySharedError(f"{self._topic}: {error.str()}; {cure_for(error)}")

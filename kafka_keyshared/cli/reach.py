"""Asks whether a cluster is there before anything is started against it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException

from kafka_keyshared.runtime.client import unreachable
from kafka_keyshared.runtime.outsider import address_of, outsider, telling, text_of

ANSWER_TIMEOUT = 6.0


def require_broker(conf: Mapping[str, Any], timeout: float = ANSWER_TIMEOUT) -> None:
    """Return once a broker has answered a client with this configuration.

    Raises :class:`~kafka_keyshared.errors.BrokerUnavailableError` with the address, the last reason
    that the client gave and what to try, after ``timeout`` seconds, and
    :class:`~kafka_keyshared.errors.ConfigError` when the client refuses a setting.
    """
    reasons: list[str] = []
    consumer = outsider(conf, reasons)
    try:
        consumer.list_topics(timeout=timeout)
    except KafkaException as error:
        consumer.poll(0)
        raise unreachable(address_of(conf), telling(reasons) or text_of(error)) from error
    finally:
        consumer.close()

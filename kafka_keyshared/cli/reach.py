"""Asks whether a cluster is there before anything is started against it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.runtime.kafka import unreachable

ANSWER_TIMEOUT = 6.0
_CALLBACKS = ("on_commit", "stats_cb", "throttle_cb")


def require_broker(conf: Mapping[str, Any], timeout: float = ANSWER_TIMEOUT) -> None:
    """Return once a broker has answered a client with this configuration.

    Raises :class:`~kafka_keyshared.errors.BrokerUnavailableError` with the address, the last reason
    that the client gave and what to try, after ``timeout`` seconds, and :class:`ConfigError` when
    the client refuses a setting.
    """
    reasons: list[str] = []
    own = {name: value for name, value in conf.items() if name not in _CALLBACKS}
    # Never subscribed, so the group never hears of this client; only the setting must be there.
    own.setdefault("group.id", "unused")
    own |= {
        "error_cb": lambda error: reasons.append(error.str()),
        # The reason is told once, in the error; the client would log every attempt.
        "log_level": 2,
        "reconnect.backoff.ms": 100,
        "reconnect.backoff.max.ms": 500,
    }
    try:
        consumer = Consumer(own)
    except (KafkaException, TypeError, ValueError) as error:
        raise refused(error) from error
    try:
        consumer.list_topics(timeout=timeout)
    except KafkaException as error:
        consumer.poll(0)
        address = str(own.get("bootstrap.servers") or own.get("metadata.broker.list"))
        raise unreachable(address, _telling(reasons) or _text(error)) from error
    finally:
        consumer.close()


def refused(error: Exception) -> ConfigError:
    """Return the error for a configuration that the client does not take."""
    return ConfigError(
        f"the Kafka client refuses its configuration: {_text(error)}; see -X, and [kafka] in the "
        "file"
    )


def is_refusal(error: KafkaException) -> bool:
    """Say whether the client refused its configuration."""
    reason = error.args[0] if error.args else None
    return isinstance(reason, KafkaError) and reason.code() == KafkaError._INVALID_ARG


def _telling(reasons: list[str]) -> str:
    """Return the last reason that names a cause; "all brokers are down" does not."""
    causes = [reason for reason in reasons if "brokers are down" not in reason]
    return (causes or reasons or [""])[-1]


def _text(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    return reason.str() if isinstance(reason, KafkaError) else str(reason)

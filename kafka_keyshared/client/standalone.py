"""A Kafka client outside any group, for queries and reads only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from kafka_keyshared.config.tokens import no_token, with_guarded_tokens
from kafka_keyshared.errors import BrokerUnavailableError, ConfigError

QUIET: Mapping[str, Any] = {
    # The error states the reason once. The client would log every attempt.
    "log_level": 2,
    "reconnect.backoff.ms": 100,
    "reconnect.backoff.max.ms": 500,
    # By default a port that accepts connections and never answers is reported after 30 s.
    "socket.connection.setup.timeout.ms": 4_000,
}

READ_ONLY: Mapping[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "allow.auto.create.topics": False,
    "enable.partition.eof": True,
    # Do not send the client's own metrics to the broker (KIP-714).
    "enable.metrics.push": False,
}
"""Client settings for reading logs without changing anything."""

NOT_YET = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
"""Answers for a newly queried group, whose coordinator is still loading its log."""

ASK_AGAIN_AFTER = 0.1
"""Seconds until a retry at a coordinator that has not loaded yet."""

ALL_DOWN = "brokers are down"
"""The client's text after a cause, or instead of one: "1/1 brokers are down"."""

# These belong to the user's own consumer. oauth_cb has to stay: it is needed to connect.
_CALLBACKS = ("on_commit", "stats_cb", "throttle_cb")


def outsider(
    conf: Mapping[str, Any],
    reasons: list[str],
    heard: Callable[[KafkaError], None] = lambda _: None,
) -> Consumer:
    """Return a client for queries and reads. It never subscribes, so no group is involved.

    While it is polled, its errors are appended to ``reasons`` and passed to ``heard``. Raises
    :class:`ConfigError` when it refuses a setting, and :class:`BrokerUnavailableError` when it gets
    no token from ``oauth_cb``.
    """

    def told(error: KafkaError) -> None:
        reasons.append(error.str())
        heard(error)

    own = {
        name: value for name, value in with_guarded_tokens(conf).items() if name not in _CALLBACKS
    }
    own.setdefault("group.id", "unused")
    own |= {**QUIET, "error_cb": told}
    try:
        return Consumer(own)
    except (KafkaException, TypeError, ValueError) as error:
        if (missing := no_token(own, text_of(error))) is not None and _refuses_all(error):
            raise BrokerUnavailableError(
                f"no token for the brokers at {address_of(conf)}: {missing}"
            ) from error
        raise refused(error) from error


def _refuses_all(error: Exception) -> bool:
    """Return whether a client was not made because it got no token in time."""
    reason = error.args[0] if error.args else None
    return isinstance(reason, KafkaError) and reason.code() == KafkaError.SASL_AUTHENTICATION_FAILED


def polled(consumer: Consumer, timeout: float) -> Message | None:
    """Return a poll's result. Raise :class:`KeyboardInterrupt` also where the client lost it."""
    try:
        return consumer.poll(timeout)
    except SystemError as error:
        # The client loses a Ctrl-C that arrives while it runs a callback, as in an outage.
        raise KeyboardInterrupt from error


def address_of(conf: Mapping[str, Any]) -> str:
    """Return the configured address of the cluster."""
    return str(conf.get("bootstrap.servers") or conf.get("metadata.broker.list"))


def refused(error: Exception) -> ConfigError:
    """Return the error for a configuration that the client does not accept."""
    return ConfigError(
        f"the Kafka client refuses its configuration: {text_of(error)}; see -X, and [kafka] in the "
        "file"
    )


def cause_in(reasons: list[str]) -> str:
    """Return the last reason that names a cause, if any. "all brokers are down" does not."""
    return next((each for each in reversed(reasons) if ALL_DOWN not in each), "")


def telling(reasons: list[str]) -> str:
    """Return the last reason that names a cause, or else the last."""
    return cause_in(reasons) or (reasons or [""])[-1]


def text_of(error: Exception) -> str:
    """Return the text of a client error."""
    reason = error.args[0] if error.args else error
    return reason.str() if isinstance(reason, KafkaError) else str(reason) or "no answer in time"

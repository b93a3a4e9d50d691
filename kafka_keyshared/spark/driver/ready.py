"""Preconditions of a run, checked before the slow start of Spark."""

from __future__ import annotations

from kafka_keyshared.client.kafka import KafkaClient
from kafka_keyshared.client.patterns import is_pattern
from kafka_keyshared.dlq.topics import require_topics
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.spark.driver.group import ASK_TIMEOUT, refuse_active
from kafka_keyshared.spark.driver.run import DLQ_TIMEOUT, NO_STATE_FOLDER, SparkRunRequest


def require_ready(wanted: SparkRunRequest, *, here: bool) -> None:
    """Refuse a run that cannot work; ``here`` is true when all of Spark runs on this machine.

    Raises :class:`ConfigError` for a handler that cannot be sent to executors or whose state has no
    folder. Raises :class:`TopicMissingError` for a missing topic, and :class:`GroupActiveError`
    while the group has other members.
    """
    if wanted.settings.hands_over and wanted.state is None and not here:
        raise ConfigError(NO_STATE_FOLDER)
    require_picklable(wanted)
    _require_topics(wanted)
    refuse_active(wanted.conf)


def _require_topics(wanted: SparkRunRequest) -> None:
    client = KafkaClient(wanted.conf, wanted.topics, lambda _: None)
    try:
        client.check_topics(ASK_TIMEOUT)
    finally:
        client.close()
    if wanted.settings.dlq:
        names = {wanted.dlq_topic(each) for each in wanted.topics if not is_pattern(each)}
        require_topics(wanted.conf, sorted(names), create=wanted.dlq_create, timeout=DLQ_TIMEOUT)


def require_picklable(wanted: SparkRunRequest) -> None:
    """Raise :class:`ConfigError` for a handler or a key function that cannot be pickled."""
    from pyspark import cloudpickle

    try:
        cloudpickle.dumps((wanted.settings, wanted.specs))  # type: ignore[no-untyped-call]
    except Exception as error:
        raise ConfigError(
            f"the handler cannot be sent to executors: {type(error).__name__}: {error}; what it "
            "holds (a lock, a connection, an open file) is better made in the __init__ of a "
            "handler class, or where it is first used"
        ) from error

"""Checks and creation of dead-letter topics and progress topics."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafka_keyshared.client.port import unreachable
from kafka_keyshared.client.standalone import address_of, telling
from kafka_keyshared.config import connection_conf
from kafka_keyshared.errors import BrokerUnavailableError, TopicMissingError

MAKE_TIMEOUT = 10.0
_PAUSE = threading.Event()


def require_topics(
    conf: Mapping[str, Any], topics: Sequence[str], *, create: bool, timeout: float
) -> None:
    """Check that the topics exist; create the missing ones if ``create`` is set.

    Raises :class:`TopicMissingError` naming the topic, and :class:`BrokerUnavailableError` when no
    broker answers within ``timeout`` seconds.
    """
    reasons: list[str] = []
    own: dict[str, Any] = connection_conf(conf)
    own["error_cb"] = lambda error: reasons.append(error.str())
    admin = None
    try:
        admin = AdminClient(own)
        there = admin.list_topics(timeout=timeout).topics
    except KafkaException as error:
        if admin is not None:
            admin.poll(0)
        address, why = address_of(own), telling(reasons) or error.args[0].str()
        raise BrokerUnavailableError(
            f"when dead-letter topics were looked up: {unreachable(address, why, own)}"
        ) from error
    missing = [topic for topic in topics if topic not in there or there[topic].error is not None]
    if not missing:
        return
    if not create:
        raise TopicMissingError(
            f"dead-letter topic {missing[0]!r} does not exist: create it, or set "
            "dlq_create=True (--dlq-create)"
        )
    for topic in missing:
        try:
            _make(admin, topic, {}, timeout)
        except KafkaException as error:
            raise TopicMissingError(
                f"dead-letter topic {topic!r} does not exist and could not be created: {error}"
            ) from error


def make_topic(
    conf: Mapping[str, Any], topic: str, config: Mapping[str, str], timeout: float = MAKE_TIMEOUT
) -> None:
    """Create a topic of one partition with this configuration, and return when it can be written.

    Raises :class:`TopicMissingError` when it cannot be created.
    """
    admin = AdminClient({**connection_conf(conf), "log_level": 2})
    try:
        _make(admin, topic, config, timeout, partitions=1)
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            there = admin.list_topics(timeout=timeout).topics.get(topic)
            if there is not None and any(each.leader >= 0 for each in there.partitions.values()):
                return
            _PAUSE.wait(0.05)
    except KafkaException as error:
        raise TopicMissingError(
            f"topic {topic!r} cannot be made or seen by this user: {error.args[0].str()}"
        ) from error
    raise TopicMissingError(f"topic {topic!r} was made and has no leader after {timeout:g} s")


def has_controller(admin: AdminClient, timeout: float = MAKE_TIMEOUT) -> bool:
    """Return whether the cluster has a controller; an embedded cluster has none."""
    there = admin.list_topics(timeout=timeout)
    return there.controller_id in there.brokers


def _make(
    admin: AdminClient,
    topic: str,
    config: Mapping[str, str],
    timeout: float,
    partitions: int = -1,
) -> None:
    if not has_controller(admin, timeout):
        admin.list_topics(topic, timeout)  # an embedded cluster creates a topic on query
        return
    wanted = NewTopic(topic, num_partitions=partitions, replication_factor=-1, config=dict(config))
    try:
        # The client's own time-out comes first, and its error names the cause.
        made = admin.create_topics([wanted], operation_timeout=timeout, request_timeout=timeout)
        made[topic].result(2 * timeout)
    except KafkaException as error:
        # Another instance, started at the same time, may have created it.
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise

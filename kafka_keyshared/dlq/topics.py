"""Sees to it that the dead-letter topics exist before the first record is consumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafka_keyshared.config import connection_conf
from kafka_keyshared.errors import BrokerUnavailableError, TopicMissingError


def require_topics(
    conf: Mapping[str, Any], topics: Sequence[str], *, create: bool, timeout: float
) -> None:
    """Check that the topics exist; make the missing ones when ``create`` says so.

    Raises :class:`TopicMissingError` naming the topic, :class:`BrokerUnavailableError` when nobody
    answers within ``timeout`` seconds.
    """
    own = connection_conf(conf)
    admin = AdminClient(own)
    try:
        there = admin.list_topics(timeout=timeout).topics
    except KafkaException as error:
        raise BrokerUnavailableError(
            f"no broker answered at {own.get('bootstrap.servers')} when dead-letter topics were "
            f"looked up: {error.args[0]}; see that the cluster is up and can be reached from here"
        ) from error
    missing = [topic for topic in topics if topic not in there or there[topic].error is not None]
    if not missing:
        return
    if not create:
        raise TopicMissingError(
            f"dead-letter topic {missing[0]!r} does not exist: create it, or set "
            "dlq_create=True (--dlq-create)"
        )
    for topic, made in admin.create_topics(
        [NewTopic(topic, num_partitions=-1, replication_factor=-1) for topic in missing],
        operation_timeout=timeout,
    ).items():
        try:
            made.result(timeout)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                continue  # another instance, which starts at the same time, was faster
            raise TopicMissingError(
                f"dead-letter topic {topic!r} does not exist and could not be created: {error}"
            ) from error

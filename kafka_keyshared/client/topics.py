"""Partitions of topics read without a group, and errors that forbid reading."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException

from kafka_keyshared.client.patterns import is_pattern, topics_meant, visible
from kafka_keyshared.client.standalone import text_of
from kafka_keyshared.errors import ConfigError, KeySharedError, TopicMissingError
from kafka_keyshared.model import TopicPartition

ANSWER_TIMEOUT = 8.0


def partitions_of(consumer: Consumer, topics: Iterable[str]) -> list[TopicPartition]:
    """Return every partition of the topics. A pattern (``^…``) matches no internal topic.

    Raises :class:`TopicMissingError` for a topic that does not exist, and :class:`KeySharedError`
    when the cluster does not answer.
    """
    there = _listed(consumer)
    found = []
    for topic in _meant(list(dict.fromkeys(topics)), there):
        if topic not in there:
            near = get_close_matches(topic, there, n=1)
            meant = f"did you mean {near[0]!r}? " if near else ""
            raise TopicMissingError(
                f"topic {topic!r} does not exist, or this user may not see it; {meant}mend the "
                f"name, or allow DESCRIBE and READ on topic {topic}"
            )
        found += [TopicPartition(topic, number) for number in sorted(there[topic].partitions)]
    return found


def sizes_of(consumer: Consumer, topics: Iterable[str]) -> dict[str, int]:
    """Return the number of partitions of each existing topic.

    Raises :class:`KeySharedError` when the cluster does not answer.
    """
    there = _listed(consumer)
    return {each: len(there[each].partitions) for each in topics if each in there}


def _listed(consumer: Consumer) -> Mapping[str, Any]:
    """Return all topics.

    The full list allows a suggestion for a misspelled name. And a request for one topic may create
    it.
    """
    try:
        found: Mapping[str, Any] = consumer.list_topics(timeout=ANSWER_TIMEOUT).topics
    except KafkaException as error:
        why = f"the cluster does not list its topics: {text_of(error)}"
        raise KeySharedError(why) from error
    return found


def _meant(topics: list[str], there: Iterable[str]) -> list[str]:
    """Return the topics by name. A pattern matches no internal topic."""
    if not any(map(is_pattern, topics)):
        return topics
    found = topics_meant(topics, visible(there))
    if not found:
        raise TopicMissingError(
            f"no topic that this user may see fits {', '.join(topics)}; mend the pattern, or "
            "allow DESCRIBE and READ on the topics"
        )
    return found


def not_allowed(topic: str | None) -> ConfigError:
    """Return the error for a topic without READ."""
    return ConfigError(
        f"this user may not read topic {topic!r}; allow READ and DESCRIBE on topic {topic}, or "
        "give the credentials of a user who may with -X"
    )


def unreadable(error: KafkaError, topic: str | None) -> ConfigError | None:
    """Return the error for a topic that can never be read; None when a retry may work."""
    code = error.code()
    if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return not_allowed(topic)
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION):
        return TopicMissingError(f"topic {topic!r} is no longer there; mend the name")
    return None

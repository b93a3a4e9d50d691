"""A query for topic ids (KIP-516). A topic that is created again has another id."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from confluent_kafka import TopicCollection

from kafka_keyshared.client.kept_admin import KeptAdmin

ANSWER_WITHIN = 10.0
"""Seconds after which a request counts as unanswered."""


class KafkaTopicIds:
    """One query: :class:`~.port.TopicIdsAsked`. It is sent once the client exists."""

    def __init__(self, admin: KeptAdmin, topics: Collection[str]) -> None:
        wanted = TopicCollection(sorted(topics))
        self._question = admin.ask(
            "the id of the topic",
            lambda client: client.describe_topics(wanted, request_timeout=ANSWER_WITHIN),
        )

    def answer(self, timeout: float) -> dict[str, str] | None:
        """Return the topic ids from the answer; None without an answer yet."""
        described = self._question.answers(timeout)
        if described is None:
            return None
        ids = {topic: id_in(about) for topic, about in described.items()}
        return {topic: id_ for topic, id_ in ids.items() if id_ is not None}


def id_in(description: Any) -> str | None:
    """Return the id in a topic description. Brokers before 2.8 have none and send zeros."""
    id_ = description.topic_id
    known = id_.get_most_significant_bits() or id_.get_least_significant_bits()
    return str(id_) if known else None

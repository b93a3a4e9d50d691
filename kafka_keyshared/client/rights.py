"""A query for the topics that a client's user may read.

The client reports a refused fetch once and never its end. So only a query shows that a topic
without traffic may be read again. Brokers return a user's own rights with the description of a
topic (KIP-430). The query runs every few seconds, and only while a right is missing.
"""

from __future__ import annotations

from collections.abc import Collection

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from kafka_keyshared.client.kept_admin import KeptAdmin

ANSWER_WITHIN = 10.0
"""Seconds after which a request counts as unanswered."""

NEEDED = frozenset({AclOperation.READ, AclOperation.DESCRIBE})
"""The rights needed to read a topic and to commit its positions."""


class KafkaRights:
    """One query: :class:`~.port.RightsAsked`."""

    def __init__(self, admin: KeptAdmin, topics: Collection[str]) -> None:
        wanted = TopicCollection(sorted(topics))
        self._question = admin.ask(
            "the rights on the topic",
            lambda client: client.describe_topics(
                wanted, include_authorized_operations=True, request_timeout=ANSWER_WITHIN
            ),
        )

    def answer(self) -> frozenset[str] | None:
        """Return the topics with READ and DESCRIBE; None while there is no answer."""
        described = self._question.answers(0.0)
        if described is None:
            return None
        return frozenset(
            topic
            for topic, about in described.items()
            if set(about.authorized_operations or ()) >= NEEDED
        )

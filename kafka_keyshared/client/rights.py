"""Asks which topics the user of a client may read.

A refused fetch is reported once and its end never, so the only way to learn that a topic without
traffic may be read again is to ask. Brokers tell a user's own rights with the description of a
topic (KIP-430). The consumer cannot ask that, so each question has an admin client of its own; one
is asked every few seconds, and only while a right is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future, wait
from typing import Any

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient  # type: ignore[attr-defined]

from kafka_keyshared.config import connection_conf
from kafka_keyshared.logs import log_of
from kafka_keyshared.program import forks

log = log_of("kafka_keyshared.kafka")

ANSWER_WITHIN = 10.0
"""Seconds after which a question counts as unanswered."""

NEEDED = frozenset({AclOperation.READ, AclOperation.DESCRIBE})
"""What it takes to read a topic, and to commit positions of it."""

_QUIET = {"log_level": 2, "enable.metrics.push": False}

_PARENTS: list[AdminClient | None] = []
"""In the child of a fork: their destructors would wait for threads that it does not have."""


class KafkaRights:
    """One question: :class:`~.port.RightsAsked` over an admin client of its own.

    Nothing is asked where ``oauth_cb`` is set, as for the ids of topics (:mod:`.topic_ids`).
    """

    def __init__(self, conf: Mapping[str, Any], topics: Collection[str]) -> None:
        self._admin: AdminClient | None = None
        self._asked: dict[str, Future[Any]] = {}
        own = connection_conf(conf)
        if own.get("oauth_cb") is not None:
            return
        try:
            self._admin = AdminClient({**own, **_QUIET})
            self._asked = self._admin.describe_topics(
                TopicCollection(sorted(topics)),
                include_authorized_operations=True,
                request_timeout=ANSWER_WITHIN,
            )
        except (KafkaException, TypeError, ValueError) as error:
            log.debug("the rights on topics cannot be asked for: %s", error)
        forks.watch(self)

    def forked(self) -> None:
        """Keep the parent's client for ever."""
        _PARENTS.append(self._admin)

    def answer(self) -> frozenset[str] | None:
        """Return the topics with READ and DESCRIBE; None while there is no answer."""
        if wait(self._asked.values(), 0.0).not_done:
            return None
        found = set()
        for topic, told in self._asked.items():
            error = told.exception()
            if error is not None:
                log.debug("%s: its rights are not told: %s", topic, error)
            elif set(told.result().authorized_operations or ()) >= NEEDED:
                found.add(topic)
        return frozenset(found)

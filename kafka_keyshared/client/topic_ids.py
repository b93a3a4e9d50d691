"""Asks which topics those of some names are (KIP-516): one made anew has another id.

The consumer cannot be asked, and its binding lends its connections to nobody. So there is a client
for each question, which is gone with the answer: it has four threads, takes half a megabyte and is
made and ended in a millisecond, and there is a question a minute.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future, wait
from typing import Any

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from kafka_keyshared.config import connection_conf
from kafka_keyshared.logs import log_of
from kafka_keyshared.program import forks

log = log_of("kafka_keyshared.kafka")

ANSWER_WITHIN = 10.0
"""Seconds after which a question counts as answered by nobody."""

_QUIET = {"log_level": 2, "enable.metrics.push": False}

_PARENTS: list[AdminClient | None] = []
"""In the child of a fork: their destructors would wait for threads that it does not have."""


class KafkaTopicIds:
    """One question: :class:`~.port.TopicIdsAsked` over an admin client of its own.

    Nothing is asked where ``oauth_cb`` is set: whoever makes a client waits for that, and calls it
    in a thread that its author knows nothing of.
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
                TopicCollection(sorted(topics)), request_timeout=ANSWER_WITHIN
            )
        except (KafkaException, TypeError, ValueError) as error:
            log.debug("the ids of topics cannot be asked for: %s", error)
        forks.watch(self)

    def forked(self) -> None:
        """Keep the parent's client for ever."""
        _PARENTS.append(self._admin)

    def answer(self, timeout: float) -> dict[str, str] | None:
        """Return the ids that were told, None without an answer yet."""
        if wait(self._asked.values(), timeout).not_done:
            return None
        found: dict[str, str] = {}
        for topic, told in self._asked.items():
            error = told.exception()
            if error is not None:
                log.debug("%s: its id is not told: %s", topic, error)
                continue
            if (id_ := id_in(told.result())) is not None:
                found[topic] = id_
        return found


def id_in(description: Any) -> str | None:
    """Return the id in what brokers tell of a topic; those before 2.8 have none and tell zeros."""
    id_ = description.topic_id
    known = id_.get_most_significant_bits() or id_.get_least_significant_bits()
    return str(id_) if known else None

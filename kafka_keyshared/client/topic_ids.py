"""Admin client that asks for the ids of topics (KIP-516): a topic made anew has another id.

The consumer cannot be asked, and confluent-kafka lends its connections to no other client. So
there is one admin client beside it. It is made for the first question and kept: a client for each
question would fetch a token and open a TLS connection each time.
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
from kafka_keyshared.program.aside import Aside

log = log_of("kafka_keyshared.kafka")

ANSWER_WITHIN = 10.0
"""Seconds after which a question has no answer."""

_QUIET = {"log_level": 2, "enable.metrics.push": False}

_PARENTS: list[Aside[AdminClient] | None] = []
"""In the child of a fork: their destructors would wait for threads that it does not have."""


class TopicIdClient:
    """Asks for topic ids, over one admin client that is kept from the first question to the end.

    ``conf`` is the consumer's. For one thread. The client is made on a thread of its own, because
    it waits up to 10 s for a token where ``oauth_cb`` is set.
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        self._conf = {**connection_conf(conf), **_QUIET}
        # Its lines would wait for a poll.
        self._conf.pop("logger", None)
        self._made: Aside[AdminClient] | None = None
        forks.watch(self)

    def forked(self) -> None:
        """Keep the parent's client for ever."""
        _PARENTS.append(self._made)
        self._made = None

    def ask(self, topics: Collection[str]) -> KafkaTopicIds:
        """Ask for the ids of topics, and wait for nothing."""
        made = self._made
        if made is None or _failed(made):
            made = self._made = Aside(lambda: AdminClient(self._conf), name="keyshared-topic-ids")
        return KafkaTopicIds(made, topics)

    def close(self) -> None:
        """Disconnect."""
        self._made = None


def _failed(made: Aside[AdminClient]) -> bool:
    """Say whether the client could not be made: without a token, or for its settings."""
    if not made.over:
        return False
    try:
        made.result()
    except (KafkaException, TypeError, ValueError):
        return True
    return False


class KafkaTopicIds:
    """One question: :class:`~.port.TopicIdsAsked`. It is sent once the client is made."""

    def __init__(self, made: Aside[AdminClient], topics: Collection[str]) -> None:
        self._made = made
        self._topics = sorted(topics)
        self._asked: dict[str, Future[Any]] | None = None
        self._begin(0.0)

    def _begin(self, timeout: float) -> bool:
        """Send the question if the client is there within ``timeout`` seconds; say if it is."""
        if self._asked is None and self._made.wait(timeout):
            self._asked = {}
            try:
                admin = self._made.result()
                admin.poll(0)
                self._asked = admin.describe_topics(
                    TopicCollection(self._topics), request_timeout=ANSWER_WITHIN
                )
            except (KafkaException, TypeError, ValueError) as error:
                log.debug("the ids of topics cannot be asked for: %s", error)
        return self._asked is not None

    def answer(self, timeout: float) -> dict[str, str] | None:
        """Return the ids that were told, None without an answer yet."""
        if not self._begin(timeout) or self._asked is None:
            return None
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

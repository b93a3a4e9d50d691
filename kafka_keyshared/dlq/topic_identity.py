"""A check that a topic was not recreated during its replay."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from kafka_keyshared.client.topic_ids import id_in
from kafka_keyshared.config import connection_conf
from kafka_keyshared.dlq.topics import has_controller

ASK_EVERY = 2.0
_ANSWER_TIMEOUT = 10.0

_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)


def ids_of(conf: Mapping[str, Any], topic: str) -> Callable[[], Future[str | None]]:
    """Return a function that queries the id of a topic; a recreated topic gets a new id.

    The answer is None when there are no ids, as with brokers before 2.8. An embedded cluster has no
    ids either; :func:`can_be_asked` detects it.
    """
    admin = AdminClient({**connection_conf(conf), "log_level": 2})

    def ask() -> Future[str | None]:
        asked = admin.describe_topics(TopicCollection([topic]), request_timeout=_ANSWER_TIMEOUT)
        answer: Future[str | None] = Future()

        def answered(found: Future[Any]) -> None:
            error = found.exception()
            if error is not None:
                answer.set_exception(error)
                return
            answer.set_result(id_in(found.result()))

        asked[topic].add_done_callback(answered)
        return answer

    return ask


def can_be_asked(conf: Mapping[str, Any]) -> bool:
    """Return whether the cluster answers topic queries."""
    return has_controller(AdminClient({**connection_conf(conf), "log_level": 2}))


class SameTopic:
    """Queries the topic id every :data:`ASK_EVERY` seconds; only the first query blocks.

    With ``ids`` None, or when this user may not query, it never detects a change. Dead letters are
    identified by a hash of their content. Therefore this check does not guard against confusing a
    new dead letter with an old one. It stops a replay that still holds old ones.
    """

    def __init__(
        self,
        topic: str,
        ids: Callable[[], Future[str | None]] | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._topic = topic
        self._clock = clock
        self._why: str | None = None
        self._asked: Future[str | None] | None = None
        self._ask_at = clock() + ASK_EVERY
        self._ids, self._id = ids, None
        if ids is None:
            return
        try:
            self._id = ids().result(2 * _ANSWER_TIMEOUT)
        except (KafkaException, TimeoutError):
            self._ids = None
        if self._id is None:
            self._ids = None

    def lost(self) -> str | None:
        """Return why a replay must end because its topic has changed; None while it is the same."""
        if self._ids is None or self._why is not None:
            return self._why
        if self._asked is not None and self._asked.done():
            self._why = self._judged(self._asked)
            self._asked = None
        elif self._asked is None and self._clock() >= self._ask_at:
            self._ask_at = self._clock() + ASK_EVERY
            self._asked = self._ids()
        return self._why

    def _judged(self, answer: Future[str | None]) -> str | None:
        error = answer.exception()
        if error is None:
            changed = answer.result() not in {self._id, None}
            return f"{self._topic} was created again; the replay stops" if changed else None
        reason = error.args[0] if error.args else None
        if isinstance(reason, KafkaError) and reason.code() in _GONE:
            return f"{self._topic} was deleted; the replay stops"
        return None  # it is asked again

"""A long-lived admin client for requests that the consumer does not support.

confluent-kafka does not share a consumer's connections with another client. The admin client is
made for the first request and kept. One client per request would fetch a token and open a TLS
connection each time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import Any, Generic, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from kafka_keyshared.config import connection_conf
from kafka_keyshared.logs import log_of
from kafka_keyshared.platform import forks
from kafka_keyshared.platform.detached_call import Aside

log = log_of("kafka_keyshared.kafka")

K = TypeVar("K")

LATE_AFTER = 1.0
"""Seconds without an answer after which the client lists the brokers, and again after each more."""

LIST_WITHIN = 10.0
"""Seconds for which such a list is waited for, in a thread of its own."""

_QUIET = {"log_level": 2, "enable.metrics.push": False}

_PARENTS: list[Aside[AdminClient] | None] = []
"""Clients kept in a forked child: their destructors would wait for threads it does not have."""


class KeptAdmin:
    """An admin client, kept from the first request to the end; for use by one thread.

    The client sends these requests to the broker that the last list of topics named as controller
    (with KRaft: to any one that was up). It lists topics only when asked to. If that broker is
    away, each request waits for it until its time is over, although other brokers would answer. A
    request that is late therefore lets the client list the topics.

    ``conf`` is the consumer's. A separate thread makes the client, because it waits up to 10 s for
    a token where ``oauth_cb`` is set.
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        self._conf = {**connection_conf(conf), **_QUIET}
        # With a logger its lines would wait for a poll.
        self._conf.pop("logger", None)
        self._made: Aside[AdminClient] | None = None
        self._listing: Aside[None] | None = None
        forks.watch(self)

    def forked(self) -> None:
        """Keep a reference to the parent's client forever."""
        _PARENTS.append(self._made)
        self._made = None

    def ask(self, what: str, send: Callable[[AdminClient], Mapping[K, Future[Any]]]) -> Question[K]:
        """Send a request without waiting. ``what`` names its subject for the log."""
        return Question(self._making(), what, send, self._list_brokers)

    def list_topics(self, *, timeout: float) -> Any:
        """Return all topics with their partitions and leaders, within ``timeout`` seconds.

        The consumer must not be used for this inside its own callbacks
        (:func:`.offset_queries.ask_bounds`). Raises ``KafkaException`` without an answer in time.
        """
        until = time.monotonic() + timeout
        client = self.client(timeout)
        return client.list_topics(timeout=max(0.0, until - time.monotonic()))

    def client(self, timeout: float) -> AdminClient:
        """Return the client. Raise ``KafkaException`` if it is not made in ``timeout`` seconds."""
        made = self._making()
        if not made.wait(timeout):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no admin client in time"))
        return made.result()

    def _making(self) -> Aside[AdminClient]:
        if self._made is None or _failed(self._made):
            self._made = Aside(lambda: AdminClient(self._conf), name="keyshared-admin")
        return self._made

    def _list_brokers(self, client: AdminClient) -> None:
        """Let the client learn the brokers that are up, without waiting for it."""
        if self._listing is not None and not self._listing.over:
            return

        def listed() -> None:
            try:
                client.list_topics(timeout=LIST_WITHIN)
            except KafkaException as error:
                log.debug("no broker lists the topics: %s", error)

        self._listing = Aside(listed, name="keyshared-admin-list")

    def close(self) -> None:
        """Disconnect."""
        self._made = None


def _failed(made: Aside[AdminClient]) -> bool:
    """Return whether making the client failed, for lack of a token or because of its settings."""
    if not made.over:
        return False
    try:
        made.result()
    except (KafkaException, TypeError, ValueError):
        return True
    return False


class Question(Generic[K]):
    """A request that is sent once the client exists, and answered in parts."""

    def __init__(
        self,
        made: Aside[AdminClient],
        what: str,
        send: Callable[[AdminClient], Mapping[K, Future[Any]]],
        late: Callable[[AdminClient], None],
    ) -> None:
        self._made = made
        self._what = what
        self._send = send
        self._late = late
        self._late_at = float("inf")
        self._asked: Mapping[K, Future[Any]] | None = None
        self.begin(0.0)

    def begin(self, timeout: float) -> bool:
        """Send the request if the client exists within ``timeout`` seconds. Return if it does."""
        if self._asked is None and self._made.wait(timeout):
            self._asked = {}
            try:
                admin = self._made.result()
                admin.poll(0)
                self._asked = self._send(admin)
                self._late_at = time.monotonic() + LATE_AFTER
            except (KafkaException, TypeError, ValueError) as error:
                log.debug("%s cannot be asked for: %s", self._what, error)
        return self._asked is not None

    def answers(self, timeout: float) -> dict[K, Any] | None:
        """Return the parts that were answered. Return None while an answer is outstanding.

        A refused part is left out. Waits at most ``timeout`` seconds.
        """
        until = time.monotonic() + timeout
        if not self.begin(timeout) or self._asked is None:
            return None
        answers = self._asked.values()
        now = time.monotonic()
        while wait(answers, max(0.0, min(until, self._late_at) - now)).not_done:
            now = time.monotonic()
            if now >= self._late_at:
                self._late_at = now + LATE_AFTER
                self._late(self._made.result())
            if now >= until:
                return None
        found: dict[K, Any] = {}
        for part, told in self._asked.items():
            error = told.exception()
            if error is None:
                found[part] = told.result()
            else:
                log.debug("%s of %s: no answer: %s", self._what, part, error)
        return found

"""What the client tells of connections, in a few lines: gone, still gone, and back.

It tells of each attempt to reach each broker, several times a second while one is away. A person
wants to know when no broker answers any more, once a minute that this lasts, and when it is over.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from confluent_kafka import KafkaError

from kafka_keyshared.logs import log_of

log = log_of("kafka_keyshared.kafka")

SAME_EVERY = 60.0
"""Seconds after which an error of the same name is told again, and that an outage lasts."""

ASK_FIRST = 1.0
ASK_EVERY = 5.0
ASK_WAIT = 0.1
"""Seconds until a broker is asked whether it answers again, between two such questions, and for
how long the owner waits for the answer."""

CONNECTION = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._ALL_BROKERS_DOWN,
    }
)


class Outages:
    """Tells of the client's errors. ``answers`` says whether a broker answers within a time."""

    def __init__(
        self, answers: Callable[[float], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._answers = answers
        self._clock = clock
        self._told: dict[str, float] = {}
        self._since: float | None = None
        self._ask_at = self._tell_at = 0.0
        self.last_error = ""

    def heard(self, error: KafkaError) -> None:
        """Take an error of the client's, and tell of it if that is news."""
        # That all are down follows the reason, and is none itself.
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.last_error = error.str()
        now = self._clock()
        if error.code() == KafkaError._ALL_BROKERS_DOWN and self._since is None:
            self._since = now
            self._ask_at, self._tell_at = now + ASK_FIRST, now + SAME_EVERY
            log.warning(
                "no broker answers (%s); what is held goes on, and they are tried again and again",
                self.last_error or error.str(),
            )
        elif self._since is not None and error.code() in CONNECTION:
            return  # it is known
        elif now - self._told.get(error.name(), float("-inf")) >= SAME_EVERY:
            self._told[error.name()] = now
            log.log(logging.ERROR if error.fatal() else logging.WARNING, "%s", error.str())

    def look(self) -> None:
        """While no broker answers: ask again if it is time to, and tell how it goes."""
        if self._since is None or (now := self._clock()) < self._ask_at:
            return
        seconds = now - self._since
        self._ask_at = now + ASK_EVERY
        if self._answers(ASK_WAIT):
            self._since = None
            self._told.clear()
            log.warning("a broker answers again, after %.0f s", seconds)
        elif now >= self._tell_at:
            self._tell_at = now + SAME_EVERY
            log.warning(
                "no broker has answered for %.0f s (%s)", seconds, self.last_error or "no reason"
            )

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

ASK_LAST = 0.5
"""Seconds for that answer at the end of the client, which asks only once more."""

CONNECTION = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._ALL_BROKERS_DOWN,
    }
)


def _to_log(level: int, text: str) -> None:
    log.log(level, "%s", text)


class Outages:
    """Tells of the client's errors. ``answers`` says whether a broker answers within a time.

    ``tell`` is told a level of the log and a line. ``meanwhile`` says what becomes of the work.
    ``no_token`` says of a reason why there is no token, None where that is not the trouble.
    """

    def __init__(
        self,
        answers: Callable[[float], bool],
        clock: Callable[[], float] = time.monotonic,
        *,
        tell: Callable[[int, str], None] = _to_log,
        meanwhile: str = "what is held goes on, and they are tried again and again",
        no_token: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        self._answers = answers
        self._clock = clock
        self._tell = tell
        self._meanwhile = meanwhile
        self._no_token = no_token
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
            reason = self._reason(self.last_error or error.str())
            self._tell(logging.WARNING, f"no broker answers ({reason}); {self._meanwhile}")
        elif self._since is not None and error.code() in CONNECTION:
            return  # it is known
        elif now - self._told.get(error.name(), float("-inf")) >= SAME_EVERY:
            self._told[error.name()] = now
            self._tell(logging.ERROR if error.fatal() else logging.WARNING, error.str())

    def look(self) -> None:
        """While no broker answers: ask again if it is time to, and tell how it goes."""
        if self._since is None or (now := self._clock()) < self._ask_at:
            return
        seconds = now - self._since
        self._ask_at = now + ASK_EVERY
        if self._answers(ASK_WAIT):
            self.answered()
        elif now >= self._tell_at:
            self._tell_at = now + SAME_EVERY
            reason = self._reason(self.last_error or "no reason")
            self._tell(logging.WARNING, f"no broker has answered for {seconds:.0f} s ({reason})")

    def patience(self, seconds: float) -> float:
        """Return for how many seconds to wait for a broker: 0.0 while none answers.

        What is known may be :data:`ASK_EVERY` seconds old, so a broker is asked once more. The time
        that takes is part of the ``seconds``.
        """
        if self._since is None:
            return seconds
        began = self._clock()
        if seconds <= 0 or not self._answers(min(ASK_LAST, seconds)):
            return 0.0
        self.answered()
        return seconds - (self._clock() - began)

    def answered(self) -> None:
        """Take note that a broker answers."""
        if (seconds := self.seconds) is not None:
            self._since = None
            self._told.clear()
            self._tell(logging.WARNING, f"a broker answers again, after {seconds:.0f} s")

    def _reason(self, said: str) -> str:
        """Return the reason; without a token no connection is opened, whatever the client says."""
        missing = self._no_token(said)
        return said if missing is None else f"no token: {missing}"

    @property
    def seconds(self) -> float | None:
        """For how long no broker has answered; None while one does."""
        return None if self._since is None else self._clock() - self._since

"""Reports of broker outages: start, duration and end, in few log lines.

While a broker is down, the client reports each connection attempt, several times a second. An
operator needs one line at the start of an outage, one per minute, and one at its end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from confluent_kafka import KafkaError

from kafka_keyshared.logs import log_of

log = log_of("kafka_keyshared.kafka")

SAME_EVERY = 60.0
"""Minimum seconds between two lines about the same error, or about an outage that lasts."""

ASK_FIRST = 1.0
ASK_EVERY = 5.0
ASK_WAIT = 0.1
"""Timing of the checks whether a broker answers again, in seconds.

``ASK_FIRST`` is the delay before the first check, ``ASK_EVERY`` the time between two checks.
``ASK_WAIT`` is the time for which the owner waits for an answer.
"""

ASK_LAST = 0.5
"""Timeout in seconds of the single check when the client closes."""

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


class OutageLog:
    """Logs the client's errors. ``answers`` returns whether a broker answers in time.

    ``tell`` receives a log level and a line. ``meanwhile`` is the part of the line about the work
    that continues. ``no_token`` returns why there is no token, given the client's reason; None if a
    missing token is not the cause.
    """

    def __init__(
        self,
        answers: Callable[[float], bool],
        clock: Callable[[], float] = time.monotonic,
        *,
        tell: Callable[[int, str], None] = _to_log,
        meanwhile: str = "held records still run; the connection is retried",
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
        """Take a client error, and log it if it is new."""
        # "All brokers down" follows the actual reason.
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.last_error = error.str()
        now = self._clock()
        if error.code() == KafkaError._ALL_BROKERS_DOWN and self._since is None:
            self._since = now
            self._ask_at, self._tell_at = now + ASK_FIRST, now + SAME_EVERY
            reason = self._reason(self.last_error or error.str())
            self._tell(logging.WARNING, f"no broker answers ({reason}); {self._meanwhile}")
        elif self._since is not None and error.code() in CONNECTION:
            return  # already logged
        elif now - self._told.get(error.name(), float("-inf")) >= SAME_EVERY:
            self._told[error.name()] = now
            self._tell(logging.ERROR if error.fatal() else logging.WARNING, error.str())

    def look(self) -> None:
        """While no broker answers, check again when it is time and log the state."""
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
        """Return the seconds to wait for a broker: 0.0 while none answers.

        The known state may be :data:`ASK_EVERY` seconds old, so one more check is made. The time it
        takes is part of the ``seconds``.
        """
        if self._since is None:
            return seconds
        began = self._clock()
        if seconds <= 0 or not self._answers(min(ASK_LAST, seconds)):
            return 0.0
        self.answered()
        return seconds - (self._clock() - began)

    def answered(self) -> None:
        """Note that a broker answers."""
        if (seconds := self.seconds) is not None:
            self._since = None
            self._told.clear()
            self._tell(logging.WARNING, f"a broker answers again, after {seconds:.0f} s")

    def _reason(self, said: str) -> str:
        """Return the reason.

        Without a token no connection opens, regardless of the client's error.
        """
        missing = self._no_token(said)
        return said if missing is None else f"no token: {missing}"

    @property
    def seconds(self) -> float | None:
        """Seconds since any broker answered. None while one does."""
        return None if self._since is None else self._clock() - self._since

"""The messages and the timeout of a verb during a broker outage."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException

from kafka_keyshared.client.connection_log import ASK_WAIT, OutageLog
from kafka_keyshared.dlq.read_timeout import ReadTimeout

CREDIBLE = 1.0
"""Seconds without data before a client's report of an outage is checked.

Data that the client had received before comes after its report.
"""

AFTER_STOP = 20.0
"""Seconds of waiting for data in flight after the user has requested a stop."""

LONGEST = 600.0
"""Maximum seconds of an outage until a verb gives up."""


class Away(ReadTimeout):
    """Tolerates outages of up to :data:`LONGEST` seconds, and reports their begin and end.

    Several clients report their errors, one of them from its own thread. ``asks`` is the client
    that queries whether a broker answers again.
    """

    def __init__(
        self, note: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(clock)
        self._lock = threading.Lock()
        self.asks: Consumer | None = None
        self._stopped_at: float | None = None
        # A client's report of a possible outage, and the time since which no data came. The client
        # reports it once until it is connected again. Therefore only an answer clears the report.
        self._claim: tuple[KafkaError, float] | None = None
        self._outages = OutageLog(
            self._answers,
            clock,
            tell=lambda _level, text: note(text),
            meanwhile=f"trying for up to {LONGEST / 60:g} minutes; press Ctrl-C to stop",
        )

    def heard(self, error: KafkaError) -> None:
        """Process a client's error; only an outage is worth a message to the user."""
        with self._lock:
            if error.code() == KafkaError._ALL_BROKERS_DOWN:
                self._claim = self._claim or (error, self._clock())
            else:
                self._outages.last_error = error.str()

    def came(self) -> None:
        """Note that data came, which ends a reported outage."""
        super().came()
        with self._lock:
            self._outages.answered()
            if self._claim is not None:
                self._claim = self._claim[0], self._clock()

    def stop(self) -> None:
        """Note that the user has requested a stop."""
        self._stopped_at = self._stopped_at or self._clock()

    def over(self) -> str | None:
        """Return the reason for giving up; None while waiting is worthwhile."""
        if self._stopped_at is not None and self._clock() - self._stopped_at > AFTER_STOP:
            return f"no answer within {AFTER_STOP:g} s after the stop"
        with self._lock:
            self._judge_claim()
            was_away = self._outages.seconds is not None
            self._outages.look()
            seconds = self._outages.seconds
        if seconds is None:
            if was_away:
                self._claim = None
                self.began()
            return super().over()
        reason = self._outages.last_error
        return f"no broker answered for {seconds:.0f} s ({reason})" if seconds > LONGEST else None

    def _judge_claim(self) -> None:
        """Report the outage that a client has claimed, unless a broker answers a query.

        Each of several clients claims it when it finds out, some after the outage is over.
        """
        if self._claim is None or self._clock() - self._claim[1] < CREDIBLE:
            return
        if self._outages.seconds is None and self._answers(ASK_WAIT):
            self._claim = None
        else:
            self._outages.heard(self._claim[0])

    def _answers(self, timeout: float) -> bool:
        if self.asks is None:
            return False
        try:
            self.asks.list_topics(timeout=timeout)
        except (KafkaException, RuntimeError):
            return False
        return True

"""What a verb says while no broker answers, and how long it bears that."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException

from kafka_keyshared.client.outage import Outages
from kafka_keyshared.dlq.patience import Patience

CREDIBLE = 1.0
"""Seconds in which nothing comes until a client is believed that no broker answers: what it had
received comes after it has said so."""

AFTER_STOP = 20.0
"""Seconds for which what is on its way is waited for once somebody wants the end."""

SETTLES = 10.0
"""Seconds after an outage in which other clients of the verb may still tell of it."""

LONGEST = 600.0
"""Seconds that an outage may last until a verb gives up."""


class Away(Patience):
    """Bears an outage for :data:`LONGEST` seconds, and says when it begins, lasts and ends.

    Several clients tell it what they hear, one of them from a thread of its own. ``asks`` is the
    one that is asked whether a broker answers again.
    """

    def __init__(
        self, note: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(clock)
        self._lock = threading.Lock()
        self.asks: Consumer | None = None
        self._stopped_at: float | None = None
        self._back_at = float("-inf")
        # What a client has said of an outage that may be one, and when.
        self._claim: tuple[KafkaError, float] | None = None
        self._outages = Outages(
            self._answers,
            clock,
            tell=lambda _level, text: note(text),
            meanwhile=f"trying for up to {LONGEST / 60:g} minutes; Ctrl-C ends it",
        )

    def heard(self, error: KafkaError) -> None:
        """Take an error of a client's; only that nobody answers is news to a person here."""
        with self._lock:
            if error.code() == KafkaError._ALL_BROKERS_DOWN:
                now = self._clock()
                if self._claim is None and now - self._back_at > SETTLES:
                    self._claim = error, now
            else:
                self._outages.last_error = error.str()

    def came(self) -> None:
        """Take note that something came, which ends an outage."""
        super().came()
        with self._lock:
            self._claim = None
            if self._outages.seconds is not None:
                self._back_at = self._clock()
                self._outages.answered()

    def stop(self) -> None:
        """Take note that somebody wants the end."""
        self._stopped_at = self._stopped_at or self._clock()

    def over(self) -> str | None:
        """Return why not to wait any longer; None while it is worth it."""
        if self._stopped_at is not None and self._clock() - self._stopped_at > AFTER_STOP:
            return f"no answer within {AFTER_STOP:g} s after the stop"
        with self._lock:
            if self._claim is not None and self._clock() - self._claim[1] >= CREDIBLE:
                self._outages.heard(self._claim[0])
            was_away = self._outages.seconds is not None
            self._outages.look()
            seconds = self._outages.seconds
        if seconds is None:
            if was_away:
                self._back_at = self._clock()
                self._claim = None
                self.began()
            return super().over()
        reason = self._outages.last_error
        return f"no broker answered for {seconds:.0f} s ({reason})" if seconds > LONGEST else None

    def _answers(self, timeout: float) -> bool:
        if self.asks is None:
            return False
        try:
            self.asks.list_topics(timeout=timeout)
        except (KafkaException, RuntimeError):
            return False
        return True

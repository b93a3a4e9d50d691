"""What a verb says while no broker answers, and how long it bears that."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException

from kafka_keyshared.client.outage import ASK_WAIT, Outages
from kafka_keyshared.dlq.patience import Patience

CREDIBLE = 1.0
"""Seconds in which nothing comes until it is looked into whether no broker answers, as a client has
said: what it had received comes after it has said so."""

AFTER_STOP = 20.0
"""Seconds for which what is on its way is waited for once somebody wants the end."""

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
        # What a client has said of an outage that may be one, and since when nothing has come. It
        # says so once, until it has been connected again: nothing but an answer is a reason to
        # forget it.
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
                self._claim = self._claim or (error, self._clock())
            else:
                self._outages.last_error = error.str()

    def came(self) -> None:
        """Take note that something came, which ends an outage that was told."""
        super().came()
        with self._lock:
            self._outages.answered()
            if self._claim is not None:
                self._claim = self._claim[0], self._clock()

    def stop(self) -> None:
        """Take note that somebody wants the end."""
        self._stopped_at = self._stopped_at or self._clock()

    def over(self) -> str | None:
        """Return why not to wait any longer; None while it is worth it."""
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
        """Tell of the outage that a client has claimed, unless a broker answers all the same.

        Of several clients each says so when it finds out, some when it is over.
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

"""Sees to it that whoever asks for beats hears of a stop, before there is nobody left to answer.

In a topic a last word stays; an address that answers no more may be one that was killed. So an
instance that stops goes on to answer until all who have asked lately have heard it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from kafka_keyshared.web.group.beat import Beat

LATELY = 6.0
"""Seconds after its last question in which one that asks every 2 s asks again, if it is there."""
WITHIN = 4.0
"""Seconds for which a stop waits at most; to whoever has not asked by then it is silent."""
MOST = 200
"""Askers that are kept."""

_LOOK_EVERY = 0.1


class Farewell:
    """Who has asked for beats, and has not heard that there will be no more. Any thread may call.

    ``clock`` is monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._asked_at: dict[str, float] = {}

    def answered(self, asker: str, beat: Beat | None) -> None:
        """Take note of a question, and of what was answered."""
        if not asker:
            return  # not an instance that will ask again
        with self._changed:
            self._asked_at.pop(asker, None)
            if beat is None or beat.phase not in {"stopping", "stopped"}:
                self._asked_at[asker] = self._clock()
                if len(self._asked_at) > MOST:
                    del self._asked_at[next(iter(self._asked_at))]
            self._changed.notify_all()

    def wait(self, over: Callable[[], bool]) -> None:
        """Wait until all who ask have heard of the stop, or until ``over`` says to wait no more."""
        until = self._clock() + WITHIN
        with self._changed:
            while self._unaware() and self._clock() < until and not over():
                self._changed.wait(_LOOK_EVERY)

    def _unaware(self) -> bool:
        since = self._clock() - LATELY
        return any(at > since for at in self._asked_at.values())

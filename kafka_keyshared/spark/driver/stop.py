"""What ends a run from outside: SIGTERM and Ctrl-C, or whoever calls :meth:`Stop.ask`."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.logs import log_of
from kafka_keyshared.spark.driver.group import SoleMember

log = log_of("kafka_keyshared.spark")

GIVEN_UP = (
    "stopped twice: the batch that ran is given up; who goes on runs again what it has not "
    "committed"
)


AGAIN_AFTER = 1.0
"""Seconds after the first request before another one counts as a second request. GNU ``timeout``
signals its child twice within milliseconds: once directly, once through the process group."""


class Stop:
    """Asked once, a run ends after the current batch; asked again, it gives that batch up.

    A request within :data:`AGAIN_AFTER` of the first one is a repetition of the first. ``clock`` is
    monotonic, in seconds.

    It may be asked in a signal's handler: nothing there waits for a lock, which the code that was
    interrupted might hold.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.asked = False
        self._clock = clock
        self._first = 0.0
        self._heard: SimpleQueue[None] = SimpleQueue()
        self._tell: Callable[[bool], None] = lambda _: None

    def ask(self) -> None:
        """Ask for the end."""
        now, again = self._clock(), self.asked
        if again and now - self._first < AGAIN_AFTER:
            return
        if not again:
            self._first, self.asked = now, True
        self._heard.put(None)
        self._tell(again)

    def wait(self, timeout: float) -> bool:
        """Return once it is asked, or after so many seconds; say whether it is."""
        if not self.asked:
            with suppress(Empty):
                self._heard.get(timeout=timeout)
        return self.asked

    def ends(self, member: SoleMember) -> SoleMember:
        """Return this member: from now on it says what happens, and ends it when asked again.

        Both take place in the thread that polls.
        """

        def tell(again: bool) -> None:
            if again:
                member.post(lambda: member.fail(KeySharedError(GIVEN_UP)))
            else:
                member.post(
                    lambda: log.info(
                        "stopping: a batch that runs is ended and committed first; stop it once "
                        "more to give that up"
                    )
                )

        self._tell = tell
        return member

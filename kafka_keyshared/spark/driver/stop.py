"""Stop requests for a run: SIGTERM, Ctrl-C, or :meth:`Stop.ask`."""

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
    "stopped twice: the running batch is given up; the next owner runs its uncommitted "
    "records again"
)


AGAIN_AFTER = 1.0
"""Seconds after the first request before another one counts as a second request.

GNU ``timeout`` signals its child twice within milliseconds: once directly, once through the process
group.
"""


class Stop:
    """Stops a run after the current batch; a second request aborts that batch.

    A request within :data:`AGAIN_AFTER` of the first one is a repetition of the first. ``clock`` is
    monotonic, in seconds.

    A signal handler may call it. Therefore no call waits for a lock, which the interrupted code
    might hold.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.asked = False
        self._clock = clock
        self._first = 0.0
        self._heard: SimpleQueue[None] = SimpleQueue()
        self._tell: Callable[[bool], None] = lambda _: None

    def ask(self) -> None:
        """Request the end of the run."""
        now, again = self._clock(), self.asked
        if again and now - self._first < AGAIN_AFTER:
            return
        if not again:
            self._first, self.asked = now, True
        self._heard.put(None)
        self._tell(again)

    def wait(self, timeout: float) -> bool:
        """Wait for a request, at most ``timeout`` seconds; return whether there was one."""
        if not self.asked:
            with suppress(Empty):
                self._heard.get(timeout=timeout)
        return self.asked

    def ends(self, member: SoleMember) -> SoleMember:
        """Connect a member: log the first request, and end the membership on the second.

        Both happen in the polling thread. Returns the member.
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

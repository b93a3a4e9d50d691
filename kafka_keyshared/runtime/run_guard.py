"""The end of a run within the stop timeout.

The owner runs on its own thread and ends the run step by step (:mod:`.shutdown`). The caller of
``run()`` waits without a limit until a stop is requested. Then it waits for the stop timeout plus a
grace period. After that it abandons the owner, logs where the owner is stuck, and ``run()``
returns. The owner may hang in the client's ``close()`` or in a user callback.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from queue import Empty
from typing import Any

from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.executors.mailbox import Mailbox
from kafka_keyshared.logs import log_of
from kafka_keyshared.platform.detached_call import Aside
from kafka_keyshared.platform.forks import refuse_in_child
from kafka_keyshared.runtime.instance import Instance
from kafka_keyshared.runtime.shutdown import (
    TELL_EVERY,
    TELL_FIRST,
    StopReport,
    tell_wait,
    unfinished,
)
from kafka_keyshared.runtime.standstill import StandstillWatch

log = log_of("kafka_keyshared.stop")

GRACE = 1.0
"""Seconds beyond the stop timeout, for the last commit, leaving the group and the final line."""

HURRY = 0.7
"""Seconds that the owner gets after the second signal.

With the final line and the exit the total is below one second.
"""

HANDLER_CLOSE_TIMEOUT = 5.0
"""Seconds that handlers get for their own ``close()``, within the stop timeout."""

HANDLER_CLOSE_LEAST = 0.2

LEAVE_UNHEARD = 2.0
"""Seconds that ``close()`` gets when no broker answered at the end, so a longer wait is useless."""

LEAVE_LEAST = 0.3
"""Minimum seconds that ``close()`` gets. With a reachable broker it takes some milliseconds."""

CALLBACK_SLOW = 5.0
"""Seconds after which a running user callback is named in the log while the instance runs."""

LOOK_AGAIN = 1.0
"""Seconds between checks while waiting.

After this time a signal that the system delivered to another thread is noticed. The loops of a
split consumer notice the end of their instance after the same time.
"""


class Ending:
    """The stop requests of one run and the progress of its end. Times are monotonic, in seconds.

    The owner reports its progress and calls :meth:`over`. Its caller waits in :meth:`run`. Any
    thread may :meth:`ask` for the stop.
    """

    def __init__(
        self,
        timeout: float,
        clock: Callable[[], float],
        before: Aside[int] | None = None,
    ) -> None:
        self._timeout = timeout
        self._clock = clock
        self._before = before
        self._owner: Aside[int] | None = None
        self._bell: Mailbox[None] = Mailbox()
        self._taken = threading.Lock()
        self._pid = os.getpid()
        self._started = float("-inf")
        self._began: float | None = None
        self._hurried: float | None = None
        self._leave_by: float | None = None
        # The user callbacks that the owner is inside, each with its call time.
        self._calls: list[tuple[str, float]] = []
        self._tell_at: float | None = None
        self.standstill = StandstillWatch(clock)
        self.asked = 0
        self.given_up = False
        # Progress reported by the owner: its instance, the stop report, and the error that ended
        # it.
        self.instance: Instance | None = None
        self.report: StopReport | None = None
        self.error: BaseException | None = None
        # The member has stopped, but the coordinator may still keep it.
        self.pending = False

    @property
    def clean(self) -> bool:
        """Return whether the instance has stopped cleanly."""
        return self.report is not None and self.report.clean

    # --- any thread ---

    def ask(self) -> None:
        """Request the stop, from any thread or a signal handler. A second request hurries it."""
        self.asked += 1
        if self.asked > 1:
            self._hurried = self._hurried or self._clock()
        self.begin()

    def begin(self) -> None:
        """Start the stop timeout, if it is not running yet."""
        if self._began is None:
            self._began = self._clock()
        self._bell.put(None)

    def take(self) -> None:
        """Claim this run for the caller. Raise :class:`ConfigError` if it is already claimed."""
        if not self._taken.acquire(blocking=False):
            refuse_in_child(self._pid, "run()")
            raise ConfigError(
                "run(): the app runs already, on another thread; wait until that has returned, or "
                "make another app"
            )
        self._pid = os.getpid()

    # --- the owner ---

    def over(self) -> bool:
        """Return whether to stop waiting: after a second signal or past the deadline."""
        return self._hurried is not None or self.left() <= 0

    def left(self) -> float:
        """Return how many seconds of the stop timeout are left."""
        if self._began is None:
            return self._timeout
        return max(self._began, self._started) + self._timeout - self._clock()

    def finish(self, instance: Instance) -> int:
        """Stop the instance and its pool; return the exit status."""
        self.begin()
        ports = instance.ports
        self.report = report = instance.stop(self.left(), lambda: self.asked > 1)
        if ports.publisher is not None:
            ports.publisher.close(0.0)
        patience = HANDLER_CLOSE_TIMEOUT if report.clean else HANDLER_CLOSE_LEAST
        running = ports.pool.stop(min(patience, max(HANDLER_CLOSE_LEAST, self.left())))
        if running:
            log.error("handlers still running at exit: %s", ", ".join(running))
        return 0 if report.clean and instance.halted is None and not running else 1

    def leaving(self, error: BaseException | None = None) -> float:
        """Note that the client is being closed. ``error`` is the exception that ended the run.

        Return for how many seconds the client may wait for the answer to a JoinGroup.
        """
        self.error = self.error or error
        self.begin()
        left = max(LEAVE_LEAST, self.left())
        if self.report is None or not self.report.heard:
            left = min(left, LEAVE_UNHEARD)
        self._leave_by = self._clock() + left
        self._bell.put(None)
        halted = self.instance is not None and self.instance.halted is not None
        return 0.0 if halted or self._hurried else max(0.0, left - LEAVE_LEAST)

    def left_group(self, *, left: bool) -> None:
        """Note whether the member left the group.

        The coordinator may keep a member whose JoinGroup was not answered.
        """
        self.pending = not left

    def among(self, users: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
        """Wrap the user's callbacks. Each may use the whole stop timeout, also while leaving."""

        def watched(name: str, callback: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any) -> None:
                with self._in_callback(name):
                    callback(*arguments)

            return call

        return {name: watched(name, callback) for name, callback in users.items()}

    @contextmanager
    def _in_callback(self, name: str) -> Iterator[None]:
        self._calls.append((name, self._clock()))
        self._bell.put(None)
        try:
            yield
        finally:
            if self._leave_by is not None:
                self._leave_by = max(self._leave_by, self._clock() + LEAVE_LEAST)
            name, since = self._calls.pop()
            self.standstill.called(name, self._clock() - since)

    # --- the caller of run() ---

    def give_up_at(self) -> float:
        """Return the time at which the caller stops waiting for the owner."""
        if self._began is None:
            return float("inf")
        at = max(self._began, self._started) + self._timeout + GRACE
        if self._leave_by is not None and not self._calls:
            at = min(at, self._leave_by)
        if self._hurried is not None:
            at = min(at, max(self._hurried, self._started) + HURRY)
        return at

    def run(self, work: Callable[[], int]) -> int:
        """Run the owner's ``work`` until it ends or is abandoned; return the exit status.

        The final log line is written here, once the result of the stop is known. Raises the error
        that ended the owner. Raises :class:`KeySharedError` while an earlier run has not returned.
        """
        if self._before is not None and not self._before.over:
            raise KeySharedError(
                f"run(): the run before was given up on and is still in {self._before.where()}; "
                "make another app, or end the program"
            )
        self._started = self._clock()
        owner = Aside(work, name="keyshared-owner", ended=lambda: self._bell.put(None))
        self._owner = owner
        try:
            self.given_up = not self._wait(owner)
        except BaseException:
            self.ask()
            self.ask()
            raise
        self._tell(owner.where() if self.given_up else "")
        if not self.given_up:
            return owner.result() or int(self.pending)
        if self.error is not None:
            raise self.error
        return 1

    def next(self) -> Ending:
        """Return the ending of another run of the same app."""
        return Ending(self._timeout, self._clock, self._owner if self.given_up else self._before)

    def _wait(self, owner: Aside[int]) -> bool:
        while not owner.over:
            left = self.give_up_at() - self._clock()
            if left <= 0:
                return False
            self._tell_call(owner, left)
            if self._began is None:
                self.standstill.look(owner.where, told=bool(self._calls))
            with suppress(Empty):
                self._bell.get(timeout=min(left, LOOK_AGAIN))
        return True

    def _tell_call(self, owner: Aside[int], left: float) -> None:
        """Log at intervals which call the owner does not return from.

        While it drains and commits, the owner logs its own waits. Inside a user callback, and while
        the client leaves the group, it cannot.
        """
        now = self._clock()
        stopping = self._began is not None
        called = self._calls[-1:]  # a copy: the owner may return at this moment
        if not called and self._leave_by is None:
            self._tell_at = None
            return
        if self._tell_at is None:
            self._tell_at = now + (TELL_FIRST if stopping else CALLBACK_SLOW)
        if now < self._tell_at:
            return
        self._tell_at = now + TELL_EVERY
        what = "the client to leave the group"
        if called:
            ((name, since),) = called
            what = f"your {name} callback ({now - since:.0f} s so far, in {owner.where()})"
        if stopping:
            tell_wait(left, what)
        else:
            log.warning("waiting for %s: nothing is polled or committed", what)

    def _tell(self, stuck: str) -> None:
        """Write the final line. ``stuck`` is where the abandoned owner is, or empty."""
        now = self._clock()
        seconds = now - max(now if self._began is None else self._began, self._started)
        if self.report is not None:
            self.report = replace(self.report, seconds=seconds, stuck=stuck, pending=self.pending)
        elif stuck:
            self.report = unfinished(self.instance.loop if self.instance else None, seconds, stuck)
        if self.report is not None:
            level = logging.INFO
            if stuck:
                level = logging.ERROR
            elif self.pending:
                level = logging.WARNING
            log.log(level, "%s", self.report.line())

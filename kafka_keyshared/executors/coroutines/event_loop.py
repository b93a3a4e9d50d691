"""Hosts of event loops: a thread of its own, or the caller's."""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from kafka_keyshared.executors.coroutines.daemon_threads import DaemonThreads
from kafka_keyshared.logs import log_of
from kafka_keyshared.platform.reentry_guard import handling
from kafka_keyshared.platform.stack_frames import stack_of, standing

log = log_of("kafka_keyshared.pool")

END_PATIENCE = 1.0
"""Seconds that tasks of the user's code have to end after they are cancelled."""

LOOK_AGAIN = 1.0
"""Seconds between two checks whether the owner of the caller's loop has closed it."""


class Host(Protocol):
    """Runs an event loop, and the calls that other threads schedule on it."""

    @property
    def alive(self) -> bool:
        """Return whether the loop runs or will run."""

    def start(self) -> None:
        """Run the loop, unless the caller runs it; also again after it has ended."""

    def tell(self, what: Callable[[], object]) -> None:
        """Schedule a call on the loop, in the order of these calls; from any thread.

        An ended loop ignores it.
        """

    def wait(self, event: threading.Event, timeout: float | None = None) -> bool:
        """Wait on the owner's thread for an event that the loop will set."""

    def standing(self) -> str:
        """Return the place of the loop's thread in the user's program, "" if it is in none."""

    def stack(self) -> str:
        """Return the call stack of the loop's thread, as lines of text."""

    def close(self) -> None:
        """End the loop, unless the caller runs it."""


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop, from uvloop if it is installed."""
    try:
        uvloop: Any = importlib.import_module("uvloop")
    except ImportError:
        return asyncio.new_event_loop()
    found: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return found


class OwnLoop:
    """An event loop on a thread of its own. See :class:`Host`.

    User code on the loop cannot end the loop or its thread. A handler that calls ``loop.stop()``
    would otherwise stop all others.
    """

    def __init__(self, name: str = "keyshared-asyncio") -> None:
        self._name = name
        self._closing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def alive(self) -> bool:
        """Return whether its thread is alive."""
        return self._thread is not None and self._thread.is_alive() and not self._closing

    def start(self) -> None:
        """Start the thread, with a new loop."""
        self._closing = False
        self._loop = loop = new_loop()
        loop.set_default_executor(DaemonThreads(f"{self._name}-thread"))
        self._thread = threading.Thread(target=self._run, args=(loop,), name=self._name)
        self._thread.daemon = True
        self._thread.start()

    def tell(self, what: Callable[[], object]) -> None:
        """Schedule a call on the loop."""
        with suppress(RuntimeError):  # it is closed
            if self._loop is not None:
                self._loop.call_soon_threadsafe(what)

    def wait(self, event: threading.Event, timeout: float | None = None) -> bool:
        """Wait for the event."""
        return event.wait(timeout)

    def standing(self) -> str:
        """Return the place of its thread."""
        ident = None if self._thread is None else self._thread.ident
        return "" if ident is None else standing(ident)

    def stack(self) -> str:
        """Return the call stack of its thread."""
        ident = None if self._thread is None else self._thread.ident
        return "" if ident is None else stack_of(ident)

    def close(self) -> None:
        """Ask the thread to end at the loop's next turn, without waiting for it."""
        self._closing = True
        loop = self._loop
        if loop is not None:
            self.tell(loop.stop)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        with handling():
            while not self._closing:
                try:
                    loop.run_forever()
                except BaseException:
                    # From a task that a handler started and did not await, such as sys.exit()
                    # there.
                    log.exception("the event loop: a task that a handler left would have ended it")
            end_tasks(loop)
        loop.close()


class CallersLoop:
    """The running event loop of the caller, on the caller's thread. See :class:`Host`.

    The caller runs and closes it. Once it is closed, nothing runs on it any more, and the pool has
    lost its workers.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    @property
    def alive(self) -> bool:
        """Return whether the loop can still run."""
        return not self._loop.is_closed()

    def start(self) -> None:
        """Do nothing: the caller runs the loop."""

    def tell(self, what: Callable[[], object]) -> None:
        """Schedule a call on the loop."""
        with suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(what)

    def wait(self, event: threading.Event, timeout: float | None = None) -> bool:
        """Wait for the event; without a timeout, wait as long as the loop can still run."""
        if timeout is not None:
            return event.wait(timeout)
        while self.alive:
            if event.wait(LOOK_AGAIN):
                return True
        return event.is_set()

    def standing(self) -> str:
        """Return the place of the caller's thread."""
        return standing(self._thread)

    def stack(self) -> str:
        """Return the call stack of the caller's thread."""
        return stack_of(self._thread)

    def close(self) -> None:
        """Do nothing: the caller continues to use the loop."""


def end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the remaining tasks of the loop, and give them a moment to end."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=END_PATIENCE))
    loop.run_until_complete(loop.shutdown_asyncgens())

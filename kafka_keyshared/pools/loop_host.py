"""Where coroutines run: an event loop on a thread of its own, or the one that the caller runs."""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from kafka_keyshared.logs import log_of
from kafka_keyshared.pools.daemon_threads import DaemonThreads
from kafka_keyshared.program.importing import handling
from kafka_keyshared.program.whose import stack_of, standing

log = log_of("kafka_keyshared.pool")

END_PATIENCE = 1.0
"""Seconds for what the user's code has left on the loop to end once it is cancelled."""

LOOK_AGAIN = 1.0
"""Seconds after which who waits for a loop looks whether its owner has closed it."""


class Host(Protocol):
    """Runs an event loop, and what others have it call."""

    @property
    def alive(self) -> bool:
        """Say whether the loop still runs, or will."""

    def start(self) -> None:
        """Run the loop, if it is this one's to run; also anew, after it has ended."""

    def tell(self, what: Callable[[], object]) -> None:
        """Have the loop call this soon, in the order of the telling; from any thread.

        What an ended loop is told comes to nothing.
        """

    def wait(self, event: threading.Event, timeout: float | None = None) -> bool:
        """Wait, on the owner's thread, for what the loop is to set."""

    def standing(self) -> str:
        """Return where in the user's program the loop's thread is now; nothing where in none."""

    def stack(self) -> str:
        """Return the calls that the loop's thread is in, as lines of text."""

    def close(self) -> None:
        """End the loop, if it is this one's to end."""


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop: uvloop's, where that is installed."""
    try:
        uvloop: Any = importlib.import_module("uvloop")
    except ImportError:
        return asyncio.new_event_loop()
    found: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return found


class OwnLoop:
    """An event loop on a thread of its own. See :class:`Host`.

    Whatever the user's code on the loop does ends neither: a handler that calls ``loop.stop()``
    would stop every other one.
    """

    def __init__(self, name: str = "keyshared-asyncio") -> None:
        self._name = name
        self._closing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def alive(self) -> bool:
        """Say whether its thread lives."""
        return self._thread is not None and self._thread.is_alive() and not self._closing

    def start(self) -> None:
        """Start the thread, with a loop of its own."""
        self._closing = False
        self._loop = loop = new_loop()
        loop.set_default_executor(DaemonThreads(f"{self._name}-thread"))
        self._thread = threading.Thread(target=self._run, args=(loop,), name=self._name)
        self._thread.daemon = True
        self._thread.start()

    def tell(self, what: Callable[[], object]) -> None:
        """Have the loop call it soon."""
        with suppress(RuntimeError):  # it is closed
            if self._loop is not None:
                self._loop.call_soon_threadsafe(what)

    def wait(self, event: threading.Event, timeout: float | None = None) -> bool:
        """Wait for the event."""
        return event.wait(timeout)

    def standing(self) -> str:
        """Return where its thread is."""
        ident = None if self._thread is None else self._thread.ident
        return "" if ident is None else standing(ident)

    def stack(self) -> str:
        """Return the calls that its thread is in."""
        ident = None if self._thread is None else self._thread.ident
        return "" if ident is None else stack_of(ident)

    def close(self) -> None:
        """Let the thread end, when the loop comes to it; nobody waits for it."""
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
                    # Of a task that a handler has started and left to itself: sys.exit() there.
                    log.exception("what a handler left on the event loop would have ended it")
            end_tasks(loop)
        loop.close()


class CallersLoop:
    """The event loop of whoever makes this, on its thread. See :class:`Host`.

    It is theirs to run and to close. Once it is closed nothing runs on it any more, and the pool
    has lost its worker.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    @property
    def alive(self) -> bool:
        """Say whether the loop may turn again."""
        return not self._loop.is_closed()

    def start(self) -> None:
        """Do nothing: the caller runs it."""

    def tell(self, what: Callable[[], object]) -> None:
        """Have the loop call it soon."""
        with suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(what)

    def wait(self, event: threading.Event, timeout: float | None = None) -> bool:
        """Wait for the event, without a timeout as long as the loop may turn."""
        if timeout is not None:
            return event.wait(timeout)
        while self.alive:
            if event.wait(LOOK_AGAIN):
                return True
        return event.is_set()

    def standing(self) -> str:
        """Return where the caller's thread is."""
        return standing(self._thread)

    def stack(self) -> str:
        """Return the calls that the caller's thread is in."""
        return stack_of(self._thread)

    def close(self) -> None:
        """Do nothing: it goes on for the caller."""


def end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what is left on the loop, and give it a moment to see to that."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=END_PATIENCE))
    loop.run_until_complete(loop.shutdown_asyncgens())

"""Protection of forked children of a running instance.

A child must never go on as a worker or as the owner. ``os.fork`` copies only the calling thread. In
the child of a handler that thread is a worker with half a slice left. If the handler returned
there, the worker would run records that the parent runs too, report to no owner, and never end. A
child that calls ``exec`` or ``os._exit``, as those of ``subprocess`` and ``multiprocessing`` do,
never returns.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn, Protocol
from weakref import WeakSet

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.logs import log_of

log = log_of("kafka_keyshared.fork")


IN_OWNER = "a callback or a key function"
"""Where the owner runs user code."""


class Forked(Protocol):
    """An object that must change in the child of a fork."""

    def forked(self) -> None:
        """Change for the child, before any other code runs there."""


_watching: WeakSet[Forked] = WeakSet()


def watch(thing: Forked) -> None:
    """Call ``forked`` of the object in each process that is forked from this one."""
    _watching.add(thing)


def _tell() -> None:
    for thing in list(_watching):
        thing.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tell)


@contextmanager
def ends_here(what: str) -> Iterator[Callable[[], bool]]:
    """End a process that was forked in the block when it leaves the block in any way.

    Yields a function that returns whether this is such a process.
    """
    pid = os.getpid()

    def in_child() -> bool:
        return os.getpid() != pid

    try:
        yield in_child
    finally:
        if in_child():
            end_child(what, sys.exception())


def refuse_in_child(of: int, call: str) -> None:
    """Raise :class:`ConfigError` in any process except the one of this id, which runs the app.

    Elsewhere the client has none of its threads, and no call would be answered.
    """
    if os.getpid() != of:
        raise ConfigError(
            f"{call}: the app runs in process {of}, and this one was forked from it: a Kafka "
            "client does not live on in a child; make an app of its own here, or start the "
            "process with spawn"
        )


class StaysWithParent:
    """Replaces the parent's object in a forked child; any use of it ends the child.

    ``error`` returns the exception with which the child's code left ``what``.
    """

    def __init__(self, what: str, error: Callable[[], BaseException | None]) -> None:
        self._what = what
        self._error = error

    def __getattr__(self, name: str) -> NoReturn:
        end_child(self._what, self._error())


def end_child(what: str, error: BaseException | None) -> NoReturn:
    """End this process, which was forked in ``what``, with the status its code wants.

    ``sys.exit(status)`` sets the status. Returning, or any other exception, is an error of the code
    that forked. It is logged, and the status is 1. Nothing of the parent is closed: its client,
    sockets and exit functions do not belong to this process.
    """
    status = 1
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            status = error.code or 0
        else:
            log.error("a process forked in %s ended: %s", what, error.code)
    elif error is None:
        log.error(
            "a process forked in %s came back from it and ends here: let the child end by itself, "
            "with os._exit(status)",
            what,
        )
    else:
        log.error("a process forked in %s ends here, by an exception: ", what, exc_info=error)
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError, OSError):  # None, closed, or a broken pipe
            stream.flush()
    os._exit(status & 0xFF)

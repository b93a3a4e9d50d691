"""A process that is forked from a running instance: it never goes on as a worker or as the owner.

``os.fork`` copies the thread that calls it and no other. In the child of a handler that thread is a
worker with half a slice before it; were it to come back from the handler it would run records that
its parent runs too, report to nobody, and never end. A child that replaces itself (``exec``) or
ends by ``os._exit``, as those of ``subprocess`` and ``multiprocessing`` do, never comes back.
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
"""Where the owner runs code of the user's."""


class Forked(Protocol):
    """What has to change in the child of a fork."""

    def forked(self) -> None:
        """Be told, in the child, before any of its code runs."""


_watching: WeakSet[Forked] = WeakSet()


def watch(thing: Forked) -> None:
    """Tell it in each process that is forked from this one."""
    _watching.add(thing)


def _tell() -> None:
    for thing in list(_watching):
        thing.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tell)


@contextmanager
def ends_here(what: str) -> Iterator[Callable[[], bool]]:
    """End a process that is forked in the block and comes out of it, in whatever way.

    Gives what says whether this is such a process.
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
    """Raise :class:`ConfigError` in any process but the one where the app runs, by its id.

    There the client has none of its threads, and nobody answers.
    """
    if os.getpid() != of:
        raise ConfigError(
            f"{call}: the app runs in process {of}, and this one was forked from it: a Kafka "
            "client does not live on in a child; make an app of its own here, or start the "
            "process with spawn"
        )


class StaysWithParent:
    """Stands in the child for what is its parent's: whoever in there uses it ends the child.

    ``error`` gives the exception with which the child's code came out of ``what``.
    """

    def __init__(self, what: str, error: Callable[[], BaseException | None]) -> None:
        self._what = what
        self._error = error

    def __getattr__(self, name: str) -> NoReturn:
        end_child(self._what, self._error())


def end_child(what: str, error: BaseException | None) -> NoReturn:
    """End this process, which was forked in ``what``, as its code meant it to.

    ``sys.exit(status)`` gives its status. Coming back, or any other exception, is an error of the
    code that forked: a line says so and the status is 1. Nothing of the parent's is closed: its
    client, sockets and exit functions are not this process's to end.
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
        with suppress(AttributeError, ValueError, OSError):  # None, closed, or nobody reads it
            stream.flush()
    os._exit(status & 0xFF)

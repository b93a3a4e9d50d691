"""What handlers raise that is out of the ordinary, by functions that another process finds."""

from __future__ import annotations

import asyncio
import decimal
import gc
import threading
import weakref
from contextlib import suppress
from contextvars import ContextVar

from kafka_keyshared.model import Retry

HUGE = 20_000_000


LEFT: ContextVar[str] = ContextVar("left", default="nothing")
"""What a handler has set."""

PRECISION = 7
"""What a handler has the context of decimal round to."""


class CountedError(Retry):
    """Says how many others of its class there were when it was made; it may be returned, too."""

    def __init__(self) -> None:
        Exception.__init__(self, str(len(_COUNTED)))
        _COUNTED.add(self)


_COUNTED: weakref.WeakSet[CountedError] = weakref.WeakSet()


class OddError(BaseException):
    """No Exception."""


class SilentError(Exception):
    """Raises when it is asked what it says."""

    def __str__(self) -> str:
        raise RuntimeError("it says nothing")


def keyboard_interrupt() -> BaseException:
    """Return what Ctrl-C raises."""
    return KeyboardInterrupt("now")


def system_exit() -> BaseException:
    """Return what sys.exit() raises."""
    return SystemExit(3)


def generator_exit() -> BaseException:
    """Return what ends a generator."""
    return GeneratorExit("gone")


def no_exception() -> BaseException:
    """Return a BaseException of the user's own."""
    return OddError("odd")


def huge() -> BaseException:
    """Return one whose text is huge, and which holds as much again."""
    error = ValueError("x" * HUGE)
    error.add_note("y" * HUGE)
    return error


def unpicklable() -> BaseException:
    """Return one that no pipe takes."""
    return ValueError("locked", threading.Lock())


def unsaid() -> BaseException:
    """Return one whose text cannot be had."""
    return SilentError("nothing")


def counted() -> BaseException:
    """Return one that says how many before it still exist; what is in a cycle stays from now on."""
    gc.disable()
    return CountedError()


def what_is_left() -> BaseException:
    """Return one that names what other calls have left here; leave as much as a handler can."""
    seen = [LEFT.get()]
    if decimal.getcontext().prec == PRECISION:
        seen.append("a precision")
    LEFT.set("a variable")
    decimal.getcontext().prec = PRECISION
    with suppress(RuntimeError):  # no loop runs in a thread's handler
        if (task := asyncio.current_task()) is not None:
            seen += ["a cancel"] * task.cancelling()
            task.cancel()
    return ValueError(", ".join(seen))

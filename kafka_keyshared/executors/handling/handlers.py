"""Handlers: a function of one record, or a class with ``handle(record)``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kafka_keyshared.errors import ConfigError


class Made(NamedTuple):
    """A handler as a worker uses it: the call per record, and the call at the end.

    ``release`` and ``adopt`` are set for a handler class with state by slot.
    """

    handle: Callable[[Any], Any]
    close: Callable[[], None] | None = None
    release: Callable[[Sequence[int]], object] | None = None
    adopt: Callable[[Sequence[int], object], object] | None = None


ONE = "one record"

WORKERS_ARE = {"process": "processes"}
"""Words in error texts for workers that are no threads and call no coroutines."""


def maker(handler: Any, pool: str = "thread", *, takes: str = ONE) -> Callable[[], Made]:
    """Return a factory for a worker's handler; it is called once in each worker's own thread.

    ``pool`` is that of :class:`~kafka_keyshared.config.Options`. All workers share a function. If
    the handler is a class, each worker gets its own instance, made without arguments. When the
    worker ends, it calls ``close()`` of the instance, if there is one.

    Raises :class:`ConfigError` for a handler that cannot be called with one record, or with the
    other argument that ``takes`` names.
    """
    name = getattr(handler, "__qualname__", repr(handler))
    if inspect.isclass(handler):
        method = getattr(handler, "handle", None)
        if not callable(method):
            raise ConfigError(f"handler class {name} has no method handle(record): add it")
        _check_call(handler, name, 0, "is made without arguments, one instance per worker")
        _check_call(method, f"{name}.handle", 2, f"is called with {takes}")
        _refuse_unsuited(method, f"{name}.handle", pool)
        hands_over(handler)

        def make_instance() -> Made:
            instance: Any = handler()
            return Made(
                instance.handle,
                getattr(instance, "close", None),
                getattr(instance, "release", None),
                getattr(instance, "adopt", None),
            )

        return make_instance
    if not callable(handler):
        raise ConfigError(f"handler {name} is not callable: give a function or a class")
    _check_call(handler, name, 1, f"is called with {takes}")
    _refuse_unsuited(handler, name, pool)
    return lambda: Made(handler)


def hands_over(handler: Any) -> bool:
    """Return whether a handler is a class that can hand over the state of its keys.

    Raises :class:`ConfigError` if only one of ``release`` and ``adopt`` exists, or if one has the
    wrong form.
    """
    if not inspect.isclass(handler):
        return False
    both = {name: getattr(handler, name, None) for name in ("release", "adopt")}
    if not any(map(callable, both.values())):
        return False
    name = handler.__qualname__
    for each, method in both.items():
        if not callable(method):
            other = next(known for known in both if known != each)
            raise ConfigError(
                f"handler class {name} has {other}() and no {each}(): a state that one worker "
                "releases another has to adopt; add it, or take the other out"
            )
    _check_call(both["release"], f"{name}.release", 2, "is called with the slots")
    _check_call(both["adopt"], f"{name}.adopt", 3, "is called with the slots and their state")
    for each, method in both.items():
        if inspect.iscoroutinefunction(_called(method)):
            raise ConfigError(
                f"handler {name}.{each} is declared with 'async def': state moves between records, "
                "where nothing waits for it; declare it with 'def'"
            )
        _refuse_generator(_called(method), f"{name}.{each}")
    return True


def _check_call(target: Any, name: str, arguments: int, rule: str) -> None:
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):
        return  # written in C, without a signature: an error shows at the first record
    try:
        signature.bind(*[None] * arguments)
    except TypeError as error:
        raise ConfigError(f"handler {name}{signature} {rule}: {error}") from error


def deferred_work(result: Any) -> str | None:
    """Return a description of a result that is unfinished work, else None.

    A generator and a coroutine have not run at all; they are closed. The work of a future may
    finish later or fail, and nothing would notice.
    """
    kind = type(result).__name__
    if inspect.isgenerator(result) or inspect.iscoroutine(result):
        result.close()
        return f"a {kind}, of which nothing has run"
    if inspect.isasyncgen(result) or isinstance(result, map | filter):
        return f"a {kind} object, of which nothing has run"
    if inspect.isawaitable(result):
        return f"a {kind} that is not awaited"
    # Checked by attribute, not by class: asyncio, concurrent.futures and other libraries have it in
    # common.
    if hasattr(type(result), "add_done_callback"):
        return f"a {kind} that is not waited for"
    return None


def awaits(handler: Any) -> bool:
    """Return whether a handler is an ``async def`` function, or a class whose ``handle`` is one."""
    if inspect.isclass(handler):
        handler = getattr(handler, "handle", None)
    return callable(handler) and inspect.iscoroutinefunction(_called(handler))


def _called(target: Any) -> Any:
    """Return the function that runs when ``target`` is called, as far as it can be known.

    Decorators are not unwrapped: a wrapper may itself run the coroutine or generator that it wraps.
    """
    while True:
        if isinstance(target, functools.partial):
            target = target.func
        elif inspect.isroutine(target) or inspect.isclass(target):
            return target
        else:
            target = type(target).__call__


def _refuse_unsuited(target: Any, name: str, pool: str) -> None:
    if pool != "asyncio":
        _refuse_deferred(target, name, WORKERS_ARE.get(pool, "threads"))
        return
    called = _called(target)
    _refuse_generator(called, name)
    # A wrapper of a coroutine function may look like a plain function.
    wraps = hasattr(called, "__wrapped__") or getattr(called, "__closure__", None)
    if inspect.isfunction(called) and not inspect.iscoroutinefunction(called) and not wraps:
        raise ConfigError(
            f"handler {name} is declared with 'def', and would keep the event loop from all other "
            "records: declare it with 'async def', or give a number of threads, such as workers=16"
        )


def _refuse_deferred(target: Any, name: str, workers: str) -> None:
    target = _called(target)
    _refuse_generator(target, name)
    if inspect.iscoroutinefunction(target):
        raise ConfigError(
            f"handler {name} is declared with 'async def', and the workers are {workers}: give "
            "workers='asyncio:1000', or declare it with 'def'"
        )


def _refuse_generator(target: Any, name: str) -> None:
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise ConfigError(
            f"handler {name} contains 'yield', so calling it would run nothing of it: return None "
            "or a verdict instead"
        )

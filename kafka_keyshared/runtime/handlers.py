"""What may be a handler: a function of one record, or a class with ``handle(record)``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

from kafka_keyshared.errors import ConfigError

Made: TypeAlias = tuple[Callable[[Any], Any], Callable[[], None] | None]
"""What a worker uses: the call for a record, and what to call when it ends."""


def maker(handler: Any) -> Callable[[], Made]:
    """Return what makes a worker's handler; called once in each worker's own thread.

    A function is shared by all workers. Of a class each worker gets its own instance, made without
    arguments; its ``close()``, where there is one, is called when the worker ends.

    Raises :class:`ConfigError` for anything that cannot be called with one record.
    """
    name = getattr(handler, "__qualname__", repr(handler))
    if inspect.isclass(handler):
        method = getattr(handler, "handle", None)
        if not callable(method):
            raise ConfigError(f"handler class {name} has no method handle(record): add it")
        _check_call(handler, name, 0, "is made without arguments, one instance per worker")
        _check_call(method, f"{name}.handle", 2, "is called with one record")
        _refuse_deferred(method, f"{name}.handle")

        def make_instance() -> Made:
            instance: Any = handler()
            return instance.handle, getattr(instance, "close", None)

        return make_instance
    if not callable(handler):
        raise ConfigError(f"handler {name} is not callable: give a function or a class")
    _check_call(handler, name, 1, "is called with one record")
    _refuse_deferred(handler, name)
    return lambda: (handler, None)


def _check_call(target: Any, name: str, arguments: int, rule: str) -> None:
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):
        return  # written in C without a signature: found out at the first record
    try:
        signature.bind(*[None] * arguments)
    except TypeError as error:
        raise ConfigError(f"handler {name}{signature} {rule}: {error}") from error


def _refuse_deferred(target: Any, name: str) -> None:
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise ConfigError(
            f"handler {name} contains 'yield', so calling it would run nothing of it: return None "
            "or a verdict instead"
        )
    if inspect.iscoroutinefunction(target):
        raise ConfigError(
            f"handler {name} is declared with 'async def', and the workers are threads: "
            "declare it with 'def'"
        )

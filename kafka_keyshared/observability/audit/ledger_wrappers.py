"""Wrappers that make handlers report to a ledger and change nothing else."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from kafka_keyshared.model import Ack, DeadLetter, Drop, Record, Retry
from kafka_keyshared.observability.audit.ledger import DROPPED, FAILED, OK, Ledger, Outcome

Handler = TypeVar("Handler", bound=Callable[..., Any])


def audited(handler: Handler, ledger: Ledger) -> Handler:
    """Return ``handler`` with a start and an end in ``ledger`` around each call.

    A function gives a function, an ``async def`` an ``async def``. A handler class gives a subclass
    whose ``handle`` reports, so that every worker still makes its own instance. Results and
    exceptions, ``BaseException`` included, pass through unchanged.

    The end is written before the caller gets the result. Therefore a commit by the caller comes
    later in the ledger.

    :raises TypeError: a class without a method ``handle``.
    """
    if inspect.isclass(handler):
        return cast("Handler", _audited_class(handler, ledger))
    return cast("Handler", _audited_call(handler, ledger))


def _audited_class(handler: type[Any], ledger: Ledger) -> type[Any]:
    method = getattr(handler, "handle", None)
    if not callable(method):
        raise TypeError(
            f"{handler.__module__}.{handler.__qualname__} has no method handle(record); "
            "a handler class needs one"
        )
    # handle may be any kind of attribute (method, staticmethod, callable). Looked up on the
    # instance, it takes just the record in every case.
    if inspect.iscoroutinefunction(method):

        async def handle_async(self: Any, record: Record) -> Any:
            return await _run_async(super(audited_class, self).handle, ledger, record)

        handle: Callable[..., Any] = handle_async
    else:

        def handle_sync(self: Any, record: Record) -> Any:
            return _run(super(audited_class, self).handle, ledger, record)

        handle = handle_sync
    functools.update_wrapper(handle, method)
    names = ("__module__", "__qualname__", "__doc__")
    body: dict[str, Any] = {name: getattr(handler, name) for name in names}
    body["handle"] = handle
    audited_class: type[Any] = types.new_class(handler.__name__, (handler,), exec_body=_fill(body))
    return audited_class


def _fill(body: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    return lambda namespace: namespace.update(body)


def _audited_call(handler: Callable[..., Any], ledger: Ledger) -> Callable[..., Any]:
    if any(map(inspect.iscoroutinefunction, (handler, type(handler).__call__))):

        async def call_async(record: Record) -> Any:
            return await _run_async(handler, ledger, record)

        return functools.update_wrapper(call_async, handler)

    def call(record: Record) -> Any:
        return _run(handler, ledger, record)

    return functools.update_wrapper(call, handler)


def _run(handler: Callable[[Record], Any], ledger: Ledger, record: Record) -> Any:
    attempt = _started(ledger, record)
    try:
        result = handler(record)
    except BaseException as error:
        ledger.ended(attempt, _verdict(error) or FAILED)
        raise
    ledger.ended(attempt, OK if result is None else _returned(result))
    return result


async def _run_async(
    handler: Callable[[Record], Awaitable[Any]], ledger: Ledger, record: Record
) -> Any:
    attempt = _started(ledger, record)
    try:
        result = await handler(record)
    except BaseException as error:
        ledger.ended(attempt, _verdict(error) or FAILED)
        raise
    ledger.ended(attempt, OK if result is None else _returned(result))
    return result


def _started(ledger: Ledger, record: Record) -> int:
    key = ledger.key_of(record)
    return ledger.started(record.topic(), record.partition(), record.offset(), key)


def _verdict(value: object) -> Outcome | None:
    """Return the outcome of a verdict, None for a value that is not a verdict."""
    if isinstance(value, Ack):
        return OK
    if isinstance(value, Drop):
        return DROPPED
    return FAILED if isinstance(value, (Retry, DeadLetter)) else None


def _returned(result: object) -> Outcome:
    """Return the outcome of a handler's result, by the rules of the handler API.

    An awaitable from a plain function is never awaited, so the attempt has failed. Any other value
    is an acknowledgement, including an exception that was returned instead of raised.
    """
    return _verdict(result) or (FAILED if inspect.isawaitable(result) else OK)

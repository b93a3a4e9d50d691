"""Outputs of a handler: records for another topic, or rows of files.

A handler returns an :class:`Output`, or a list of them, instead of None. The code that runs the
handler takes the outputs before the record counts as done. A pod writes them and waits for the
result. A Spark task hands them to the driver, which writes them before it commits.

Each output names its record and its number within that record. A consumer can therefore detect an
output that was written twice after a crash.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.executors.handling.handlers import awaits
from kafka_keyshared.model import Output, Record, name_of

HEADER = "keyshared.output"
"""Header that names an output by its record and number, such as ``orders-3@17/0``."""

TOPIC, JSON, PARQUET = "topic", "json", "parquet"

Take: TypeAlias = Callable[[Record, Sequence[Output]], None]


class OutputTarget(NamedTuple):
    """Destination of outputs: a topic, or a folder of files in JSON lines or Parquet."""

    kind: str
    name: str


def place_of(text: str) -> OutputTarget:
    """Parse ``topic:NAME``, ``parquet:FOLDER``, ``json:FOLDER``, or a folder.

    Raises :class:`ConfigError` for an empty name.
    """
    kind, _, name = text.partition(":")
    place = OutputTarget(kind, name) if kind in (TOPIC, JSON, PARQUET) else OutputTarget(JSON, text)
    if not place.name:
        raise ConfigError(f"--outputs {text}: give topic:NAME, parquet:FOLDER, or a folder")
    return place


def identity(record: Record, number: int) -> str:
    """Return the identity of an output of a record; it is the same however often it is written."""
    return f"{name_of(record)}/{number}"


def outputs_in(result: Any) -> Sequence[Output] | None:
    """Return the outputs in the result of a handler, None if the result is no output.

    Raises :class:`TypeError` for a list that mixes outputs with other values.
    """
    if isinstance(result, Output):
        return (result,)
    if not isinstance(result, list | tuple):
        return None
    there = [isinstance(each, Output) for each in result]
    if any(there) and not all(there):
        raise TypeError("the handler returned a list of outputs with something else in it")
    return result if all(there) else None


def handing_out(handle: Callable[[Any], Any], take: Take) -> Callable[[Any], Any]:
    """Return a handler call that takes the outputs before the record counts as ended.

    The outputs of a coroutine function are taken on another thread, because writing them may block.
    """

    def call(record: Record) -> Any:
        result = handle(record)
        found = outputs_in(result)
        if found is None:
            return result
        if found:
            take(record, found)
        return None

    async def call_async(record: Record) -> Any:
        result = await handle(record)
        found = outputs_in(result)
        if found is None:
            return result
        if found:
            await asyncio.to_thread(take, record, found)
        return None

    return call_async if awaits(handle) else call


def outputs_taken(handler: Any, take: Take) -> Any:
    """Return a handler whose outputs are taken: a function for a function, a class for a class."""
    if not inspect.isclass(handler):
        return functools.update_wrapper(handing_out(handler, take), handler)

    def handle(self: Any, record: Record) -> Any:
        return handing_out(super(taking, self).handle, take)(record)

    async def handle_async(self: Any, record: Record) -> Any:
        return await handing_out(super(taking, self).handle, take)(record)

    own: Any = (
        handle_async if inspect.iscoroutinefunction(getattr(handler, "handle", None)) else handle
    )
    names = {name: getattr(handler, name) for name in ("__module__", "__qualname__", "__doc__")}
    taking: Any = type(handler.__name__, (handler,), {**names, "handle": own})
    return taking

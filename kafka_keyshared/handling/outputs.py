"""What a handler hands out: records for another topic, or rows of files.

A handler returns an :class:`Output`, or a list of them, instead of None. Whoever runs it takes them
before the record counts as done: a pod writes them and waits, a task of Spark hands them to the
driver, which writes them before it commits. Each carries which record it is of and which one of
that record's it is, so that what a crash has written twice is known by whoever reads it.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.handling.handlers import awaits
from kafka_keyshared.model import Output, Record, name_of

HEADER = "keyshared.output"
"""Says of an output of which record it is, and the how manieth of it: ``orders-3@17/0``."""

TOPIC, JSON, PARQUET = "topic", "json", "parquet"

Take: TypeAlias = Callable[[Record, Sequence[Output]], None]


class Place(NamedTuple):
    """Where outputs go: a topic, or a folder of files in JSON lines or Parquet."""

    kind: str
    name: str


def place_of(text: str) -> Place:
    """Return what a text names: ``topic:NAME``, ``parquet:FOLDER``, ``json:FOLDER``, or a folder.

    Raises :class:`ConfigError` where it names nothing.
    """
    kind, _, name = text.partition(":")
    place = Place(kind, name) if kind in (TOPIC, JSON, PARQUET) else Place(JSON, text)
    if not place.name:
        raise ConfigError(f"--outputs {text}: give topic:NAME, parquet:FOLDER, or a folder")
    return place


def identity(record: Record, number: int) -> str:
    """Return by which name an output of a record is known, however often it is written."""
    return f"{name_of(record)}/{number}"


def outputs_in(result: Any) -> Sequence[Output] | None:
    """Return the outputs that a handler has returned, None where what it returned is none.

    Raises :class:`TypeError` for a list in which there are others too.
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
    """Return a handler's call whose outputs are taken, before anybody learns that it has ended.

    Of a coroutine function they are taken on another thread, because that may wait.
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
    """Return a handler whose outputs are taken: of a function a function, of a class a class."""
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

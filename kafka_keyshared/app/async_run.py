"""A run awaited on an event loop, on a separate thread."""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from contextlib import suppress

from kafka_keyshared.executors import lease
from kafka_keyshared.platform.detached_call import Aside
from kafka_keyshared.platform.reentry_guard import (
    inside_handler,
    lending_loop,
    refuse_inside_handler,
)
from kafka_keyshared.platform.signals import stop_signals


def refuse_in_a_handlers_task(call: str) -> None:
    """Raise :class:`ConfigError` when a handler, or a task it started, awaits ``call``."""
    refuse_inside_handler(call, awaited=True)
    if lease.WORKER.get(None) is not None:
        raise inside_handler(call)


async def awaited_run(
    work: Callable[[], int], ask: Callable[[], None], leave: Callable[[], Awaitable[None]]
) -> int:
    """Run the blocking ``work`` in a thread; return its exit status, or raise its error.

    ``ask`` stops the run, and hurries it the second time. It is called each time that the task is
    cancelled and at each signal that has no other handler. After a cancellation ``CancelledError``
    is raised when the run is over, unless the run itself failed. ``leave`` is awaited at the end.
    """
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def ended() -> None:
        with suppress(RuntimeError):  # the loop was closed before the run was over
            loop.call_soon_threadsafe(_set, over)

    cancelled: CancelledError | None = None
    with stop_signals(ask, only_free=True), lending_loop():
        run = Aside(work, name="keyshared-awaited", ended=ended)
        while not over.done():
            try:
                await asyncio.wait((over,))
            except CancelledError as error:
                cancelled = error
                ask()
            except BaseException:  # the loop is gone, and so is its waiting task
                ask()
                ask()
                raise
        await leave()
    status = run.result()
    if cancelled is not None:
        raise cancelled
    return status


def _set(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)

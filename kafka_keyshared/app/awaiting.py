"""A run that is awaited on an event loop: done beside it, and stopped by cancelling."""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from contextlib import suppress

from kafka_keyshared.pools import lease
from kafka_keyshared.program.aside import Aside
from kafka_keyshared.program.importing import inside_handler, lending_loop, refuse_inside_handler
from kafka_keyshared.program.signals import stop_signals


def refuse_in_a_handlers_task(call: str) -> None:
    """Raise :class:`ConfigError` when a handler awaits ``call``, or a task that it has started."""
    refuse_inside_handler(call, awaited=True)
    if lease.WORKER.get(None) is not None:
        raise inside_handler(call)


async def awaited_run(
    work: Callable[[], int], ask: Callable[[], None], leave: Callable[[], Awaitable[None]]
) -> int:
    """Do a run's blocking ``work`` beside the loop; return its exit status, or raise its error.

    Each time that the task is cancelled, and at each signal that nobody else handles, ``ask`` is
    called, which stops the run and the second time hurries it. Cancelled, it raises
    ``CancelledError`` when the run is over; what the run failed with comes first. ``leave`` is
    awaited in the end.
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
            except BaseException:  # the loop is gone, and so is whoever has waited
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

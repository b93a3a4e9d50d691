"""Helpers for coroutines: awaitable handlers, stack inspection, the running loop."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Callable
from typing import Any

from kafka_keyshared.model import Record
from kafka_keyshared.platform.stack_frames import STACK_FRAMES_MAX, is_ours, is_users, shown


async def unmade(record: Record) -> None:
    """Stand in for a handler that is not made yet, or is closed."""
    raise RuntimeError(f"{record} came to a worker without a handler")


def awaitable(handle: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return an awaitable handler: a wrapper of a coroutine function may not look like one."""
    if inspect.iscoroutinefunction(handle):
        return handle

    async def awaiting(record: Any) -> Any:
        result = handle(record)
        return await result if inspect.isawaitable(result) else result

    return awaiting


def place_of(awaited: Any) -> str:
    """Return the innermost place in the user's program where a coroutine waits."""
    place = ""
    # GIL: the loop does not run while a frame is read, here and in calls_of().
    while (frame := getattr(awaited, "cr_frame", None)) is not None:
        if is_users(frame.f_code.co_filename):
            place = f"at {shown(frame.f_code.co_filename)}:{frame.f_lineno}"
        awaited = awaited.cr_await
    return place


def calls_of(awaited: Any) -> str:
    """Return the call stack of a coroutine, through all that it awaits, as lines of text."""
    calls: list[traceback.FrameSummary] = []
    while (frame := getattr(awaited, "cr_frame", None)) is not None:
        ours = is_ours(frame.f_code.co_filename)
        calls = [] if ours else [*calls, *traceback.extract_stack(frame, 1)]
        awaited = awaited.cr_await
    return "".join(traceback.format_list(calls[:STACK_FRAMES_MAX]))


def turning() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs on this thread; None if none runs."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None

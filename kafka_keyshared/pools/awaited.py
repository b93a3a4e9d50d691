"""What coroutines are to whoever looks at them from outside: callable, somewhere, on a loop."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Callable
from typing import Any

from kafka_keyshared.model import Record
from kafka_keyshared.program.whose import STACK_FRAMES_MAX, is_ours, is_users, shown


async def unmade(record: Record) -> None:
    """Stand in for a handler that has not been made, or has been closed."""
    raise RuntimeError(f"{record} came to a worker without a handler")


def awaitable(handle: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a handler that can be awaited: what wraps a coroutine function may not look so."""
    if inspect.iscoroutinefunction(handle):
        return handle

    async def awaiting(record: Any) -> Any:
        result = handle(record)
        return await result if inspect.isawaitable(result) else result

    return awaiting


def place_of(awaited: Any) -> str:
    """Return where in the user's program a coroutine stands, through what it awaits."""
    place = ""
    # GIL: the loop stands still while a frame is read, here and in calls_of().
    while (frame := getattr(awaited, "cr_frame", None)) is not None:
        if is_users(frame.f_code.co_filename):
            place = f"at {shown(frame.f_code.co_filename)}:{frame.f_lineno}"
        awaited = awaited.cr_await
    return place


def calls_of(awaited: Any) -> str:
    """Return the calls that a coroutine is in, through what it awaits, as lines of text."""
    calls: list[traceback.FrameSummary] = []
    while (frame := getattr(awaited, "cr_frame", None)) is not None:
        ours = is_ours(frame.f_code.co_filename)
        calls = [] if ours else [*calls, *traceback.extract_stack(frame, 1)]
        awaited = awaited.cr_await
    return "".join(traceback.format_list(calls[:STACK_FRAMES_MAX]))


def turning() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that turns on this thread; None where it has ended."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None

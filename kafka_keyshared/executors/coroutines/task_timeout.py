"""Cancellation of asyncio tasks on an ack timeout, in two steps.

The first time out cancels the task. A task that still runs at the next one is stuck. A worker
answers the owner only after cancelled tasks had some turns of the loop to end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from kafka_keyshared.executors.coroutines.task_frames import turning

HEED_TURNS = 4
"""Turns of the loop in which a cancelled task can end before the pool answers."""


class TimedTask(Protocol):
    """A unit of work that one task runs, and whether it was cancelled before."""

    task: asyncio.Task[None] | None
    cancelled: bool


def cancel_task(unit: TimedTask) -> bool:
    """Cancel the task of a unit that ran too long; return whether it was cancelled before."""
    if unit.cancelled:
        return True
    if unit.task is not None:
        unit.cancelled = True
        unit.task.cancel()
    return False


def when_heeded(answer: Callable[[], None], turns: int = HEED_TURNS) -> None:
    """Call ``answer`` after these turns of the loop, or at once if no loop runs on this thread."""
    if turns and (loop := turning()) is not None:
        loop.call_soon(when_heeded, answer, turns - 1)
    else:
        answer()

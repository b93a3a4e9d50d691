"""What a handler can leave behind on the task that it ran on.

A task of the pool runs one record after the other. A handler that cancels its task, gives it a
name, sets a context variable, or keeps the task in a registry, a timer or an open
``asyncio.timeout()``, would reach the record behind it. So the pool compares the task with what it
was before its first record, and continues on another task where anything differs.
"""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from sys import getrefcount
from typing import Any
from weakref import getweakrefcount


class TaskState:
    """The current task as it is when this is made. One thread, that of the task's loop.

    With ``once`` the task counts as changed from the first record on.
    """

    __slots__ = ("_context", "_held", "_name", "_observed", "_once", "_task")

    def __init__(self, *, once: bool = False) -> None:
        task: asyncio.Task[Any] | None = asyncio.current_task()
        if task is None:
            raise RuntimeError("no task runs here")
        self._task: Any = task
        del task  # a local name is a reference as well
        self._once = once
        self._context = copy_context()
        self._name = self._task.get_name()
        self._held = getrefcount(self._task)
        self._observed = getweakrefcount(self._task)

    def changed(self) -> bool:
        """Return whether the task is another than it was, or something else refers to it now.

        Whatever holds the task may cancel it at any later time, or look up state by it: a timer, an
        open ``asyncio.timeout()``, a session that is kept by ``asyncio.current_task()``.
        """
        task = self._task
        return bool(
            self._once
            or copy_context() != self._context
            or task.cancelling() > 0
            # Before Python 3.13 uncancel() leaves a cancel that the task has not seen yet.
            or task._must_cancel
            or getrefcount(task) > self._held + 1  # and this function's own name for it
            or getweakrefcount(task) > self._observed
            or task.get_name() != self._name
        )

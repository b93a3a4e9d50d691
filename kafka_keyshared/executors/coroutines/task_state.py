"""Detection of changes that a handler makes to its task.

A task of the pool runs one record after the other. A handler can cancel its task, give it a name,
or set a context variable. It can also keep the task in a registry, a timer or an open
``asyncio.timeout()``. Each of these would affect the next record. The pool therefore compares the
task with its state before the first record. If anything differs, it continues on another task.
"""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from sys import getrefcount
from typing import Any
from weakref import getweakrefcount


class TaskState:
    """The state of the current task at construction. Use it only on the thread of the task's loop.

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
        """Return whether the task has changed, or whether another object refers to it now.

        An object that holds the task may cancel it at any later time, or look up state by it.
        Examples are a timer, an open ``asyncio.timeout()``, and a session that is kept by
        ``asyncio.current_task()``.
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

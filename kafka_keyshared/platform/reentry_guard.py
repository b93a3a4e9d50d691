"""Places where an app must not start: imported programs, and handlers."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.platform.green import refuse_green_threads
from kafka_keyshared.platform.interpreter import refuse_without_lock

# No ContextVar: a thread that the imported module starts must see it too.
_imports: list[str] = []
_thread = threading.local()


@contextmanager
def importing(spec: str) -> Iterator[None]:
    """Mark ``spec`` as being imported; no app may start in the block."""
    _imports.append(spec)
    try:
        yield
    finally:
        _imports.pop()


def refuse_to_begin(call: str) -> None:
    """Raise :class:`ConfigError` where no app may start.

    That is on a Python without its lock, on greenlet threads, and while the command line imports a
    program that calls ``call``.

    Importing a program without a guard runs it. ``keyshared doctor`` promises to join no group, but
    would then join it and process records. So would each process of its workers.
    """
    refuse_without_lock(call)
    refuse_green_threads(call)
    if _imports or _in_new_process():
        raise ConfigError(
            f"{call} is called while the module is imported: put it under "
            "if __name__ == '__main__', so that importing runs nothing"
        )


def _in_new_process() -> bool:
    """Return whether this is a new process that imports its parent's program.

    ``multiprocessing`` starts such a process by spawn to run a function of the program. Each worker
    in a process is one.
    """
    spawned: Any = sys.modules.get("multiprocessing.process")
    return spawned is not None and getattr(spawned.current_process(), "_inheriting", False)


def load_file(name: str, path: Path) -> ModuleType | None:
    """Import a file as the module of this name; None if it cannot be loaded as Python.

    The module is registered, because dataclasses and pickling look a module up by its name. Errors
    of the module are passed on.
    """
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        return None
    sys.modules[name] = module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@contextmanager
def handling() -> Iterator[None]:
    """Mark this thread as one that runs handlers."""
    _thread.handles = True
    try:
        yield
    finally:
        _thread.handles = False


@contextmanager
def lending_loop() -> Iterator[None]:
    """Mark this thread's event loop as one that runs handlers; call it on that thread."""
    _thread.lends = getattr(_thread, "lends", 0) + 1
    try:
        yield
    finally:
        _thread.lends -= 1


def refuse_inside_handler(call: str, *, awaited: bool = False) -> None:
    """Raise :class:`ConfigError` when a handler, or a task on its event loop, does ``call``.

    The call would occupy the handler's worker while the other instance runs. Each attempt would add
    a member to the group, and all others would have to give up partitions. A call that waits for
    handlers must not block their loop either, unless it is ``awaited`` there.
    """
    if getattr(_thread, "handles", False):
        raise inside_handler(call)
    if getattr(_thread, "lends", 0) and not awaited:
        raise ConfigError(
            f"{call} is called on the event loop that handlers run on, and would keep it from "
            "turning: give it to another thread, with asyncio.to_thread()"
        )


def inside_handler(call: str) -> ConfigError:
    """Return the error for a handler that calls ``call``."""
    return ConfigError(
        f"{call} is called inside a handler: call it once, where the program starts; a handler "
        "returns when its record is done"
    )

"""Where an app must not begin to run: in a program that is imported, and inside a handler."""

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
from kafka_keyshared.program.green import refuse_green_threads
from kafka_keyshared.program.interpreter import refuse_without_lock

# No ContextVar: a thread that the imported module starts has to see it as well.
_imports: list[str] = []
_thread = threading.local()


@contextmanager
def importing(spec: str) -> Iterator[None]:
    """Say that ``spec`` is being imported; nothing runs meanwhile."""
    _imports.append(spec)
    try:
        yield
    finally:
        _imports.pop()


def refuse_to_begin(call: str) -> None:
    """Raise :class:`ConfigError` where nothing may run.

    That is on a Python without its lock, on threads that are greenlets, and while the command line
    imports a program that does ``call``.

    Importing a program without a guard runs it: ``keyshared doctor``, which promises to join no
    group, would join it and process what is there. So would each process of its workers.
    """
    refuse_without_lock(call)
    refuse_green_threads(call)
    if _imports or _in_new_process():
        raise ConfigError(
            f"{call} is called while the module is imported: put it under "
            "if __name__ == '__main__', so that importing runs nothing"
        )


def _in_new_process() -> bool:
    """Say whether this process is a new one that imports the program of its parent, to run some
    function of it: ``multiprocessing`` by spawn, and so each worker in a process."""
    spawned: Any = sys.modules.get("multiprocessing.process")
    return spawned is not None and getattr(spawned.current_process(), "_inheriting", False)


def load_file(name: str, path: Path) -> ModuleType | None:
    """Import a file as the module of this name; None for one that cannot be loaded as Python.

    It is registered, because dataclasses and pickling look a module up by its name. Raises what the
    module does.
    """
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        return None
    sys.modules[name] = module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@contextmanager
def handling() -> Iterator[None]:
    """Say that this thread runs handlers."""
    _thread.handles = True
    try:
        yield
    finally:
        _thread.handles = False


@contextmanager
def lending_loop() -> Iterator[None]:
    """Say that handlers run on the event loop that this thread runs, among others; from there."""
    _thread.lends = getattr(_thread, "lends", 0) + 1
    try:
        yield
    finally:
        _thread.lends -= 1


def refuse_inside_handler(call: str, *, awaited: bool = False) -> None:
    """Raise :class:`ConfigError` when a handler does ``call``, or who shares an event loop with it.

    It would take the handler's own worker for as long as the other instance runs, and each attempt
    would bring one more member into the group, for which all others have to give up partitions. And
    what waits for handlers must not keep their loop from turning, unless it is ``awaited`` there.
    """
    if getattr(_thread, "handles", False):
        raise inside_handler(call)
    if getattr(_thread, "lends", 0) and not awaited:
        raise ConfigError(
            f"{call} is called on the event loop that handlers run on, and would keep it from "
            "turning: give it to another thread, with asyncio.to_thread()"
        )


def inside_handler(call: str) -> ConfigError:
    """Return what a handler is told that does ``call``."""
    return ConfigError(
        f"{call} is called inside a handler: call it once, where the program starts; a handler "
        "returns when its record is done"
    )

"""Where an app must not begin to run: in a program that is imported, and inside a handler."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kafka_keyshared.errors import ConfigError

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


def refuse_while_imported(call: str) -> None:
    """Raise :class:`ConfigError` while the command line imports a program that does ``call``.

    Importing a program without a guard runs it: ``keyshared doctor``, which promises to join no
    group, would join it and process what is there.
    """
    if _imports:
        raise ConfigError(
            f"{call} is called while the module is imported: put it under "
            "if __name__ == '__main__', so that importing runs nothing"
        )


@contextmanager
def handling() -> Iterator[None]:
    """Say that this thread runs handlers."""
    _thread.handles = True
    try:
        yield
    finally:
        _thread.handles = False


def refuse_inside_handler(call: str) -> None:
    """Raise :class:`ConfigError` when a handler does ``call``.

    It would take the handler's own worker for as long as the other instance runs, and each attempt
    would bring one more member into the group, for which all others have to give up partitions.
    """
    if getattr(_thread, "handles", False):
        raise ConfigError(
            f"{call} is called inside a handler: call it once, where the program starts; a handler "
            "returns when its record is done"
        )

"""Work on a separate thread that its caller can abandon.

A call of the Kafka client cannot be interrupted. ``close()`` waits for commits that an unreachable
broker will not answer, and so does the destructor of an unclosed consumer. A user callback cannot
be made to return either. A daemon thread inside such a call can be abandoned. It does not keep the
process from exiting, and it keeps references whose destructor would block.
"""

from __future__ import annotations

import contextvars
import sys
import sysconfig
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_PYTHONS_OWN = sysconfig.get_path("stdlib")


class Aside(Generic[T]):
    """A call that runs on its own thread, started by the constructor.

    ``ended`` is called in that thread after the call has returned or raised. ``name`` is the
    thread's name.
    """

    def __init__(
        self, work: Callable[[], T], *, name: str, ended: Callable[[], None] = lambda: None
    ) -> None:
        self._work = work
        self._ended = ended
        self._over = threading.Event()
        self._found: list[T] = []
        self._error: BaseException | None = None
        # The caller's context variables hold in the thread too.
        run: Callable[..., Any] = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=(self._run,), name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found.append(self._work())
        except BaseException as error:  # noqa: BLE001 - raised by result()
            self._error = error
        finally:
            self._over.set()
            self._ended()

    @property
    def over(self) -> bool:
        """Return whether the call has returned or raised."""
        return self._over.is_set()

    def wait(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds for the end; return whether it has come."""
        return self._over.wait(timeout)

    def result(self) -> T:
        """Return the result of the call, or raise its exception; only once it is over."""
        if self._error is not None:
            raise self._error
        return self._found[0]

    def where(self) -> str:
        """Return where the call is now, such as ``close (kafka.py:335)``."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        while frame is not None and frame.f_back is not None and _is_pythons(frame):
            frame = frame.f_back
        if frame is None:
            return "its end"
        return f"{frame.f_code.co_name} ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})"


def _is_pythons(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith((_PYTHONS_OWN, "<"))

"""Work on a thread of its own, which whoever waits for it may give up on.

Nothing interrupts a call of the Kafka client: ``close()`` waits for commits that a broker which is
gone will not answer, and so does the destructor of a consumer that was not closed. Nor can a
callback of the user's be made to return. A daemon thread that is in such a call can be left behind:
it neither keeps the process from exiting, nor lets go of what a destructor would wait for.
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
    """A call that runs beside, begun when this is made.

    ``ended`` is called in its thread once it has returned or raised. ``name`` is the thread's.
    """

    def __init__(
        self, work: Callable[[], T], *, name: str, ended: Callable[[], None] = lambda: None
    ) -> None:
        self._work = work
        self._ended = ended
        self._over = threading.Event()
        self._found: list[T] = []
        self._error: BaseException | None = None
        # What whoever calls has set for itself holds in there too.
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
        """Say whether the call has returned or raised."""
        return self._over.is_set()

    def wait(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds for the end; say whether it has come."""
        return self._over.wait(timeout)

    def result(self) -> T:
        """Return what the call returned, or raise what it raised; only once it is over."""
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

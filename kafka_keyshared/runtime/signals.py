"""SIGTERM and SIGINT while an instance runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType


@contextmanager
def stop_signals(stop_now: Callable[[], None], *, also_before: bool = False) -> Iterator[None]:
    """Turn SIGTERM and SIGINT into calls while open; do nothing off the main thread.

    With ``also_before`` the handler that the program had set is called, too: it may set a flag that
    the program's own code looks at.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def received(number: int, frame: FrameType | None) -> None:
        stop_now()
        own = before[signal.Signals(number)]
        if also_before and callable(own) and own is not signal.default_int_handler:
            with suppress(SystemExit, KeyboardInterrupt):  # the end that it wants is under way
                own(number, frame)

    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, received) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

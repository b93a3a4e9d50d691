"""SIGTERM and SIGINT while an instance runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_signals(stop_now: Callable[[], None]) -> Iterator[None]:
    """Turn SIGTERM and SIGINT into calls while open; do nothing off the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def received(_number: int, _frame: FrameType | None) -> None:
        stop_now()

    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, received) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

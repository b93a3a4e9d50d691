"""SIGTERM and SIGINT while an instance runs."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from kafka_keyshared.program.whose import is_users

PYTHONS_OWN = (signal.SIG_DFL, signal.default_int_handler)
"""What becomes of a signal that nobody has a handler for."""


@contextmanager
def stop_signals(
    stop_now: Callable[[], None], *, also_before: bool = False, only_free: bool = False
) -> Iterator[None]:
    """Turn SIGTERM and SIGINT into calls while open; do nothing off the main thread.

    With ``also_before`` a handler that the program itself had set is called first: it may set a
    flag at which its own code looks as soon as something ends. One of a library's is not called: it
    may end the process there and then. With ``only_free`` a signal that anybody has a handler for
    stays theirs.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def received(number: int, frame: FrameType | None) -> None:
        own = before[signal.Signals(number)]
        try:
            if also_before and callable(own) and _is_programs(own):
                with suppress(SystemExit, KeyboardInterrupt):  # the end that it wants comes now
                    own(number, frame)
        finally:
            stop_now()

    numbers = [
        number
        for number in (signal.SIGTERM, signal.SIGINT)
        if not only_free or signal.getsignal(number) in PYTHONS_OWN
    ]
    before = {number: signal.signal(number, received) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def heard_at_once(stop_now: Callable[[], object]) -> Iterator[None]:
    """Turn SIGTERM and SIGINT into calls on a thread of its own; do nothing off the main thread.

    Python calls a handler on the main thread, once that runs Python code. The system may deliver a
    signal to any other thread, and then a call in which the main thread is blocked goes on, as one
    that waits for Java does for as long as a batch takes. What Python writes to its wakeup file
    comes from whichever thread the signal was delivered to.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard, tell = socket.socketpair()
    tell.setblocking(False)  # Python requires it

    def listen() -> None:
        while numbers := heard.recv(64):
            for number in numbers:
                if number in {signal.SIGTERM, signal.SIGINT}:
                    stop_now()

    thread = threading.Thread(target=listen, name="keyshared-signals", daemon=True)
    thread.start()
    before = signal.set_wakeup_fd(tell.fileno(), warn_on_full_buffer=False)
    try:
        with stop_signals(lambda: None):
            yield
    finally:
        signal.set_wakeup_fd(before)
        tell.close()
        thread.join()
        heard.close()


def _is_programs(handler: Callable[..., object]) -> bool:
    """Say whether a function stands in the user's program, and in no library."""
    code = getattr(getattr(handler, "__func__", handler), "__code__", None)
    return code is not None and is_users(code.co_filename)

"""Handling of SIGTERM and SIGINT while an instance runs."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from kafka_keyshared.platform.stack_frames import is_users

PYTHONS_OWN = (signal.SIG_DFL, signal.default_int_handler)
"""Python's own actions for a signal without a handler of the program."""


@contextmanager
def stop_signals(
    stop_now: Callable[[], None], *, also_before: bool = False, only_free: bool = False
) -> Iterator[None]:
    """Call ``stop_now`` for SIGTERM and SIGINT in the block; do nothing off the main thread.

    With ``also_before`` a handler set by the program itself is called first. It may set a flag that
    the program's code checks when something ends. A library's handler is not called, because it may
    end the process at once. With ``only_free`` a signal that already has a handler keeps it.
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
    """Call ``stop_now`` on a separate thread at SIGTERM and SIGINT; only on the main thread.

    Python runs a signal handler on the main thread, once that thread runs Python code. The system
    may deliver the signal to another thread. A blocking call of the main thread then goes on, for
    example one that waits for Java for a whole batch. Python writes to its wakeup file from the
    thread that got the signal.
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
    """Return whether a function is defined in the user's program, not in a library."""
    code = getattr(getattr(handler, "__func__", handler), "__code__", None)
    return code is not None and is_users(code.co_filename)

"""What a program's own handler of a signal may count on while an instance runs."""

from __future__ import annotations

import os
import signal
import socket
import threading

import pytest

from kafka_keyshared.platform.signals import heard_at_once, stop_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_programs_own_handler_has_run_before_anything_ends(number: signal.Signals) -> None:
    """A loop that is ended looks at its flag at once; it must find it set."""
    order: list[str] = []
    before = signal.signal(number, lambda *_: order.append("its flag is set"))
    try:
        with stop_signals(lambda: order.append("loops end"), also_before=True):
            os.kill(os.getpid(), number)
    finally:
        signal.signal(number, before)
    assert order == ["its flag is set", "loops end"]


@pytest.mark.parametrize("wanted", [SystemExit(3), KeyboardInterrupt()])
def test_a_handler_that_would_end_the_program_ends_it_by_the_stop(wanted: BaseException) -> None:
    stopped: list[bool] = []

    def ends(*_: object) -> None:
        raise wanted

    before = signal.signal(signal.SIGTERM, ends)
    try:
        with stop_signals(lambda: stopped.append(True), also_before=True):
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert stopped == [True]


def test_a_handler_that_fails_does_not_hide_the_signal() -> None:
    stopped: list[bool] = []

    def fails(*_: object) -> None:
        raise ValueError("a bug of the program's own")

    before = signal.signal(signal.SIGTERM, fails)
    try:
        with (
            pytest.raises(ValueError, match="of the program's own"),
            stop_signals(lambda: stopped.append(True), also_before=True),
        ):
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert stopped == [True]


def test_a_signal_that_somebody_has_taken_is_left_to_them_where_only_free_ones_are_meant() -> None:
    stopped: list[str] = []
    heard: list[str] = []
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append("theirs"))
    free = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with stop_signals(lambda: stopped.append("ours"), only_free=True):
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, free)
    assert (heard, stopped) == (["theirs"], ["ours"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_heard_while_the_main_thread_is_in_a_call_that_goes_on(
    number: signal.Signals,
) -> None:
    """The system delivers it to another thread: two signals at once are enough for that."""
    ends, goes_on = socket.socketpair()
    ends.settimeout(30)
    sends = threading.Event()

    def send() -> None:
        sends.wait()
        os.kill(os.getpid(), number)

    other = threading.Thread(target=send)
    other.start()
    handlers = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    with ends, goes_on:
        with heard_at_once(lambda: goes_on.send(b"!")):
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, [number])
            try:
                sends.set()
                assert ends.recv(1) == b"!"
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        assert {each: signal.getsignal(each) for each in handlers} == handlers
    other.join()

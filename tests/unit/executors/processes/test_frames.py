"""Messages on a pipe that something else may write into, too."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_keyshared.executors.processes.frames import Frames, GarbledError, Inlet, Outlet, framed

TOKEN = b"-tested-"


@pytest.mark.parametrize("piece", [1, 7, 1_000])
def test_messages_come_out_as_they_went_in_however_they_are_cut(piece: int) -> None:
    messages = [b"", b"one", bytes(300), TOKEN]
    sent = b"".join(framed(TOKEN, each) for each in messages)
    frames, found = Frames(TOKEN), []
    for at in range(0, len(sent), piece):
        frames.feed(sent[at : at + piece])
        while (message := frames.next()) is not None:
            found.append(message)
    assert found == messages


@pytest.mark.parametrize("garbage", [b"x", (16).to_bytes(4, "big"), b"\xff" * 64, TOKEN[1:]])
def test_bytes_that_are_no_message_are_refused_at_once(garbage: bytes) -> None:
    frames = Frames(TOKEN)
    frames.feed(framed(TOKEN, b"one") + garbage)
    assert frames.next() == b"one"
    with pytest.raises(GarbledError, match="came from the process, and is no message of it"):
        frames.next()


@pytest.fixture
def pipe() -> Iterator[Any]:
    """Both ends, and what is readable once the process has ended."""
    ours, theirs = multiprocessing.Pipe()
    lives, ends = os.pipe()
    process = SimpleNamespace(fileno=lambda: lives)
    with ours, theirs:
        yield SimpleNamespace(
            inlet=Inlet(ours, TOKEN, process), outlet=Outlet(theirs, TOKEN), theirs=theirs, end=ends
        )
    os.close(lives)
    os.close(ends)


def test_what_is_large_comes_while_it_is_sent(pipe: Any) -> None:
    large = {"state": bytes(3_000_000)}
    sends = threading.Thread(target=pipe.outlet.send, args=(large,))
    sends.start()
    assert pipe.inlet.recv() == large
    sends.join()
    pipe.inlet.send("asked")
    assert pipe.outlet.recv() == "asked"


def test_what_had_been_sent_before_the_end_is_read_although_a_child_keeps_the_pipe_open(
    pipe: Any,
) -> None:
    pipe.outlet.send("last")
    os.write(pipe.end, b"it has ended")
    assert pipe.inlet.recv() == "last"
    with pytest.raises(EOFError):
        pipe.inlet.recv()


def test_whoever_waits_for_so_long_waits_no_longer(pipe: Any) -> None:
    with pytest.raises(TimeoutError):
        pipe.inlet.recv(0.0)
    os.write(pipe.theirs.fileno(), b"garbage")
    with pytest.raises(GarbledError):
        pipe.inlet.recv()

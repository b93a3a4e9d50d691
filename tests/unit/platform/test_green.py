"""Threads, locks and queues that gevent or eventlet has replaced: nothing begins on those."""

from __future__ import annotations

import _thread
import asyncio
import queue
import select
import socket
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_keyshared import KeyShared, Reader, split
from kafka_keyshared.client.consumer import Consumer
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.platform.green import refuse_green_threads

CONF = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
MODULES = {each.__name__: each for each in (_thread, threading, queue, select, socket, time)}


def of(library: str) -> Callable[..., Any]:
    """Return what such a library puts in the place of a class or function."""

    def green(*_: Any) -> Any:
        raise AssertionError("it has been used")

    green.__module__ = library
    return green


@pytest.mark.parametrize(
    ("library", "place"),
    [
        ("gevent.thread", "_thread.allocate_lock"),
        ("gevent.thread", "_thread.start_new_thread"),
        ("gevent.thread", "threading.Lock"),
        ("gevent._gevent_cevent", "threading.Event"),
        ("gevent._gevent_cqueue", "queue.SimpleQueue"),
        ("eventlet.green.thread", "_thread.allocate_lock"),
        ("eventlet.queue", "queue.SimpleQueue"),
    ],
)
def test_green_threads_locks_and_queues_are_refused_by_name(
    library: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, _, name = place.partition(".")
    monkeypatch.setattr(MODULES[module], name, of(library))
    with pytest.raises(ConfigError) as refused:
        refuse_green_threads("run()")
    said = str(refused.value)
    name = library.partition(".")[0]
    assert said.startswith(f"run(): {name} has replaced {place}, on which the threads of the Kafka")
    assert "start without monkey patching, or with " in said
    without = {"gevent": "thread=False, queue=False)", "eventlet": "monkey_patch(thread=False)"}
    assert said.endswith(without[name])


@pytest.mark.parametrize(
    ("library", "place"),
    [
        ("gevent.hub", "time.sleep"),
        ("gevent.select", "select.select"),
        ("gevent._socket3", "socket.socket"),
        ("pydevd", "_thread.start_new_thread"),
        ("ddtrace.profiling", "threading.Lock"),
    ],
)
def test_what_else_is_replaced_or_by_a_debugger_is_not_refused(
    library: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, _, name = place.partition(".")
    monkeypatch.setattr(MODULES[module], name, of(library))
    refuse_green_threads("run()")
    assert getattr(MODULES[module], name).__module__ == library


def green_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let locks be greenlets' from now on, as patch_all() does."""
    monkeypatch.setattr(threading, "Lock", of("gevent.thread"))


CALLS: dict[str, Callable[[Any], Any]] = {
    "KeyShared()": lambda _: KeyShared(CONF, ["t"]),
    "KeyShared.wrap()": lambda made: KeyShared.wrap(made.consumer, topics=["t"]),
    "split()": lambda made: split(made.consumer, 2, topics=["t"]),
    "Reader()": lambda _: Reader(CONF, ["t"], "0-9"),
    "Reader.open()": lambda made: made.reader.open(),
    "run()": lambda made: made.app.run(),
    "run_async()": lambda made: asyncio.run(made.app.run_async()),
}


@pytest.mark.parametrize("call", CALLS)
def test_nothing_is_made_and_nothing_begins_also_where_they_were_replaced_later(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = KeyShared(CONF, ["t"])
    app.handler(lambda record: None)
    with Consumer(CONF) as consumer:
        made = SimpleNamespace(app=app, consumer=consumer, reader=Reader(CONF, ["t"], "0-9"))
        with monkeypatch.context() as patched:
            green_locks(patched)
            with pytest.raises(
                ConfigError, match=r"gevent has replaced threading\.Lock"
            ) as refused:
                CALLS[call](made)
    assert str(refused.value).startswith(f"{call}: ")

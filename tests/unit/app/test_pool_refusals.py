"""What no pool can run, refused by name before anything is consumed, with what to do instead."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.config.worker_options import MOST
from kafka_keyshared.errors import ConfigError
from tests.support.offline_instance import CONF, OfflineBroker


def an_app(**options: Any) -> KeyShared:
    return KeyShared(CONF, ["orders"], hooks=OfflineBroker().hooks, **options)


@pytest.mark.parametrize(
    "workers",
    [
        *(0, -3, 2.5, True, None, ["4"]),
        *("", "four", "thread:-1", "thread:0", "thread:", "threads:4", "THREAD:4", "4 threads"),
        *("asyncio", "asyncio:0", "asyncio:-1", "process:x", "process:0", "process:1e3", "pull:2"),
    ],
)
def test_what_says_no_number_of_workers_is_refused_with_all_that_may_be_said(workers: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        an_app(workers=workers)
    assert str(refused.value) == (
        f"workers={workers!r}: give a number of threads such as 16 or 'thread:16', at least 1 "
        "worker; 'asyncio:1000' for 1000 concurrent coroutines, 'process:4' for processes; or "
        "'pull' for members that ask for records"
    )


@pytest.mark.parametrize(
    ("workers", "instead"),
    [
        ("asyncio:1000000", "100000; give 'asyncio:100000', or fewer"),
        ("process:1001", "1000; give 'process:1000', or fewer"),
        ("thread:999999999", "10000; give 'thread:10000', or fewer"),
        (10_001, "10000; give 'thread:10000', or fewer"),
    ],
)
def test_more_workers_than_anybody_means_are_refused_before_they_are_made(
    workers: Any, instead: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        an_app(workers=workers)
    assert str(refused.value) == f"workers={workers!r}: the maximum is {instead}"


@pytest.mark.parametrize(
    ("workers", "many"), [(4, 10_001), ("asyncio:4", 100_001), ("process:4", 1_001)]
)
def test_nor_are_they_ordered_while_it_runs(workers: Any, many: int) -> None:
    app = an_app(workers=workers)
    with pytest.raises(ConfigError, match=rf"scale\({many}\): the maximum is {many - 1}; give"):
        app.scale(many)
    with pytest.raises(ConfigError, match=r"scale\(-1\): give at least 1 worker"):
        app.scale(-1)


def test_as_many_as_there_may_be_are_taken() -> None:
    assert an_app(workers=f"asyncio:{MOST['asyncio']}").options.coroutines == MOST["asyncio"]


async def waits(record: Any) -> None: ...


class Waits:
    async def handle(self, record: Any) -> None: ...


class MovesLater:
    def handle(self, record: Any) -> None: ...
    async def release(self, slots: Any) -> Any: ...
    def adopt(self, slots: Any, state: Any) -> None: ...


def computes(record: Any) -> None: ...


def yields(record: Any) -> Any:
    yield record


def takes_nothing() -> None: ...


@pytest.mark.parametrize(
    ("handler", "workers", "named"),
    [
        (waits, 8, "waits is declared with 'async def', and the workers are threads: give"),
        (waits, "process:2", "'async def', and the workers are processes: give workers='asyncio:"),
        (Waits, 8, r"Waits\.handle is declared with 'async def', and the workers are threads"),
        (MovesLater, 8, r"MovesLater\.release is declared with 'async def': state moves between"),
        (computes, "asyncio:8", "computes is declared with 'def', and would keep the event loop"),
        (yields, 8, "yields contains 'yield', so calling it would run nothing of it"),
        (takes_nothing, 8, r"takes_nothing\(\).* is called with one record: too many"),
        (computes, "pull", None),
    ],
)
def test_a_handler_that_its_workers_cannot_run_is_refused_where_it_is_named(
    handler: Callable[..., Any], workers: Any, named: str | None
) -> None:
    app = an_app(workers=workers)
    if named is None:  # only the run knows that there is to be no member
        app.handler(handler)
        with pytest.raises(ConfigError, match="workers='pull' and a handler: members ask for rec"):
            app.run()
        return
    with pytest.raises(ConfigError, match=named):
        app.handler(handler)


def test_a_batch_handler_is_told_of_the_list_that_it_is_called_with() -> None:
    app = an_app()
    with pytest.raises(ConfigError, match=r"takes_nothing\(\).* is called with a list of"):
        app.batch_handler()(takes_nothing)


def test_a_batch_handler_is_refused_where_it_would_be_called_with_one_record() -> None:
    """As by ``keyshared run file.py:store``, which makes an app of its own."""

    @an_app().batch_handler()
    def store(records: Any) -> None: ...

    with pytest.raises(ConfigError, match=r"store takes several records .* \(file\.py:app\)"):
        an_app().handler(store)


@pytest.mark.parametrize(
    ("handler", "named"),
    [
        (lambda record: None, "<lambda>"),
        (functools.partial(print, threading.Lock()), "lock"),
    ],
)
def test_what_cannot_be_sent_to_a_process_is_refused_at_the_start(handler: Any, named: str) -> None:
    app = an_app(workers="process:2")
    app.handler(handler)
    with pytest.raises(ConfigError, match=r"cannot be sent to another process: .*workers=16") as no:
        app.run()
    assert named in str(no.value)
    assert "define it at the top level of a module" in str(no.value)

"""An app whose workers are coroutines, without a broker."""

from __future__ import annotations

import asyncio
import functools
import threading
from contextvars import ContextVar, copy_context
from itertools import chain
from typing import Any

import pytest

from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.runtime.command_queue import OrderRefusedError
from tests.support.offline_instance import CONF, OfflineBroker
from tests.support.records import record

WAIT = 60.0


def an_app(broker: OfflineBroker, workers: str = "asyncio:50", **options: Any) -> KeyShared:
    return KeyShared(CONF, ["orders"], workers=workers, hooks=broker.hooks, **options)


def test_each_key_is_in_order_and_everything_is_committed() -> None:
    broker = OfflineBroker(*(record(offset, f"key-{offset % 7}") for offset in range(200)))
    app = an_app(broker, retry={"backoff": 0})
    ran: dict[Any, list[int]] = {}
    failed: set[int] = set()

    @app.handler
    async def handle(item: Any) -> None:
        await asyncio.sleep(0.001 * (item.offset() % 3))
        if item.offset() % 20 == 3 and item.offset() not in failed:
            failed.add(item.offset())
            raise ValueError
        ran.setdefault(item.key(), []).append(item.offset())
        if sum(map(len, ran.values())) == 200:
            app.stop()

    assert app.run() == 0
    assert len(failed) == 10
    assert sorted(chain.from_iterable(ran.values())) == [*range(200)]
    assert all(offsets == sorted(offsets) for offsets in ran.values())
    assert broker.positions()[-1] == 200


def test_the_line_at_the_start_says_how_many_run_at_once() -> None:
    app = an_app(OfflineBroker(), "asyncio:1000")
    assert "1,000 coroutines" in app.banner()
    assert app.subscription.workers == ("worker-0",)
    assert app.subscription.prefetch_records == 2_000


def test_how_many_run_at_once_is_changed_while_it_runs_and_refused_beyond_its_leases() -> None:
    app = an_app(OfflineBroker(record(0)), "asyncio:2")
    said: list[object] = []

    def ask() -> None:
        for workers, subscription in ((8, "default"), (3_000, "default"), (3, "audit")):
            try:
                said.append(app.scale(workers, subscription=subscription))
            except OrderRefusedError as error:
                said.append(str(error))
        app.stop()

    asking = threading.Thread(target=ask)

    @app.handler
    async def handle(_item: Any) -> None:
        asking.start()

    assert app.run() == 0
    asking.join(WAIT)
    assert said == [
        ("worker-0",),
        "scale(3000): a worker holds 1000 records at most; make the app with prefetch_records=6000",
        "scale(3): there is no subscription 'audit'; there is 'default'",
    ]


def test_a_record_past_the_ack_timeout_is_cancelled_and_runs_again() -> None:
    broker = OfflineBroker(record(0, "a"), record(1, "b"))
    app = an_app(broker, ack_timeout=1.0, retry={"backoff": 0})
    cancelled: list[int] = []

    @app.handler
    async def handle(item: Any) -> None:
        if item.offset() == 0 and not cancelled:
            try:
                await asyncio.sleep(WAIT)
            except asyncio.CancelledError:
                cancelled.append(item.offset())
                raise
        elif item.offset() == 0:
            app.stop()

    assert app.run() == 0
    assert cancelled == [0]
    assert broker.positions()[-1] == 2


def test_what_does_not_fit_is_refused_by_name() -> None:
    app = an_app(OfflineBroker(), "asyncio:4")

    def handle(_item: Any) -> None: ...

    with pytest.raises(ConfigError, match="handle is declared with 'def'"):
        app.handler(handle)
    with pytest.raises(ConfigError, match="workers='asyncio:4', which need a handler"):
        app.join("member")
    with pytest.raises(ConfigError, match="at least 1"):
        app.scale(0)
    with pytest.raises(ConfigError, match="'asyncio:1000' for 1000 concurrent"):
        KeyShared(CONF, ["orders"], workers="asyncio:0")


async def waits(_item: Any) -> None: ...


def counts(_item: Any) -> None: ...


class Waiting:
    async def handle(self, record: Any) -> None: ...


class Callable_:  # noqa: N801 - as an object that is called
    async def __call__(self, record: Any) -> None: ...


@pytest.mark.parametrize("handler", [waits, Waiting, Callable_(), functools.partial(waits)])
def test_where_workers_are_not_given_a_coroutine_function_chooses_the_loop(handler: Any) -> None:
    app = KeyShared(CONF, ["orders"], key=lambda record: record.value(), retry={"attempts": 3})
    app.handler(handler)
    assert (app.options.pool, app.options.coroutines) == ("asyncio", 1_000)
    assert app.subscription.workers == ("worker-0",)
    assert app.subscription.prefetch_records == 2_000
    assert app.subscription.individually and app.subscription.detaches is None
    assert app.subscription.key_of is not None and app.subscription.retry.attempts == 3
    app.handler(counts)
    assert app.options.pool == "thread" and len(app.subscription.workers) == 16
    assert not app.subscription.individually


@pytest.mark.parametrize("workers", [8, "thread:8", "process:2"])
def test_where_they_are_given_nothing_else_is_chosen(workers: Any) -> None:
    app = KeyShared(CONF, ["orders"], workers=workers)
    with pytest.raises(ConfigError, match="waits is declared with 'async def'"):
        app.handler(waits)
    app.handler(counts)
    assert app.options.workers == workers


def test_what_names_a_worker_that_the_loop_has_not_is_refused_with_the_reason() -> None:
    app = KeyShared(CONF, ["orders"], weights={"worker-3": 2.0})
    with pytest.raises(ConfigError, match=r"waits .*'async def', so all are one worker.*worker-3"):
        app.handler(waits)


def test_what_has_chosen_the_loop_runs_there() -> None:
    broker = OfflineBroker(record(0), record(1))
    app = KeyShared(CONF, ["orders"], hooks=broker.hooks)
    threads: set[str] = set()

    @app.handler
    async def handle(item: Any) -> None:
        threads.add(threading.current_thread().name)
        if item.offset() == 1:
            app.stop()

    assert app.run() == 0
    assert threads == {"keyshared-asyncio"}
    assert broker.positions()[-1] == 2


TENANT: ContextVar[str] = ContextVar("tenant", default="nobody")


def test_handlers_find_the_context_of_the_place_where_the_app_was_run() -> None:
    app = an_app(OfflineBroker(record(0)))
    found: list[str] = []

    @app.handler
    async def handle(_item: Any) -> None:
        found.append(TENANT.get())
        app.stop()

    def run() -> int:
        TENANT.set("a tenant")
        return app.run()

    assert copy_context().run(run) == 0
    assert found == ["a tenant"]

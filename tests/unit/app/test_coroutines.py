"""An app whose workers are coroutines, without a broker."""

from __future__ import annotations

import asyncio
import threading
from itertools import chain
from typing import Any

import pytest

from kafka_keyshared.app.service import KeyShared
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.owner.orders import OrderRefusedError
from tests.support.offline import CONF, OfflineBroker
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
    assert app.subscription.leases_per_worker == 2_000


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
        "scale(3000): a worker holds 1000 records at most; make the app with "
        "leases_per_worker=6000",
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
    with pytest.raises(ConfigError, match="workers='asyncio:4', which a handler is for"):
        app.join("member")
    with pytest.raises(ConfigError, match="at least 1"):
        app.scale(0)
    with pytest.raises(ConfigError, match="'asyncio:1000' for so many"):
        KeyShared(CONF, ["orders"], workers="asyncio:0")

"""An app whose handler takes several records at a time, without a broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from itertools import chain
from typing import Any

import pytest

from kafka_keyshared import Drop, Retry
from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.core.subscription.settings import SHARDS_LEAST
from kafka_keyshared.core.workers.shards import shard_of
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import slot_of
from tests.support.offline_instance import CONF, OfflineBroker
from tests.support.records import record

WAIT = 60.0


def an_app(broker: OfflineBroker, **options: Any) -> KeyShared:
    return KeyShared(CONF, ["orders"], hooks=broker.hooks, **options)


@pytest.mark.parametrize("same_key", [False, True])
@pytest.mark.parametrize("workers", [4, "asyncio:4"])
def test_each_key_is_in_order_and_everything_is_committed(
    workers: int | str, same_key: bool
) -> None:
    broker = OfflineBroker(*(record(offset, f"key-{offset % 7}") for offset in range(300)))
    app = an_app(broker, workers=workers, retry={"backoff": 0})
    settled: dict[Any, list[int]] = {}
    failed: set[int] = set()
    sizes: list[int] = []
    lock = threading.Lock()

    def one(item: Any, behind: set[Any]) -> Any:
        if item.key() in behind:
            return None  # it does not count, and is not done
        if item.offset() % 20 == 3 and item.offset() not in failed:
            failed.add(item.offset())
            behind.add(item.key())
            return ValueError("no")
        settled.setdefault(item.key(), []).append(item.offset())
        return Drop() if item.offset() % 20 == 4 else None

    def handle(items: Sequence[Any]) -> Any:
        with lock:
            sizes.append(len(items))
            assert not same_key or len({each.key() for each in items}) == 1
            behind: set[Any] = set()
            verdicts = [one(each, behind) for each in items]
            if sum(map(len, settled.values())) == 300:
                app.stop()
            return verdicts

    async def awaited(items: Sequence[Any]) -> Any:
        await asyncio.sleep(0.001)
        return handle(items)

    use = app.batch_handler(size=8, wait=0.001, same_key=same_key)
    use(handle if workers == 4 else awaited)
    assert app.run() == 0
    assert len(failed) == 15
    assert sorted(chain.from_iterable(settled.values())) == [*range(300)]
    assert all(offsets == sorted(offsets) for offsets in settled.values())
    assert broker.positions()[-1] == 300
    assert 1 < max(sizes) <= 8


def test_a_poisoned_record_is_dead_lettered_or_blocks_alone() -> None:
    """The others of its call are settled, however often it fails."""
    broker = OfflineBroker(*(record(offset, f"key-{offset}") for offset in range(10)))
    app = an_app(broker, workers=1, retry={"backoff": 0, "attempts": 2})
    done: set[int] = set()
    alone: list[int] = []

    @app.batch_handler(size=10, wait=0.05)
    def handle(items: Sequence[Any]) -> None:
        if any(each.offset() == 4 for each in items):
            alone.append(len(items))
            if alone.count(1) == 2:
                app.stop()
            raise ValueError("no")
        done.update(each.offset() for each in items)

    assert app.run() == 0
    assert done == {*range(10)} - {4}
    assert alone.count(1) == 2, "each attempt was its own"
    assert broker.positions()[-1] == 4


def test_a_call_that_says_retry_is_not_split() -> None:
    broker = OfflineBroker(*(record(offset, f"key-{offset}") for offset in range(4)))
    app = an_app(broker, workers=1)
    calls: list[int] = []

    @app.batch_handler(size=4, wait=60.0)
    def handle(items: Sequence[Any]) -> None:
        calls.append(len(items))
        if len(calls) == 1:
            raise Retry(after=0)
        app.stop()

    assert app.run() == 0
    assert calls == [4, 4]


def test_while_a_worker_is_in_a_call_another_one_takes_all_that_it_has_no_room_for() -> None:
    by_shard = {shard_of(slot_of(key), SHARDS_LEAST): key for key in map(b"%d".__mod__, range(500))}
    broker = OfflineBroker(*(record(at, key) for at, key in enumerate(by_shard.values())))
    app = an_app(broker, workers=2)
    others: list[int] = []
    first, enough = threading.Event(), threading.Event()

    @app.batch_handler(size=2)
    def handle(items: Sequence[Any]) -> None:
        if not first.is_set():
            first.set()
            assert enough.wait(WAIT), f"{len(others)} others have run"
            app.stop()
        else:
            others.extend(each.offset() for each in items)
            if len(others) >= SHARDS_LEAST - 2 * 2:  # a call runs, and another one waits behind it
                enough.set()

    assert app.run() == 0


def test_what_the_settings_are_with_batches_and_without() -> None:
    app = an_app(OfflineBroker(), workers=2, key=lambda item: item.value())

    @app.batch_handler(size=900)
    def handle(items: Any) -> None: ...

    assert app.subscription.individually and app.subscription.shares
    assert app.subscription.prefetch_records == 1_800
    assert app.subscription.key_of is not None

    @app.batch_handler(size=10, same_key=True)
    def of_one_key(items: Any) -> None: ...

    assert not app.subscription.shares
    assert app.subscription.prefetch_records == 1_000

    @app.handler
    def single(item: Any) -> None: ...

    assert not app.subscription.individually and app.subscription.shares
    assert app.subscription.prefetch_records == 1_000
    assert app.subscription.key_of is not None


def test_a_coroutine_function_chooses_calls_on_a_loop_and_leases_for_all_of_them() -> None:
    app = an_app(OfflineBroker())

    @app.batch_handler(size=500)
    async def handle(items: Any) -> None: ...

    assert app.options.workers == "asyncio:16"
    assert "16 coroutines" in app.banner()
    assert app.subscription.prefetch_records == 2 * 16 * 500


def test_a_call_past_the_ack_timeout_is_cancelled_and_only_what_hangs_alone_has_failed() -> None:
    broker = OfflineBroker(*(record(offset, f"key-{offset}") for offset in range(4)))
    app = an_app(broker, workers="asyncio:2", ack_timeout=1.0, retry={"backoff": 0, "attempts": 2})
    calls: list[list[int]] = []

    @app.batch_handler(size=4, wait=0.5)
    async def handle(items: Sequence[Any]) -> None:
        calls.append([each.offset() for each in items])
        if calls.count([2]) == 2:
            app.stop()
        elif 2 in calls[-1]:
            await asyncio.sleep(WAIT)

    assert app.run() == 0
    together, *alone, again = calls
    assert sorted(together) == [0, 1, 2, 3]
    assert sorted(alone) == [[0], [1], [2], [3]]
    assert again == [2]
    assert broker.positions()[-1] == 4


async def waits(items: Any) -> None: ...


def counts(items: Any) -> None: ...


@pytest.mark.parametrize(
    ("handler", "options", "rule", "named"),
    [
        (counts, {}, {"size": 0}, r"batch_handler\(size=0\)"),
        (counts, {}, {"size": 2.5}, r"batch_handler\(size=2\.5\)"),
        (counts, {}, {"wait": -1}, r"batch_handler\(wait=-1\)"),
        (counts, {}, {"size": True}, r"batch_handler\(size=True\)"),
        (counts, {}, {"size": "10"}, r"batch_handler\(size='10'\)"),
        (counts, {}, {"size": 10_001}, "the window has only window_records=10000 records"),
        (
            waits,
            {"window_records": 90},
            {},
            r"size=100\): the window has only window_records=90 rec",
        ),
        (counts, {}, {"wait": True}, r"batch_handler\(wait=True\)"),
        (counts, {}, {"wait": "1"}, r"batch_handler\(wait='1'\)"),
        (counts, {}, {"wait": 3_601}, "from 0 to 3600"),
        (counts, {}, {"same_key": "no"}, r"same_key='no'\): give True or False"),
        (counts, {}, {"wait": float("nan")}, r"batch_handler\(wait=nan\)"),
        (counts, {"workers": "process:2"}, {}, "in processes: .* give a number of threads such"),
        (waits, {"workers": "process:2"}, {}, "in processes: .* give workers='asyncio:16', or"),
        (counts, {"workers": "pull"}, {}, "counts and members that ask for records: they take"),
        (counts, {"workers": "asyncio:9"}, {}, "counts is declared with 'def', and would keep"),
        (waits, {"workers": 4}, {}, "waits is declared with 'async def', and the workers are"),
        (lambda: None, {"workers": "asyncio:9"}, {}, "is called with"),
        (counts, {"value_deserializer": lambda *_: None}, {}, "decode in the handler"),
        (lambda: None, {}, {}, "is called with"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    handler: Any, options: dict[str, Any], rule: dict[str, Any], named: str
) -> None:
    app = KeyShared(CONF, ["orders"], **options)
    with pytest.raises(ConfigError, match=named):
        app.batch_handler(**rule)(handler)


def test_a_batch_handler_without_parentheses_is_told_to_have_some() -> None:
    bare: Any = KeyShared(CONF, ["orders"]).batch_handler
    with pytest.raises(ConfigError, match=r"@app\.batch_handler\(size=100\)"):
        bare(counts)

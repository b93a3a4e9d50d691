"""What order, retries and safe commits cost a handler that awaits: asyncio:1000 and 2 ms of sleep.

Held against a bare event loop that makes a task for each record and guards nothing: no order, no
limit, and positions committed that may be ahead of what is done. Both read the same topic in one
process, in turn, on loops of the same kind; time runs from the first record to the acknowledged
last commit.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import statistics
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal
from unittest import mock

from confluent_kafka import Consumer, KafkaException

from kafka_keyshared.app.hooks import Hooks
from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.executors.coroutines.event_loop import new_loop
from kafka_keyshared.lab.bench.child import COMMIT_INTERVAL, StallDetector, settled
from kafka_keyshared.lab.bench.common import key_of, produce_all
from kafka_keyshared.runtime.instance_view import InstanceView
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster

Loop = Literal["asyncio", "uvloop"]

TOPIC = "coroutines"
FETCH = 500
"""Records that the bare loop takes at once."""


@dataclass(frozen=True, slots=True)
class AwaitingPlan:
    """What all sides read; ``sleep`` is in seconds, ``loop`` whose event loop it is."""

    loop: Loop = "asyncio"
    records: int = 300_000
    partitions: int = 8
    keys: int = 10_000
    sleep: float = 0.002


@dataclass(frozen=True, slots=True)
class CoroutinePlan(AwaitingPlan):
    """What each of the two sides does so often."""

    workers: str = "asyncio:1000"
    pairs: int = 9


def conf_of(bootstrap: str, group: str) -> dict[str, Any]:
    """Return the settings of the client, the same on both sides."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "queued.min.messages": 1_000_000,
    }


async def bare(plan: CoroutinePlan, conf: dict[str, Any]) -> float:
    """Make a task for each record; return the seconds that all took."""

    async def handle(_record: Any) -> None:
        await asyncio.sleep(plan.sleep)

    consumer = Consumer(conf)
    consumer.subscribe([TOPIC])
    tasks: set[asyncio.Task[None]] = set()
    started = committed = 0.0
    done = 0
    patience = StallDetector()
    while done < plan.records:
        # On another thread while there is nothing else to do, else without waiting.
        messages = (
            consumer.consume(FETCH, 0.0)
            if tasks
            else await asyncio.to_thread(consumer.consume, FETCH, 0.1)
        )
        now = time.monotonic()
        if messages and not started:
            started = committed = now
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            task = asyncio.create_task(handle(message))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        done += len(messages)
        patience.check(done, "arrived")
        if started and now - committed >= COMMIT_INTERVAL:
            committed = now
            consumer.commit(offsets=consumer.position(consumer.assignment()), asynchronous=True)
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    consumer.commit(offsets=consumer.position(consumer.assignment()), asynchronous=False)
    seconds = time.monotonic() - started
    consumer.close()
    return seconds


def ours(plan: CoroutinePlan, conf: dict[str, Any]) -> float:
    """Have the package run them; return the seconds that all took."""

    def use(app: KeyShared) -> None:
        @app.handler
        async def handle(_record: Any) -> None:
            await asyncio.sleep(plan.sleep)

    return run_ours(conf, plan.workers, plan.records, use)


def run_ours(
    conf: dict[str, Any], workers: str, records: int, use: Callable[[KeyShared], None]
) -> float:
    """Run the package over so many records with the handler that ``use`` gives it.

    Returns the seconds from the first record to the acknowledged last commit.
    """
    answered = 0.0
    patience = StallDetector()

    def on_commit(error: Any, _partitions: Any) -> None:
        nonlocal answered
        if error is None:
            answered = time.monotonic()

    def stepped(view: InstanceView) -> None:
        done = settled(view)
        patience.check(done, "settled")
        if done >= records:
            app.stop()

    app = KeyShared(
        {**conf, "on_commit": on_commit},
        [TOPIC],
        workers=workers,
        commit_interval=COMMIT_INTERVAL,
        hooks=Hooks(stepped=stepped),
    )
    use(app)
    status = app.run()
    instance = app.instance
    if status or instance is None or instance.loop.stats.first_record_at is None:
        raise KeySharedError(f"the run ended with status {status}")
    return answered - instance.loop.stats.first_record_at


@contextmanager
def loops_of(kind: Loop) -> Iterator[None]:
    """Have both sides make event loops of that kind: the package takes uvloop where it is."""
    if kind == "uvloop":
        importlib.import_module("uvloop")  # or it would be asyncio's without a word
        yield
    else:
        with mock.patch.dict(sys.modules, {"uvloop": None}):
            yield


def run_bare(seconds: Coroutine[Any, Any, float]) -> float:
    """Run a side without the package on a loop as the package's."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(seconds)


@contextmanager
def filled(plan: AwaitingPlan) -> Iterator[str]:
    """Have a cluster with the records, and the plan's loops; yield where it is."""
    with EmbeddedCluster() as cluster, loops_of(plan.loop):
        cluster.create_topic(TOPIC, plan.partitions)
        keys = (key_of(number % plan.keys) for number in range(plan.records))
        produce_all(cluster.bootstrap, TOPIC, keys, plan.partitions, 20)
        yield cluster.bootstrap


def measure(plan: CoroutinePlan = CoroutinePlan()) -> dict[str, Any]:
    """Return how many times as fast as the bare loop the package is, pair by pair."""
    with filled(plan) as bootstrap:
        took: list[tuple[float, float]] = []
        for pair in range(plan.pairs):
            gc.collect()
            seconds = run_bare(bare(plan, conf_of(bootstrap, f"bare-{pair}")))
            gc.collect()
            took.append((seconds, ours(plan, conf_of(bootstrap, f"ours-{pair}"))))
    ratios = [without / within for without, within in took]
    return {
        "records": plan.records,
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(each, 3) for each in ratios],
        "bare_per_s": round(plan.records / statistics.median(each for each, _ in took)),
        "ours_per_s": round(plan.records / statistics.median(each for _, each in took)),
        "shortest_s": round(min(min(both) for both in took), 2),
    }

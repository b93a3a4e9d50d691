"""What a batch handler of coroutines gains where a call costs the same for one record and many.

A call sleeps for 2 ms, as a statement does that stores all of its rows. Three sides take the same
topic in turn: ``asyncio:16`` with batches of 100, ``asyncio:1000`` record by record, and a plain
loop that fetches 100 records, awaits one call for them and fetches again. All three keep the order
of keys; time runs from the first record to the acknowledged last commit.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException

from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.lab.bench.child import COMMIT_INTERVAL, StallDetector
from tests.benchmarks.coroutines import (
    TOPIC,
    AwaitingPlan,
    conf_of,
    filled,
    run_bare,
    run_ours,
)


@dataclass(frozen=True, slots=True)
class BatchingPlan(AwaitingPlan):
    """What each side does so often; ``sleep`` is the seconds of a call, of up to ``size``."""

    records: int = 200_000
    size: int = 100
    batched: str = "asyncio:16"
    single: str = "asyncio:1000"
    rounds: int = 9


async def bare(plan: BatchingPlan, conf: dict[str, Any]) -> float:
    """Fetch, await one call for what came, commit once a second."""
    consumer = Consumer(conf)
    consumer.subscribe([TOPIC])
    started = committed = 0.0
    done = 0
    patience = StallDetector()
    while done < plan.records:
        messages = consumer.consume(min(plan.size, plan.records - done), 0.1)
        now = time.monotonic()
        if messages and not started:
            started = committed = now
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
        if messages:
            await asyncio.sleep(plan.sleep)
        done += len(messages)
        patience.check(done, "arrived")
        if started and now - committed >= COMMIT_INTERVAL:
            committed = now
            consumer.commit(offsets=consumer.position(consumer.assignment()), asynchronous=True)
    consumer.commit(offsets=consumer.position(consumer.assignment()), asynchronous=False)
    seconds = time.monotonic() - started
    consumer.close()
    return seconds


def batched(plan: BatchingPlan, conf: dict[str, Any], sizes: list[int]) -> float:
    """Have the package run batches; note how many records each call had."""

    def use(app: KeyShared) -> None:
        @app.batch_handler(size=plan.size)
        async def handle(records: Sequence[Any]) -> None:
            sizes.append(len(records))
            await asyncio.sleep(plan.sleep)

    return run_ours(conf, plan.batched, plan.records, use)


def single(plan: BatchingPlan, conf: dict[str, Any]) -> float:
    """Have the package run a call for each record."""

    def use(app: KeyShared) -> None:
        @app.handler
        async def handle(_record: Any) -> None:
            await asyncio.sleep(plan.sleep)

    return run_ours(conf, plan.single, plan.records, use)


def measure(plan: BatchingPlan = BatchingPlan()) -> dict[str, Any]:
    """Return how many times as fast as the two others batches are, round by round."""
    took: dict[str, list[float]] = {"bare": [], "single": [], "batched": []}
    sizes: list[int] = []
    with filled(plan) as bootstrap:
        for turn in range(plan.rounds):
            confs = {side: conf_of(bootstrap, f"{side}-{turn}") for side in took}
            gc.collect()
            took["bare"].append(run_bare(bare(plan, confs["bare"])))
            gc.collect()
            took["single"].append(single(plan, confs["single"]))
            gc.collect()
            took["batched"].append(batched(plan, confs["batched"], sizes))
    ratios = {
        f"to_{other}": [
            theirs / ours for theirs, ours in zip(took[other], took["batched"], strict=True)
        ]
        for other in ("single", "bare")
    }
    return {
        "records": plan.records,
        **{name: round(statistics.median(each), 3) for name, each in ratios.items()},
        **{f"{name}_rounds": [round(one, 3) for one in each] for name, each in ratios.items()},
        **{
            f"{side}_per_s": round(plan.records / statistics.median(each))
            for side, each in took.items()
        },
        "records_a_call": round(statistics.mean(sizes), 1),
    }

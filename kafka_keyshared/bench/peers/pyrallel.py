"""pyrallel-consumer with its asyncio engine, ordered by key. It needs Python 3.12."""

from __future__ import annotations

import asyncio

from kafka_keyshared.bench.peers.aio import LOOK, Clock
from kafka_keyshared.bench.workloads import Job, Ran, itself, later_of
from kafka_keyshared.pools.loop_host import new_loop


def run_pyrallel(job: Job) -> Ran:
    """Run it with so many records in flight."""
    loop = new_loop()
    try:
        return loop.run_until_complete(_pyrallel(job))
    finally:
        loop.close()


async def _pyrallel(job: Job) -> Ran:
    from pyrallel_consumer.config import KafkaConfig
    from pyrallel_consumer.consumer import PyrallelConsumer
    from pyrallel_consumer.dto import ExecutionMode, OrderingMode, WorkItem

    config = KafkaConfig(
        bootstrap_servers=[job.bootstrap], consumer_group=job.group, auto_offset_reset="earliest"
    )
    config.parallel_consumer.ordering_mode = OrderingMode.KEY_HASH
    config.parallel_consumer.execution.mode = ExecutionMode.ASYNC
    config.parallel_consumer.execution.max_in_flight = job.number
    handle, clock = later_of(job, itself), Clock(job)

    async def worker(item: WorkItem) -> None:
        clock.begin()
        await handle(item.payload)
        clock.count(item.payload)

    consumer = PyrallelConsumer(config=config, worker=worker, topic=job.topic)
    await consumer.start()
    try:
        while not clock.over():
            await asyncio.sleep(LOOK)
        return clock.result()
    finally:
        await consumer.stop()

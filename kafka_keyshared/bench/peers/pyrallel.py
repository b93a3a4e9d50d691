"""pyrallel-consumer with either of its engines, ordered by key. It needs Python 3.12."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from kafka_keyshared.bench.peers.aio import LOOK, Clock
from kafka_keyshared.bench.workloads import Handle, Job, Ran, handler_of, itself, later_of
from kafka_keyshared.pools.loop_host import new_loop

IN_FLIGHT = 2_000
"""Of its own benchmark, with either engine."""


class Payload:
    """A handler of its process engine, which has to be sent there: does the job with the value."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def __call__(self, item: Any) -> None:
        """Handle the value of a record."""
        self._handle(item.payload)


class Completions:
    """Counts what its processes have done, where its own benchmark listens, too."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def observe_work_completion(self, _event: object, item: Any, _seconds: float) -> None:
        """Count a record; time begins with the first."""
        self._clock.begin()
        self._clock.count(item.payload)


def run_coroutines(job: Job) -> Ran:
    """Run its asyncio engine with so many records in flight."""
    return _run(job, in_processes=False)


def run_processes(job: Job) -> Ran:
    """Run so many of its processes."""
    return _run(job, in_processes=True)


def _run(job: Job, *, in_processes: bool) -> Ran:
    loop = new_loop()
    try:
        return loop.run_until_complete(_pyrallel(job, in_processes=in_processes))
    finally:
        loop.close()


async def _pyrallel(job: Job, *, in_processes: bool) -> Ran:
    from pyrallel_consumer.config import KafkaConfig
    from pyrallel_consumer.consumer import PyrallelConsumer
    from pyrallel_consumer.dto import ExecutionMode, OrderingMode, WorkItem

    config = KafkaConfig(
        bootstrap_servers=[job.bootstrap], consumer_group=job.group, auto_offset_reset="earliest"
    )
    config.parallel_consumer.ordering_mode = OrderingMode.KEY_HASH
    execution, clock = config.parallel_consumer.execution, Clock(job)
    worker: Callable[[WorkItem], Any]
    if in_processes:
        execution.mode = ExecutionMode.PROCESS
        execution.max_in_flight = IN_FLIGHT
        execution.process_config.process_count = job.number
        worker = Payload(handler_of(job, itself))
    else:
        execution.mode = ExecutionMode.ASYNC
        execution.max_in_flight = job.number
        handle = later_of(job, itself)

        async def worker(item: WorkItem) -> None:
            clock.begin()
            await handle(item.payload)
            clock.count(item.payload)

    consumer = PyrallelConsumer(config=config, worker=worker, topic=job.topic)
    await consumer.start()
    if in_processes:
        consumer._work_manager.set_metrics_exporter(Completions(clock))
    try:
        while not clock.over():
            await asyncio.sleep(LOOK)
        return clock.result()
    finally:
        await consumer.stop()


RUNNERS: Mapping[str, Callable[[Job], Ran]] = {
    "pyrallel-consumer": run_coroutines,
    "pyrallel-processes": run_processes,
}

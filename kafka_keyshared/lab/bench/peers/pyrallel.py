"""pyrallel-consumer with either of its engines, ordered by key. It needs Python 3.12."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from kafka_keyshared.executors.coroutines.event_loop import new_loop
from kafka_keyshared.lab.bench.peers.aio import LOOK, JobClock
from kafka_keyshared.lab.bench.workloads import (
    BenchJob,
    Handle,
    JobResult,
    handler_of,
    itself,
    later_of,
)

if TYPE_CHECKING:
    from pyrallel_consumer.config import KafkaConfig

IN_FLIGHT = 2_000
"""The value of its own benchmark, with either engine."""


class PyrallelJob:
    """A handler of its process engine, which sends it to processes. It handles a record's value."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def __call__(self, item: Any) -> None:
        """Handle the value of a record."""
        self._handle(item.payload)


class Completions:
    """Counts the records that its processes have done, at the hook that its own benchmark uses."""

    def __init__(self, clock: JobClock) -> None:
        self._clock = clock

    def observe_work_completion(self, _event: object, item: Any, _seconds: float) -> None:
        """Count a record. Time begins with the first."""
        self._clock.begin()
        self._clock.count(item.payload)


def run_coroutines(job: BenchJob) -> JobResult:
    """Run its asyncio engine with the job's number of records in flight."""
    return _run(_coroutines(job))


def run_processes(job: BenchJob) -> JobResult:
    """Run the job's number of its processes."""
    return _run(_processes(job))


def _run(main: Coroutine[Any, Any, JobResult]) -> JobResult:
    loop = new_loop()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()


def _config(job: BenchJob) -> KafkaConfig:
    from pyrallel_consumer.config import KafkaConfig
    from pyrallel_consumer.dto import OrderingMode

    config = KafkaConfig(
        bootstrap_servers=[job.bootstrap], consumer_group=job.group, auto_offset_reset="earliest"
    )
    config.parallel_consumer.ordering_mode = OrderingMode.KEY_HASH
    return config


async def _coroutines(job: BenchJob) -> JobResult:
    from pyrallel_consumer.consumer import PyrallelConsumer
    from pyrallel_consumer.dto import ExecutionMode, WorkItem

    config = _config(job)
    config.parallel_consumer.execution.mode = ExecutionMode.ASYNC
    config.parallel_consumer.execution.max_in_flight = job.number
    handle, clock = later_of(job, itself), JobClock(job)

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


async def _processes(job: BenchJob) -> JobResult:
    """Assemble it as its own benchmark does, which gets its processes' completions that way."""
    from pyrallel_consumer.control_plane.broker_poller import BrokerPoller
    from pyrallel_consumer.control_plane.work_manager import WorkManager
    from pyrallel_consumer.dto import ExecutionMode
    from pyrallel_consumer.execution_plane.engine_factory import create_execution_engine

    config, clock = _config(job), JobClock(job)
    parallel, execution = config.parallel_consumer, config.parallel_consumer.execution
    execution.mode = ExecutionMode.PROCESS
    execution.max_in_flight = IN_FLIGHT
    execution.process_config.process_count = job.number
    engine = create_execution_engine(execution, PyrallelJob(handler_of(job, itself)))
    manager = WorkManager(
        execution_engine=engine,
        max_in_flight_messages=IN_FLIGHT,
        ordering_mode=parallel.ordering_mode,
        max_revoke_grace_ms=execution.max_revoke_grace_ms,
        metrics_exporter=Completions(clock),
    )
    poller = BrokerPoller(
        consume_topic=job.topic,
        kafka_config=config,
        execution_engine=engine,
        work_manager=manager,
    )
    await poller.start()
    try:
        while not clock.over():
            await asyncio.sleep(LOOK)
        return clock.result()
    finally:
        await poller.stop()
        await engine.shutdown()


RUNNERS: Mapping[str, Callable[[BenchJob], JobResult]] = {
    "pyrallel-consumer": run_coroutines,
    "pyrallel-processes": run_processes,
}

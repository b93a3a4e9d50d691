"""Systems built on aiokafka: itself with a task per record, and FastStream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from kafka_keyshared.executors.coroutines.event_loop import new_loop
from kafka_keyshared.lab.bench.child import StallDetector
from kafka_keyshared.lab.bench.paced import STAMP
from kafka_keyshared.lab.bench.workloads import BenchJob, JobResult, by_attribute, itself, later_of

LOOK = 0.01
"""Seconds between two checks of the progress of a system that runs by itself."""


class JobClock:
    """Counts the records of a job, and knows when it is over. Time begins with the first record.

    In a checked run a repeated record does not count again. Members that join one after the other
    repeat records, and those would stand for others that have not come yet.
    """

    def __init__(self, job: BenchJob) -> None:
        self._job = job
        self._patience = StallDetector()
        self._started = self._ended = 0.0
        self._seen: set[int] | None = set() if job.notebook and not job.paced else None
        self.done = 0

    def begin(self) -> None:
        """Start the clock at the first call."""
        self._started = self._started or time.monotonic()

    def count(self, value: bytes | None) -> None:
        """Count a record with this value as done."""
        if self._seen is None:
            self.done += 1
        else:
            self._seen.add(STAMP.unpack_from(value or b"")[0])
            self.done = len(self._seen)
        if self.done == self._job.records and not self._ended:
            self._ended = time.monotonic()

    def over(self) -> bool:
        """Return whether all are done, or the time is up. Raises Stalled without progress."""
        self._patience.check(self.done, "was done")
        late = self._started and time.monotonic() - self._started > self._job.limit
        return self.done >= self._job.records or bool(late)

    def result(self) -> JobResult:
        """Return the result up to the last record, or up to now."""
        return JobResult(
            seconds=(self._ended or time.monotonic()) - self._started, records=self.done
        )


def run_aiokafka(job: BenchJob) -> JobResult:
    """Read with aiokafka, make a task for each record, wait for none."""
    return _run(_aiokafka(job))


def run_faststream(job: BenchJob) -> JobResult:
    """Run a FastStream subscriber with the job's number of workers."""
    return _run(_faststream(job))


def _run(main: Coroutine[Any, Any, JobResult]) -> JobResult:
    loop = new_loop()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()


async def _aiokafka(job: BenchJob) -> JobResult:
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(
        job.topic,
        bootstrap_servers=job.bootstrap,
        group_id=job.group,
        auto_offset_reset="earliest",
    )
    handle, clock = later_of(job, by_attribute), JobClock(job)
    tasks: set[asyncio.Task[None]] = set()

    async def run(record: Any) -> None:
        await handle(record)
        clock.count(record.value)

    await consumer.start()
    try:
        while not clock.over():
            for records in (await consumer.getmany(timeout_ms=10)).values():
                clock.begin()
                for record in records:
                    task = asyncio.create_task(run(record))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
            await asyncio.sleep(0)
        ran = clock.result()
        for task in tasks:
            task.cancel()
    finally:
        await consumer.stop()
    return ran


async def _faststream(job: BenchJob) -> JobResult:
    from faststream import AckPolicy
    from faststream.kafka import KafkaBroker

    broker = KafkaBroker(job.bootstrap, logger=None)
    handle, clock = later_of(job, itself), JobClock(job)

    @broker.subscriber(
        job.topic,
        group_id=job.group,
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.NACK_ON_ERROR,
        max_workers=job.number,
    )
    async def subscribed(body: bytes) -> None:
        clock.begin()
        await handle(body)
        clock.count(body)

    await broker.start()
    try:
        while not clock.over():
            await asyncio.sleep(LOOK)
        return clock.result()
    finally:
        await broker.stop()


RUNNERS: Mapping[str, Callable[[BenchJob], JobResult]] = {
    "aiokafka": run_aiokafka,
    "faststream": run_faststream,
}

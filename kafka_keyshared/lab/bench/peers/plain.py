"""Systems without a library: bare loop, Python's own pools, tasks per record."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from confluent_kafka import Consumer, KafkaException

from kafka_keyshared.executors.coroutines.event_loop import new_loop
from kafka_keyshared.lab.bench.child import COMMIT_INTERVAL, ReadTask, StallDetector, conf_for
from kafka_keyshared.lab.bench.workloads import (
    BenchJob,
    JobResult,
    by_method,
    handler_of,
    itself,
    later_of,
)

FETCH = 10_000
FETCH_SLOW = 1_000
"""Records of a fetch if each takes a while: the limit is checked between fetches."""

SUBMITTED = 10_000
"""Records that a pool of threads has at once, as many as this package's window.

A loop that submits without an end keeps the interpreter from the worker threads. With 2 ms of sleep
a hundred of them did 6,600 records a second behind it, and with this bound 22,700.
"""


class PlainConsumer:
    """A consumer with the package's own client settings, and the clock of a run.

    Time begins with the first record received.
    """

    def __init__(self, job: BenchJob) -> None:
        self._job = job
        reading = ReadTask(side="bare", bootstrap=job.bootstrap, topic=job.topic, group=job.group)
        self._consumer = Consumer(conf_for(reading))
        self._consumer.subscribe([job.topic])
        self._started = self._committed = 0.0
        self._patience = StallDetector()
        self._most = FETCH if job.does.empty else FETCH_SLOW
        self.received = 0

    def fetch(self, wait: float = 0.1) -> list[Any]:
        """Return the records that came within ``wait`` seconds; raise an error of the client."""
        if self._job.paced:
            message = self._consumer.poll(wait)
            found = [] if message is None else [message]
        else:
            # At most the remaining records, or the last call would wait for records that never
            # come.
            left = max(1, self._job.records - self.received)
            found = self._consumer.consume(min(self._most, left), wait)
        for message in found:
            if (error := message.error()) is not None:
                raise KafkaException(error)
        if found and not self._started:
            self._started = self._committed = time.monotonic()
        self.received += len(found)
        return found

    def over(self, done: int) -> bool:
        """Return whether all are done, or the time is up. Raises Stalled without progress."""
        self._patience.check(done, "was done")
        return done >= self._job.records or self.late()

    def late(self) -> bool:
        """Return whether the time is up."""
        return bool(self._started) and time.monotonic() - self._started > self._job.limit

    def commit_now_and_then(self) -> None:
        """Commit the received positions, if the last commit was a second ago."""
        now = time.monotonic()
        if self._started and now - self._committed >= COMMIT_INTERVAL:
            self._committed = now
            self._consumer.commit(offsets=self._positions(), asynchronous=True)

    def _positions(self) -> list[Any]:
        return list(self._consumer.position(self._consumer.assignment()))

    def end(self, done: int) -> JobResult:
        """Commit, leave, and return the records done until the commit was acknowledged."""
        self._consumer.commit(offsets=self._positions(), asynchronous=False)
        seconds = time.monotonic() - self._started
        self._consumer.close()
        return JobResult(seconds=seconds, records=done)


def run_bare(job: BenchJob) -> JobResult:
    """Consume and call the handler in one thread; commit once a second."""
    source, handle, done = PlainConsumer(job), handler_of(job, by_method), 0
    slow = not job.does.empty
    while not source.over(done):
        for message in source.fetch():
            handle(message)
            done += 1
            if slow and source.late():
                break
        source.commit_now_and_then()
    return source.end(done)


def run_thread_pool(job: BenchJob) -> JobResult:
    """Submit each record to an executor, some ahead; commit received records, done or not."""
    source, handle, done = PlainConsumer(job), handler_of(job, by_method), 0
    running: deque[Future[None]] = deque()
    with ThreadPoolExecutor(job.number) as executor:
        submit = executor.submit
        while not source.over(done):
            # With enough submitted, or nothing left to fetch, the loop waits for the executor.
            if len(running) < SUBMITTED and source.received < job.records:
                running.extend([submit(handle, message) for message in source.fetch()])
            elif running:
                running[0].result()
            while running and running[0].done():
                running.popleft().result()
                done += 1
            source.commit_now_and_then()
        done += sum(future.done() for future in running)
        executor.shutdown(wait=False, cancel_futures=True)
    return source.end(done)


def run_process_pool(job: BenchJob) -> JobResult:
    """Let ``multiprocessing.Pool`` map the handler over each fetch, then commit."""
    # Before there is a client: it would not survive a fork, and the processes do not need it.
    with multiprocessing.get_context("spawn").Pool(job.number) as pool:
        source, handle, done = PlainConsumer(job), handler_of(job, itself), 0
        while not source.over(done):
            values = [message.value() for message in source.fetch()]
            if values:
                pool.map(handle, values)
            done += len(values)
            source.commit_now_and_then()
        return source.end(done)


def run_asyncio_tasks(job: BenchJob) -> JobResult:
    """Make a task for each record and wait for none; commit received records, done or not."""
    loop = new_loop()
    try:
        return loop.run_until_complete(_tasks(job))
    finally:
        loop.close()


async def _tasks(job: BenchJob) -> JobResult:
    source, handle, done = PlainConsumer(job), later_of(job, by_method), 0
    tasks: set[asyncio.Task[None]] = set()
    while not source.over(done):
        messages = source.fetch(0.0) if source.received < job.records else []
        for message in messages:
            task = asyncio.create_task(handle(message))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.sleep(0 if messages else 0.0005)
        done = source.received - len(tasks)
        source.commit_now_and_then()
    for task in tasks:
        task.cancel()
    return source.end(done)


RUNNERS: Mapping[str, Callable[[BenchJob], JobResult]] = {
    "bare": run_bare,
    "thread-pool": run_thread_pool,
    "process-pool": run_process_pool,
    "asyncio-tasks": run_asyncio_tasks,
}

"""Real pools for a real instance: what each of them is made of, around the handler of a test."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract.commands import StartWorker
from kafka_keyshared.core.records.lane_identity import Lane, lane_of
from kafka_keyshared.core.subscription.settings import worker_names
from kafka_keyshared.executors.batches.pool import BatchPool
from kafka_keyshared.executors.coroutines.asyncio_batch_worker import CallWorker
from kafka_keyshared.executors.coroutines.asyncio_pool import TaskPool
from kafka_keyshared.executors.coroutines.event_loop import CallersLoop, Host
from kafka_keyshared.executors.failed_lanes import Lanes, own_lanes
from kafka_keyshared.executors.handling.batching import BatchRule
from kafka_keyshared.executors.handling.failure import describe
from kafka_keyshared.executors.handling.handlers import Made
from kafka_keyshared.executors.processes.pool import ProcessPool
from kafka_keyshared.executors.pull.pool import PullPool
from kafka_keyshared.executors.pull.pull_inflight import Cell
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.executors.threads.pool import ThreadPool
from tests.conformance.loop_sides import CallersTasks, OwnTasks
from tests.conformance.pool_sides import (
    Batches,
    CallTasks,
    Instances,
    Members,
    Side,
    Split,
    Threads,
)
from tests.conformance.process_side import Processes

WORKERS = 4
WAIT = 30.0

Maker: TypeAlias = Callable[[Any, Any, Any], Any]
"""Makes a pool for a scene (``ledger``, and ``close`` for what is to be ended), with a handler that
reports to the ledger, and a mailbox."""


def specs(make: Callable[[], Made], **others: Any) -> list[WorkerSpec]:
    """Return what each worker is made of."""
    return [
        WorkerSpec("default", index, name, make, **others)
        for index, name in enumerate(worker_names(WORKERS))
    ]


def thread_pool(_scene: Any, handler: Any, mailbox: Any) -> ThreadPool:
    """Threads with a function."""
    return ThreadPool(specs(lambda: Made(handler)), mailbox, Clock())


def instance_pool(_scene: Any, handler: Any, mailbox: Any) -> ThreadPool:
    """Threads with an instance of a handler class each."""
    return ThreadPool(specs(lambda: Made(handler), one_thread=True), mailbox, Clock())


def task_pool(_scene: Any, handler: Any, mailbox: Any, host: Host | None = None) -> TaskPool:
    """Coroutines on a loop with a thread of its own."""

    async def awaiting(record: Any) -> Any:
        await asyncio.sleep(0.001 * (record.offset() % 3))
        return handler(record)

    return TaskPool(specs(lambda: Made(awaiting)), mailbox, Clock(), limit=50, host=host)


def callers_pool(scene: Any, handler: Any, mailbox: Any) -> TaskPool:
    """Coroutines on a loop that a caller runs."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def make() -> CallersLoop:
        return CallersLoop()

    def close() -> None:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WAIT)
        for task in asyncio.all_tasks(loop):  # runners that rest
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    scene.close = close
    host = asyncio.run_coroutine_threadsafe(make(), loop).result(WAIT)
    return task_pool(scene, handler, mailbox, host)


def batch_pool(_scene: Any, handler: Any, mailbox: Any) -> BatchPool:
    """Threads whose handler takes several records, and answers for each."""
    handle = partial(answers, handler)
    return BatchPool(specs(lambda: Made(handle)), mailbox, Clock(), BatchRule(20, 0.002))


def call_pool(_scene: Any, handler: Any, mailbox: Any) -> TaskPool:
    """The same on a loop, with calls that now and then fail as a whole."""
    chance = random.Random(5)

    async def handle(records: Sequence[Any]) -> Any:
        await asyncio.sleep(0.001 * (records[0].offset() % 3))
        if len(records) > 1 and chance.random() < 0.1:
            raise OSError
        return answers(handler, records)

    make = partial(CallWorker, BatchRule(20, 0.002))
    return TaskPool(specs(lambda: Made(handle)), mailbox, Clock(), limit=5, make=make)


def answers(handler: Any, records: Sequence[Any]) -> list[Any]:
    """Return what a handler of several answers that goes on behind each record that fails."""
    failed: set[Lane] = set()
    found: list[Any] = []
    for record in records:
        found.append(None)
        if record.key() is not None and lane_of(record) in failed:
            continue
        try:
            handler(record)
        except ValueError as error:
            found[-1] = error
            failed.add(lane_of(record))
    return found


@dataclass(frozen=True)
class Flaky:
    """Makes a handler that fails now and then, in whatever process."""

    share: float = 0.03

    def __call__(self) -> Made:
        return Made(self.handle)

    def handle(self, record: Any) -> None:
        """Fail, or not."""
        del record
        if random.random() < self.share:
            raise ValueError


def process_pool(scene: Any, _handler: Any, mailbox: Any) -> ProcessPool:
    """Processes; what their handlers do the parent notes."""
    return ProcessPool(specs(Flaky(), called=scene.ledger.called), mailbox, Clock())


class Manned(PullPool):
    """Members with a thread each, which receives, runs the handler and says how it has ended."""

    handler: Any

    def start(self, lanes: Lanes = own_lanes) -> None:
        """Start the threads, too."""
        super().start(lanes)
        for cell in self.cells.values():
            self._man(cell)

    def add(self, worker: StartWorker) -> None:
        """Start one more, too."""
        super().add(worker)
        self._man(self.cells[worker.subscription, worker.worker])

    def _man(self, cell: Cell) -> None:
        threading.Thread(target=self._work, args=(cell,), daemon=True).start()

    def _work(self, cell: Cell) -> None:
        while taken := cell.take(3, None):
            for slice_ in taken:
                if slice_ not in cell.held():
                    continue  # one of its key has failed before it
                try:
                    self.handler(slice_.records[0])
                except ValueError as error:
                    cell.fail(slice_, describe(error, Clock()))
                else:
                    cell.settle([slice_])


def pull_pool(_scene: Any, handler: Any, mailbox: Any, *, ascending: bool = False) -> Manned:
    """Members that settle records one by one."""
    pool = Manned(mailbox, Clock(), ascending=ascending)
    pool.handler = handler
    for name in worker_names(WORKERS):
        pool.join(name)
    return pool


def split_pool(scene: Any, handler: Any, mailbox: Any) -> Manned:
    """Members that settle by offsets."""
    return pull_pool(scene, handler, mailbox, ascending=True)


MAKERS: Mapping[type[Side], Maker] = {
    Threads: thread_pool,
    Instances: instance_pool,
    OwnTasks: task_pool,
    CallersTasks: callers_pool,
    Batches: batch_pool,
    CallTasks: call_pool,
    Processes: process_pool,
    Members: pull_pool,
    Split: split_pool,
}
"""What is behind each kind of pool that a program has, under an instance."""

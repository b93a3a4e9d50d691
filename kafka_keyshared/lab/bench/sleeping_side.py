"""One measured process whose work is sleeping: the package, or bare threads.

There are three kinds. ``keyshared`` runs the package over the topic. ``queue`` reads the topic with
a bare consumer into one queue. Bare threads take the records from it in any order. ``threads``
reads nothing: bare threads only sleep, as often as there are records. Run as ``python -m
kafka_keyshared.lab.bench.sleeping_side`` with the task as JSON on standard input. The result is one
line of JSON on standard output.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from confluent_kafka import Consumer, KafkaException

from kafka_keyshared.lab.bench.child import (
    ReadTask,
    StallDetector,
    Stalled,
    conf_for,
    read_task,
    run_app,
    settled,
    tell_parent,
)

if TYPE_CHECKING:
    from kafka_keyshared.app.keyshared import KeyShared
    from kafka_keyshared.runtime.instance_view import InstanceView

Kind = Literal["keyshared", "queue", "threads"]

FETCH = 1_000
QUEUED = 10_000
"""Records in the queue at which the bare reader waits: as many as the package's window has."""

QUEUE_FULL_WAIT = 0.001
"""Seconds that the bare reader waits for room in the queue."""


class SleepTask(ReadTask, kw_only=True, forbid_unknown_fields=True):
    """The run of one side: each of ``records`` sleeps ``sleep_ms``, on ``threads`` threads."""

    kind: Kind
    records: int
    threads: int
    sleep_ms: float


class Makespan(msgspec.Struct, kw_only=True):
    """Seconds from the first record received until the last of ``records`` has ended."""

    seconds: float
    records: int


def _sleep(seconds: float, _record: Any) -> None:
    time.sleep(seconds)


def run_keyshared(task: SleepTask) -> Makespan:
    """Run the package until its owner thread has settled the last record."""
    patience = StallDetector()
    ended: list[float] = []

    def stepped(app: KeyShared, view: InstanceView) -> None:
        done = settled(view)
        if done < task.records:
            patience.check(done, "settled")
        elif not ended:
            ended.append(time.monotonic())
            app.stop()

    loop = run_app(task, conf_for(task), partial(_sleep, task.sleep_ms / 1e3), stepped)
    began, done = loop.stats.first_record_at, settled(loop.core)
    if began is None or not ended:
        raise Stalled(f"the run ended with {done} of {task.records} records settled")
    return Makespan(seconds=ended[0] - began, records=done)


def run_queue(task: SleepTask) -> Makespan:
    """Read with a bare consumer into one queue. Bare threads take from it, in no order."""
    waiting: SimpleQueue[Any] = SimpleQueue()
    counts: list[int] = []

    def work() -> None:
        done, seconds = 0, task.sleep_ms / 1e3
        while waiting.get() is not None:
            time.sleep(seconds)
            done += 1
        counts.append(done)

    threads = _started(task.threads, work)
    consumer = Consumer(conf_for(task))
    consumer.subscribe([task.topic])
    patience, received, began = StallDetector(), 0, 0.0
    while received < task.records:
        messages = consumer.consume(min(FETCH, task.records - received), 0.1)
        patience.check(received, "arrived")
        if messages and not began:
            began = time.monotonic()
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            waiting.put(message)
        received += len(messages)
        while waiting.qsize() > QUEUED:
            time.sleep(QUEUE_FULL_WAIT)
    for _ in threads:
        waiting.put(None)
    for thread in threads:
        thread.join()
    ended = time.monotonic()
    consumer.close()
    return Makespan(seconds=ended - began, records=sum(counts))


def run_threads(task: SleepTask) -> Makespan:
    """Let bare threads sleep, as often as there are records, and do nothing else."""
    together = threading.Barrier(task.threads + 1)
    shares = [len(range(at, task.records, task.threads)) for at in range(task.threads)]

    def work() -> None:
        seconds, share = task.sleep_ms / 1e3, shares.pop()
        together.wait()
        for _ in range(share):
            time.sleep(seconds)

    threads = _started(task.threads, work)
    together.wait()
    began = time.monotonic()
    for thread in threads:
        thread.join()
    return Makespan(seconds=time.monotonic() - began, records=task.records)


def _started(count: int, work: Callable[[], None]) -> list[threading.Thread]:
    # Daemon threads, so that a failed reader does not wait for threads that wait for it.
    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


RUNNERS: Mapping[Kind, Callable[[SleepTask], Makespan]] = {
    "keyshared": run_keyshared,
    "queue": run_queue,
    "threads": run_threads,
}


def main() -> int:
    """Run the task on standard input."""
    task = read_task(SleepTask)
    tell_parent(RUNNERS[task.kind](task))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Waiting process of ``bench idle``: bare poll loop, or this package.

Run as ``python -m kafka_keyshared.lab.bench.idle_side`` with the task as JSON on standard input.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from confluent_kafka import Consumer, KafkaException

from kafka_keyshared.lab.bench.child import (
    IDLE_LIMIT,
    ReadTask,
    Stalled,
    conf_for,
    read_task,
    run_app,
    tell_parent,
)

if TYPE_CHECKING:
    from kafka_keyshared.app.keyshared import KeyShared
    from kafka_keyshared.runtime.instance_view import InstanceView


class IdleTask(ReadTask, kw_only=True, forbid_unknown_fields=True):
    """Parameters of the wait: until ``blocked`` records are held, then ``calm`` plus ``seconds``.

    Both are in seconds, and only the ``seconds`` are measured.
    """

    partitions: int
    blocked: int
    calm: float
    seconds: float


class Spent(msgspec.Struct, kw_only=True):
    """Seconds of processor (user and system, all threads) and of wall clock; records held."""

    cpu_s: float
    wall_s: float
    held: int


class IdleWatch:
    """Starts the measurement once the process has been ready for long enough, and ends it."""

    def __init__(
        self,
        task: IdleTask,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.process_time,
    ) -> None:
        self._task = task
        self._clock, self._cpu = clock, cpu
        self._made = clock()
        self._ready: float | None = None
        self._began: tuple[float, float] | None = None

    def over(self, ready: bool) -> bool:
        """Return whether the time is over. Raises :class:`Stalled` when it does not get ready."""
        now = self._clock()
        if self._ready is None:
            if ready:
                self._ready = now
            elif now - self._made > IDLE_LIMIT:
                raise Stalled(f"not ready to be measured after {IDLE_LIMIT:g} s")
            return False
        if self._began is None:
            if now - self._ready >= self._task.calm:
                self._began = now, self._cpu()
            return False
        return now - self._began[0] >= self._task.seconds

    def spent(self, held: int) -> Spent:
        """Return the use since the measurement began."""
        if self._began is None:
            raise Stalled("it ended before the measurement began")
        wall, cpu = self._began
        return Spent(cpu_s=self._cpu() - cpu, wall_s=self._clock() - wall, held=held)


class PoisonedError(Exception):
    """Raised by the handler for every record."""


def _fail(record: Any) -> None:
    raise PoisonedError(record.offset())


def run_bare(task: IdleTask) -> Spent:
    """Poll with a timeout of 0.1 s and get nothing."""
    consumer = Consumer(conf_for(task))
    consumer.subscribe([task.topic])
    watch = IdleWatch(task)
    while not watch.over(len(consumer.assignment()) == task.partitions):
        message = consumer.poll(0.1)
        if message is not None and message.error():
            raise KafkaException(message.error())
    spent = watch.spent(held=0)
    consumer.close()
    return spent


def run_keyshared(task: IdleTask) -> Spent:
    """Run the package with no record that may start."""
    watch = IdleWatch(task)
    found: list[Spent] = []

    def stepped(app: KeyShared, view: InstanceView) -> None:
        held = view.held()
        ready = (
            len(view.partitions) == task.partitions and held == task.blocked and not view.leased()
        )
        if watch.over(ready) and not found:
            found.append(watch.spent(held))
            app.stop()

    run_app(task, conf_for(task), _fail, stepped, retry={"attempts": 1})
    return found[0]


def main() -> int:
    """Run the task on standard input."""
    task = read_task(IdleTask)
    tell_parent(run_bare(task) if task.side == "bare" else run_keyshared(task))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""One side of ``bench latency``: a bare poll loop, or this package.

It runs in a process of its own. Both sides call the same handler, which notes the delay of its
record in an array that was made beforehand. Run as ``python -m
kafka_keyshared.lab.bench.latency_side`` with the task as JSON on standard input. It writes
``"ready"`` once it is assigned every partition, and at the end the delays.
"""

from __future__ import annotations

import sys
import time
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from confluent_kafka import Consumer, KafkaException

from kafka_keyshared.lab.bench.child import (
    COMMIT_INTERVAL,
    IDLE_LIMIT,
    READY,
    ReadTask,
    StallDetector,
    Stalled,
    conf_for,
    read_task,
    ready_with,
    run_app,
    settled,
    tell_parent,
)
from kafka_keyshared.lab.bench.figures import percentile
from kafka_keyshared.lab.bench.paced import NS_PER_MS, STAMP

if TYPE_CHECKING:
    from kafka_keyshared.app.keyshared import KeyShared
    from kafka_keyshared.runtime.instance_view import InstanceView

UNSEEN = -1
QUIET_END = 10.0
"""Seconds without a record after which a run that began is over, complete or not."""


class LatencyTask(ReadTask, kw_only=True, forbid_unknown_fields=True):
    """Parameters: ``records`` will come, of which the first ``skip`` do not count."""

    records: int
    skip: int
    partitions: int
    handler_ms: float = 0.0


class Delays(msgspec.Struct, kw_only=True):
    """Delays from the due time of records to the start of their handlers; ``seen`` is their number.

    ``cpu_share`` is the process's use of one core, user and system, from the first record on.
    """

    seen: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    cpu_share: float


class Notebook:
    """Delays by the record's number. Any thread may note one, without a lock."""

    def __init__(self, task: LatencyTask) -> None:
        self._task = task
        self._ns = array("q", [UNSEEN]) * task.records
        self._wall = self._cpu = 0.0

    def handler(self) -> Callable[[Any], None]:
        """Return the handler of both sides."""
        unpack, clock, ns = STAMP.unpack_from, time.monotonic_ns, self._ns
        pause = self._task.handler_ms / 1e3

        def handle(record: Any) -> None:
            now = clock()
            number, due = unpack(record.value())
            ns[number] = now - due
            if pause:
                time.sleep(pause)

        return handle

    def begin(self) -> None:
        """Count the process's time from the first call on."""
        if not self._wall:
            self._wall, self._cpu = time.monotonic(), time.process_time()

    def result(self) -> Delays:
        """Return the figures. Raises :class:`Stalled` when no counted record came."""
        counted = sorted(each for each in self._ns[self._task.skip :] if each != UNSEEN)
        if not counted:
            raise Stalled(f"none of {self._task.records} records came after the warm-up")
        wall = time.monotonic() - self._wall
        return Delays(
            seen=len(counted),
            p50_ms=percentile(counted, 0.5) / NS_PER_MS,
            p99_ms=percentile(counted, 0.99) / NS_PER_MS,
            max_ms=counted[-1] / NS_PER_MS,
            cpu_share=(time.process_time() - self._cpu) / wall,
        )


def run_bare(task: LatencyTask) -> Delays:
    """Poll one message at a time and call the handler, as most consumers do."""
    notebook = Notebook(task)
    handle = notebook.handler()

    def assigned(_consumer: Consumer, partitions: Sequence[Any]) -> None:
        if len(partitions) == task.partitions:
            tell_parent(READY)

    consumer = Consumer(conf_for(task))
    consumer.subscribe([task.topic], on_assign=assigned)
    done = 0
    patience = StallDetector()
    last_commit = time.monotonic()
    while done < task.records:
        message = consumer.poll(0.1)
        if message is None:
            if patience.still_for(done) > (QUIET_END if done else IDLE_LIMIT):
                break
            continue
        if message.error():
            raise KafkaException(message.error())
        notebook.begin()
        handle(message)
        done += 1
        now = time.monotonic()
        if now - last_commit >= COMMIT_INTERVAL:
            last_commit = now
            consumer.commit(offsets=consumer.position(consumer.assignment()), asynchronous=True)
    result = notebook.result()
    consumer.close()
    return result


def run_keyshared(task: LatencyTask) -> Delays:
    """Run the package until every record is settled, or no further record comes."""
    notebook = Notebook(task)
    patience = StallDetector()
    found: list[Delays] = []

    def stepped(app: KeyShared, view: InstanceView) -> None:
        done = settled(view)
        if done:
            notebook.begin()
        quiet = patience.still_for(done) > (QUIET_END if done else IDLE_LIMIT)
        if not found and (done >= task.records or quiet):
            found.append(notebook.result())
            app.stop()

    run_app(
        task, conf_for(task), notebook.handler(), stepped, rebalanced=ready_with(task.partitions)
    )
    return found[0]


def main() -> int:
    """Run the task on standard input."""
    task = read_task(LatencyTask)
    tell_parent(run_bare(task) if task.side == "bare" else run_keyshared(task))
    return 0


if __name__ == "__main__":
    sys.exit(main())

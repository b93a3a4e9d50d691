"""One side of a measurement, run in a process of its own: the bare loop, or this package.

Both sides get the same topic, client configuration, handler and gc settings. Time runs from the first
record received to the acknowledged final commit; joining the group is not part of it. Run as
``python -m kafka_keyshared.bench.side`` with the task as JSON on standard input; the result is one
line of JSON on standard output.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec
from confluent_kafka import Consumer, KafkaException

from kafka_keyshared.config import client_conf

IDLE_LIMIT = 60.0


class Task(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What to run. ``fail_every`` makes one record in so many fail once; 0 makes none."""

    side: str
    bootstrap: str
    topic: str
    group: str
    records: int
    workers: str = "thread:8"
    max_leases_per_key: int | None = None
    fail_every: int = 0


class Result(msgspec.Struct, kw_only=True):
    """What came of it. ``seconds`` is from the first record to the last acknowledged commit."""

    seconds: float
    records: int
    commits: int
    median_batch: int


def conf_of(task: Task) -> dict[str, Any]:
    """Return the configuration of the client, the same for both sides."""
    return client_conf(
        {
            "bootstrap.servers": task.bootstrap,
            "group.id": task.group,
            "auto.offset.reset": "earliest",
            # A whole topic of small records fits, so that the broker is not what is measured.
            "queued.max.messages.kbytes": 1_048_576,
            "queued.min.messages": 1_000_000,
        }
    )


def handler_of(task: Task) -> Callable[[Any], None]:
    """Return the empty handler, or the one that fails once for some records."""
    if not task.fail_every:
        return _empty
    every = task.fail_every
    failed: set[tuple[int, int]] = set()

    def failing(record: Any) -> None:
        if record.offset() % every == 0:
            place = (record.partition(), record.offset())
            if place not in failed:
                failed.add(place)
                raise ValueError("fails once")

    return failing


def _empty(record: Any) -> None:
    del record


def run_bare(task: Task) -> Result:
    """Consume and call the handler in one thread; commit once a second."""
    commits = 0

    def answered(error: Any, _partitions: Any) -> None:
        nonlocal commits
        if error is None:
            commits += 1

    consumer = Consumer({**conf_of(task), "on_commit": answered})
    consumer.subscribe([task.topic])
    handle = handler_of(task)
    sizes: dict[int, int] = {}
    done, started, last_commit = 0, 0.0, 0.0
    idle_since = time.monotonic()
    while done < task.records:
        messages = consumer.consume(10_000, 0.1)
        now = time.monotonic()
        if not messages:
            if now - idle_since > IDLE_LIMIT:
                raise TimeoutError(f"nothing arrived for {IDLE_LIMIT:g} s after {done} records")
            continue
        idle_since = now
        if not started:
            started = last_commit = now
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            handle(message)
        done += len(messages)
        sizes[len(messages)] = sizes.get(len(messages), 0) + 1
        if now - last_commit >= 1:
            last_commit = now
            consumer.commit(offsets=consumer.position(consumer.assignment()), asynchronous=True)
    consumer.commit(offsets=consumer.position(consumer.assignment()), asynchronous=False)
    seconds = time.monotonic() - started
    consumer.close()
    return Result(seconds=seconds, records=done, commits=commits + 1, median_batch=median_of(sizes))


def run_keyshared(task: Task) -> Result:
    """Run the package until every record is settled and the commit of it acknowledged."""
    from kafka_keyshared.runtime.loop import Loop
    from kafka_keyshared.runtime.service import Hooks, KeyShared

    began = time.monotonic()
    ended = 0.0

    def stepped(loop: Loop) -> None:
        nonlocal ended
        counts = loop.core.subscriptions["default"].counts
        if counts.ok >= task.records and not ended:
            committed = sum(
                loop.core.commits.committed(partition) or 0 for partition in loop.core.partitions
            )
            if committed >= task.records:
                ended = time.monotonic()
                app.stop()
        elif not counts.ok and time.monotonic() - began > IDLE_LIMIT:
            raise TimeoutError(f"nothing arrived for {IDLE_LIMIT:g} s")

    app = KeyShared(
        conf_of(task),
        [task.topic],
        workers=task.workers,
        max_leases_per_key=task.max_leases_per_key,
        hooks=Hooks(stepped=stepped),
    )
    app.handler(handler_of(task))
    app.run()
    if app.loop is None or app.loop.stats.first_record_at is None:
        raise RuntimeError("the run ended before the first record")
    return Result(
        seconds=ended - app.loop.stats.first_record_at,
        records=app.loop.core.subscriptions["default"].counts.ok,
        commits=app.loop.core.commits.accepted_count,
        median_batch=median_of(app.loop.stats.batches),
    )


def median_of(sizes: dict[int, int]) -> int:
    """Return the median of sizes given as {size: how often}."""
    half = sum(sizes.values()) / 2
    seen = 0
    for size in sorted(sizes):
        seen += sizes[size]
        if seen >= half:
            return size
    return 0


def main() -> int:
    """Run the task on standard input."""
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    result = run_bare(task) if task.side == "bare" else run_keyshared(task)
    sys.stdout.write(json.dumps(msgspec.to_builtins(result)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""One side of a measurement, run in a process of its own: the bare loop, or this package.

Both sides get the same topic, client configuration, handler and gc settings (Python's own, which
nothing here or in the runtime changes). Time runs from the first record received to the
acknowledged final commit, for which neither side waits longer than it must: both stop at the last
record and commit at once. Joining the group is not part of it. Run as ``python -m
kafka_keyshared.bench.side`` with the task as JSON on standard input; the result is one line of JSON
on standard output.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from confluent_kafka import Consumer, KafkaException

from kafka_keyshared.config import client_conf

COMMIT_INTERVAL = 1.0
IDLE_LIMIT = 60.0


class Task(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What to run. ``fail_every`` makes one record in so many fail once; 0 makes none."""

    side: Literal["bare", "keyshared"]
    bootstrap: str
    topic: str
    group: str
    records: int
    workers: str = "thread:8"
    max_leases_per_key: int | None = None
    fail_every: int = 0


class Result(msgspec.Struct, kw_only=True):
    """What came of it. ``seconds`` is from the first record to the last acknowledged commit.

    ``commits`` counts the acknowledged ones with the final one, ``failed`` the failed attempts.
    """

    seconds: float
    records: int
    commits: int
    median_batch: int
    failed: int = 0


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


class Stalled(Exception):  # noqa: N818 - says what happened
    """Nothing arrived, or nothing more settled, for a minute."""


def fails(offset: int, every: int) -> bool:
    """Say whether the record at this offset is one of those that fail once.

    Scattered, not every so-manieth: keys go round robin, so those would all be of a few keys, whose
    records would then wait for one another's delays one by one.
    """
    return (offset * 0x9E3779B1 >> 16 & 0xFFFF) % every == 0


def handler_of(task: Task) -> Callable[[Any], None]:
    """Return the empty handler, or the one that fails once for some records.

    The bare loop has nowhere to put a failure, so its handler catches it and makes the second
    attempt by itself; for all other records both sides run the same steps.
    """
    if not task.fail_every:
        return _empty
    every = task.fail_every
    failed: set[tuple[int, int]] = set()
    bare = task.side == "bare"

    def fails_once(record: Any) -> None:
        if fails(record.offset(), every):
            place = (record.partition(), record.offset())
            if place not in failed:
                failed.add(place)
                try:
                    raise ValueError("fails once")  # noqa: TRY301 - raised at the same cost on both
                except ValueError:
                    if not bare:
                        raise
                fails_once(record)

    return fails_once


def _empty(record: Any) -> None:
    del record


def run_bare(task: Task) -> Result:
    """Consume and call the handler in one thread; commit once a second."""
    commits = 0

    def answered(error: Any, _partitions: Any) -> None:
        nonlocal commits
        commits += error is None

    consumer = Consumer({**conf_of(task), "on_commit": answered})
    consumer.subscribe([task.topic])
    handle = handler_of(task)
    sizes: dict[int, int] = {}
    done, started, last_commit = 0, 0.0, 0.0
    idle_since = time.monotonic()
    while done < task.records:
        # Not more than are left, or the last call would wait its 0.1 s for records that never come.
        messages = consumer.consume(min(10_000, task.records - done), 0.1)
        now = time.monotonic()
        if not messages:
            if now - idle_since > IDLE_LIMIT:
                raise Stalled(f"nothing arrived for {IDLE_LIMIT:g} s after {done} records")
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
        if now - last_commit >= COMMIT_INTERVAL:
            last_commit = now
            consumer.commit(offsets=consumer.position(consumer.assignment()), asynchronous=True)
    # Returns when the broker has acknowledged it, and raises when it did not. It is answered here
    # and not through on_commit.
    consumer.commit(offsets=consumer.position(consumer.assignment()), asynchronous=False)
    seconds = time.monotonic() - started
    consumer.close()
    return Result(seconds=seconds, records=done, commits=commits + 1, median_batch=median_of(sizes))


def run_keyshared(task: Task) -> Result:
    """Run the package until every record is settled and the commit of it acknowledged."""
    from kafka_keyshared.runtime.loop import Loop
    from kafka_keyshared.runtime.service import Hooks, KeyShared

    answered_at = 0.0
    moved = (0, time.monotonic())

    def answered(error: Any, _partitions: Any) -> None:
        nonlocal answered_at
        if error is None:
            answered_at = time.monotonic()

    def stepped(loop: Loop) -> None:
        nonlocal moved
        settled = loop.core.subscriptions["default"].counts.ok
        if settled >= task.records:
            app.stop()
        elif settled != moved[0]:
            moved = (settled, time.monotonic())
        elif time.monotonic() - moved[1] > IDLE_LIMIT:
            raise Stalled(f"nothing settled for {IDLE_LIMIT:g} s after {settled} records")

    app = KeyShared(
        {**conf_of(task), "on_commit": answered},
        [task.topic],
        workers=task.workers,
        max_leases_per_key=task.max_leases_per_key,
        commit_interval=COMMIT_INTERVAL,
        hooks=Hooks(stepped=stepped),
    )
    app.handler(handler_of(task))
    status = app.run()
    loop, report = app.loop, app.report
    if loop is None or report is None or loop.stats.first_record_at is None:
        raise Stalled("the run was stopped before its first record")
    counts = loop.core.subscriptions["default"].counts
    if status or not report.commit_accepted or counts.ok < task.records:
        raise Stalled(
            f"the run ended with status {status} and {counts.ok} of {task.records}: {report.line()}"
        )
    return Result(
        seconds=answered_at - loop.stats.first_record_at,
        records=counts.ok,
        commits=loop.core.commits.accepted_count,
        median_batch=median_of(loop.stats.batches),
        failed=counts.failed,
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

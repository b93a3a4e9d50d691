"""One side of a throughput measurement: the bare loop, or this package.

It runs in a process of its own. Both sides get the same topic, client configuration, handler and gc
settings. The gc settings are Python's own. A running instance raises them by the number of records
in flight, as for all users. Time runs from the first record received to the acknowledged final
commit. Neither side waits for it longer than it must: both stop at the last record and commit at
once. Joining the group is not part of it. Run as ``python -m kafka_keyshared.lab.bench.side`` with
the task as JSON on standard input. The result is one line of JSON on standard output.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec
from confluent_kafka import Consumer, KafkaException

from kafka_keyshared.lab.bench.child import (
    COMMIT_INTERVAL,
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

Noted = Callable[[int], None]
"""Called with the number of records done, after every fetch or step of the loop."""


class Task(ReadTask, kw_only=True, forbid_unknown_fields=True):
    """Parameters. ``fail_every`` makes one record of this many fail once; 0 makes none.

    ``key_header`` is the header that has the key. The bare loop reads it too with ``bare_reads``.
    ``roomy`` gives the client a queue that takes a whole topic of small records, so that the broker
    is not measured. ``http_port`` is the port of the package's metrics, ``console_port`` of its
    admin API; None means no port. ``group_view`` is the topic of its group view, if it has one.
    """

    records: int
    one_in_flight_per_key: bool = False
    fail_every: int = 0
    key_header: str | None = None
    bare_reads: bool = True
    roomy: bool = True
    http_port: int | None = None
    console_port: int | None = None
    group_view: str | None = None


class SideResult(msgspec.Struct, kw_only=True):
    """Result of a side. ``seconds`` is from the first record to the last acknowledged commit.

    ``commits`` counts the acknowledged ones with the final one, ``failed`` the failed attempts.
    ``processor`` is the processor time in seconds of the package's process over all threads. It is
    taken from the step with the first record to the last commit; 0 if it is not taken.
    """

    seconds: float
    records: int
    commits: int
    median_batch: int
    failed: int = 0
    processor: float = 0.0


def conf_of(task: Task) -> dict[str, Any]:
    """Return the configuration of the client, the same for both sides."""
    if not task.roomy:
        return conf_for(task)
    return conf_for(
        task, **{"queued.max.messages.kbytes": 1_048_576, "queued.min.messages": 1_000_000}
    )


def fails(offset: int, every: int) -> bool:
    """Return whether the record at this offset is one of those that fail once.

    They are scattered instead of regular. Keys go round robin, so regular ones would all be of a
    few keys. Their records would wait for one another's delays one by one.
    """
    return (offset * 0x9E3779B1 >> 16 & 0xFFFF) % every == 0


def _reads(name: str) -> Callable[[Any], None]:
    """Return a handler that reads the header as a loop that uses it would."""

    def read(record: Any) -> None:
        each, value = record.headers()[-1]
        if each != name or value is None:
            raise KeyError(name)

    return read


def handler_of(task: Task) -> Callable[[Any], None]:
    """Return the empty handler, one that reads the key, or one that fails once for some records.

    The bare loop cannot record a failure, so its handler catches it and makes the second attempt by
    itself. For all other records both sides run the same steps.
    """
    if not task.fail_every:
        if task.side == "bare" and task.bare_reads and task.key_header is not None:
            return _reads(task.key_header)
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


def awaited(handler: Callable[[Any], None]) -> Callable[[Any], Coroutine[Any, Any, None]]:
    """Return the handler as a pool of coroutines takes it. It waits for nothing."""

    async def handle(record: Any) -> None:
        handler(record)

    return handle


def _empty(record: Any) -> None:
    del record


def _unnoted(done: int) -> None:
    del done


def run_bare(task: Task, note: Noted = _unnoted) -> SideResult:
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
    patience = StallDetector()
    while done < task.records:
        # At most the remaining records, or the last call would wait its 0.1 s for records that
        # never come.
        messages = consumer.consume(min(10_000, task.records - done), 0.1)
        now = time.monotonic()
        if not messages:
            patience.check(done, "arrived")
            continue
        if not started:
            started = last_commit = now
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            handle(message)
        done += len(messages)
        note(done)
        sizes[len(messages)] = sizes.get(len(messages), 0) + 1
        if now - last_commit >= COMMIT_INTERVAL:
            last_commit = now
            consumer.commit(offsets=consumer.position(consumer.assignment()), asynchronous=True)
    # Returns when the broker has acknowledged it, and raises when it did not. The answer comes here
    # and not through on_commit.
    consumer.commit(offsets=consumer.position(consumer.assignment()), asynchronous=False)
    seconds = time.monotonic() - started
    consumer.close()
    return SideResult(
        seconds=seconds, records=done, commits=commits + 1, median_batch=median_of(sizes)
    )


def run_keyshared(task: Task, note: Noted = _unnoted) -> SideResult:
    """Run the package until every record is settled and its commit acknowledged."""
    # Imported here, so that the bare side does not load it.
    from kafka_keyshared.config.worker_options import coroutines_of

    answered_at, busy_from, busy_until = 0.0, 0.0, 0.0
    patience = StallDetector()

    def answered(error: Any, _partitions: Any) -> None:
        nonlocal answered_at, busy_until
        if error is None:
            answered_at, busy_until = time.monotonic(), time.process_time()

    def stepped(app: KeyShared, view: InstanceView) -> None:
        nonlocal busy_from
        done = settled(view)
        busy_from = busy_from or (time.process_time() if done else 0.0)
        note(done)
        if done >= task.records:
            app.stop()
        else:
            patience.check(done, "settled")

    handler = handler_of(task)
    loop = run_app(
        task,
        {**conf_of(task), "on_commit": answered},
        handler if coroutines_of(task.workers) is None else awaited(handler),
        stepped,
        one_in_flight_per_key=task.one_in_flight_per_key,
        key="record" if task.key_header is None else f"header:{task.key_header}",
        http_port=task.http_port,
        console_port=task.console_port,
        group_view_topic=task.group_view,
        group_view_interval=1.0,
    )
    started = loop.stats.first_record_at
    if started is None or settled(loop.core) < task.records:
        raise Stalled(f"the run ended with {settled(loop.core)} of {task.records} records settled")
    return SideResult(
        seconds=answered_at - started,
        records=settled(loop.core),
        commits=loop.core.commits.accepted_count,
        median_batch=median_of(loop.stats.batches),
        failed=loop.core.subscriptions["default"].counts.failed,
        processor=busy_until - busy_from,
    )


def run(task: Task, note: Noted = _unnoted) -> SideResult:
    """Run the side that the task names."""
    return run_bare(task, note) if task.side == "bare" else run_keyshared(task, note)


def median_of(sizes: dict[int, int]) -> int:
    """Return the median of sizes given as {size: count}."""
    half = sum(sizes.values()) / 2
    seen = 0
    for size in sorted(sizes):
        seen += sizes[size]
        if seen >= half:
            return size
    return 0


def main() -> int:
    """Run the task on standard input."""
    tell_parent(run(read_task(Task)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

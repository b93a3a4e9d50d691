"""Measured side of ``bench fair``, with notes shared by ``bench stuck``.

The handler appends the record and its start time to a file, so that threads, coroutines and
processes are measured alike. Run as ``python -m kafka_keyshared.lab.bench.fair_side`` with the task
as JSON on standard input. It writes ``"ready"`` once it is assigned every partition, and at the end
the waiting times of the keys.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kafka_keyshared.lab.bench.child import (
    IDLE_LIMIT,
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
from kafka_keyshared.lab.bench.paced import HOT, NS_PER_MS, STAMP, hot_records
from kafka_keyshared.lab.bench.workloads import notebook

if TYPE_CHECKING:
    from kafka_keyshared.app.keyshared import KeyShared
    from kafka_keyshared.runtime.instance_view import InstanceView

START = struct.Struct("<qqq?")
"""A record's number, its due time, the start of its handler, and whether its key is the hot one."""

LAST_PART = 3
"""One part of this many counts: the end of the run."""

GRACE = 2.0
"""Seconds after the last record is sent, within which every record that runs at once has started.
"""


class PacedTask(ReadTask, kw_only=True, forbid_unknown_fields=True):
    """The run of one side: ``records`` come at ``rate`` for ``seconds``; starts go to ``notebook``.

    The run ends ``grace`` seconds after the last record.
    """

    records: int
    rate: int
    seconds: float
    partitions: int
    handler_ms: float
    notebook: str
    grace: float = GRACE


class FairTask(PacedTask, kw_only=True, forbid_unknown_fields=True):
    """The run of one side: ``hot_share`` of the records have the hot key."""

    hot_share: float


class OtherKeyWaits(msgspec.Struct, kw_only=True):
    """Waiting times of the other keys' records that were due in the last third of the run.

    ``others_unseen`` had not started when the run ended. They count with their wait until then.
    """

    others_p50_ms: float
    others_p99_ms: float
    others_unseen: int
    hot_per_s: float


class RecordStart(msgspec.Struct, frozen=True):
    """The start of a record's handler. Times are monotonic, in nanoseconds."""

    number: int
    due: int
    at: int
    hot: bool


def note_start(path: str, record: Any) -> int:
    """Append the start of this record's handler to the file; return the record's number."""
    number, due = STAMP.unpack_from(record.value())
    at = time.monotonic_ns()
    os.write(notebook(path), START.pack(number, due, at, record.key() == HOT))
    return int(number)


def _handle(path: str, seconds: float, record: Any) -> None:
    note_start(path, record)
    time.sleep(seconds)


async def _handle_later(path: str, seconds: float, record: Any) -> None:
    note_start(path, record)
    await asyncio.sleep(seconds)


def starts_in(path: Path) -> Iterator[RecordStart]:
    """Yield the starts in that file."""
    for number, due, at, hot in START.iter_unpack(path.read_bytes()):
        yield RecordStart(number, due, at, hot)


def judge(task: FairTask, starts: Sequence[RecordStart], ended: int) -> OtherKeyWaits:
    """Return the waiting times of a run that ended at ``ended`` (monotonic, in nanoseconds).

    Raises :class:`Stalled` if no record started.
    """
    if not starts:
        raise Stalled(f"none of {task.records} records started")
    began = began_at(task, starts)
    waited = {each.number: each.at - each.due for each in starts if not each.hot}
    hot = hot_records(task.records, task.hot_share)
    counted = range(task.records - task.records // LAST_PART, task.records)
    others = [number for number in counted if number not in hot]
    unseen = [number for number in others if number not in waited]
    waited.update((number, ended - began - after_first(task, number)) for number in unseen)
    ordered = sorted(waited[number] for number in others)
    return OtherKeyWaits(
        others_p50_ms=percentile(ordered, 0.5) / NS_PER_MS,
        others_p99_ms=percentile(ordered, 0.99) / NS_PER_MS,
        others_unseen=len(unseen),
        hot_per_s=sum(each.hot for each in starts) * 1e9 / (ended - began),
    )


def after_first(task: PacedTask, number: int) -> int:
    """Return how long after the first record this one is due, in nanoseconds."""
    return number * 1_000_000_000 // task.rate


def began_at(task: PacedTask, starts: Sequence[RecordStart]) -> int:
    """Return when the first record was due (monotonic, in nanoseconds)."""
    return min(each.due - after_first(task, each.number) for each in starts)


def observe(task: PacedTask, handler: Callable[[Any], Any]) -> tuple[list[RecordStart], int]:
    """Run the package until a little after the last record is sent. The rest stays undone.

    Returns the starts that the handlers noted, and when the run ended (monotonic, in nanoseconds).
    """
    patience = StallDetector()
    ends: list[float] = []

    def stepped(app: KeyShared, view: InstanceView) -> None:
        now, done = time.monotonic(), settled(view)
        if done and not ends:
            ends.append(now + task.seconds + task.grace)
        if patience.still_for(done) > IDLE_LIMIT or (ends and now >= ends[0]):
            ends[:] = [now]
            app.stop()

    run_app(task, conf_for(task), handler, stepped, rebalanced=ready_with(task.partitions))
    path = Path(task.notebook)
    return list(starts_in(path)) if path.exists() else [], round(ends[0] * 1e9)


def run(task: FairTask) -> OtherKeyWaits:
    """Run the package, and return the waiting times of the keys."""
    handle = _handle_later if task.workers.startswith("asyncio") else _handle
    starts, ended = observe(task, partial(handle, task.notebook, task.handler_ms / 1e3))
    return judge(task, starts, ended)


def main() -> int:
    """Run the task on standard input."""
    tell_parent(run(read_task(FairTask)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

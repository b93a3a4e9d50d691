"""Measured side of ``bench stuck``: one long handler among short ones.

Run as ``python -m kafka_keyshared.lab.bench.stuck_side`` with the task as JSON on standard input.
It writes ``"ready"`` once it is assigned every partition, and at the end its measurement.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from kafka_keyshared.lab.bench.child import Stalled, read_task, tell_parent
from kafka_keyshared.lab.bench.fair_side import (
    PacedTask,
    RecordStart,
    after_first,
    began_at,
    note_start,
    observe,
)
from kafka_keyshared.lab.bench.figures import percentile
from kafka_keyshared.lab.bench.paced import NS_PER_MS

ON_TIME_MS = 100.0
"""A record is on time if it starts at most this long after it was due."""

WARM = 0.5
"""The share of the time before the stuck record that does not count."""


class StuckTask(PacedTask, kw_only=True, forbid_unknown_fields=True):
    """The run of one side: the record with the number ``stuck_at`` takes ``stuck_seconds``."""

    stuck_at: int
    stuck_seconds: float


class Punctual(msgspec.Struct, kw_only=True):
    """Punctuality of the records that were due while the stuck one ran.

    ``share`` of these ``others`` started on time, and their delay at the 99th percentile is
    ``p99_ms``. ``unseen`` had not started when the run ended, and count with their wait until then.
    ``before_share`` is the share on time of the records that were due before.
    """

    others: int
    share: float
    p99_ms: float
    unseen: int
    before_share: float


def _handle(path: str, times: tuple[float, int, float], record: Any) -> None:
    seconds, stuck_at, stuck_seconds = times
    time.sleep(stuck_seconds if note_start(path, record) == stuck_at else seconds)


async def _handle_later(path: str, times: tuple[float, int, float], record: Any) -> None:
    seconds, stuck_at, stuck_seconds = times
    await asyncio.sleep(stuck_seconds if note_start(path, record) == stuck_at else seconds)


def judge(task: StuckTask, starts: Sequence[RecordStart], ended: int) -> Punctual:
    """Return how punctual the others were in a run that ended at ``ended`` (monotonic, in ns).

    Raises :class:`Stalled` if the stuck record did not start, or no other one was due while it ran.
    """
    at: dict[int, int] = {}
    for each in sorted(starts, key=lambda start: start.at):
        at.setdefault(each.number, each.at)
    if task.stuck_at not in at:
        raise Stalled("the record that is to be stuck did not start")
    began, stuck = began_at(task, starts), at[task.stuck_at]
    free = stuck + round(task.stuck_seconds * 1e9)
    due = {
        number: began + after_first(task, number)
        for number in range(task.records)
        if number != task.stuck_at
    }
    warm = began + round(after_first(task, task.stuck_at) * WARM)
    during = [number for number in due if stuck <= due[number] < free]
    before = [number for number in due if warm <= due[number] < stuck]
    if not during or not before:
        raise Stalled("no other record was due while the stuck one ran, or before it")

    def share(numbers: Sequence[int]) -> float:
        waited = (at.get(number, ended) - due[number] for number in numbers)
        return sum(each <= ON_TIME_MS * NS_PER_MS for each in waited) / len(numbers)

    return Punctual(
        others=len(during),
        share=share(during),
        p99_ms=percentile(sorted(at.get(each, ended) - due[each] for each in during), 0.99)
        / NS_PER_MS,
        unseen=sum(number not in at for number in during),
        before_share=share(before),
    )


def run(task: StuckTask) -> Punctual:
    """Run the package, and judge how punctual the others were."""
    times = (task.handler_ms / 1e3, task.stuck_at, task.stuck_seconds)
    handle = _handle_later if task.workers.startswith("asyncio") else _handle
    starts, ended = observe(task, partial(handle, task.notebook, times))
    return judge(task, starts, ended)


def main() -> int:
    """Run the task on standard input."""
    tell_parent(run(read_task(StuckTask)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

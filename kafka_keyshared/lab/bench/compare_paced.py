"""Paced runs of ``bench compare``: latency, and one hot key."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from kafka_keyshared.lab.bench.common import produce_rows, run_child
from kafka_keyshared.lab.bench.compare_run import MeasuredRun, PeerError, RunningSystem
from kafka_keyshared.lab.bench.fair_side import (
    FairTask,
    OtherKeyWaits,
    RecordStart,
    after_first,
    began_at,
    judge,
)
from kafka_keyshared.lab.bench.paced import Pace, Paced, hot_records
from kafka_keyshared.lab.bench.systems import System
from kafka_keyshared.lab.bench.workloads import KNOCK, BenchJob, Note, read_notebook, value_of

KNOCK_TIMEOUT = 60.0
"""Seconds that a system has for joining its group and starting a first record."""

LOOK = 0.02


class ByClock(msgspec.Struct, kw_only=True):
    """One such run: the handlers' notes, the system as seen from outside, and the producer."""

    notes: list[Note]
    measured: MeasuredRun
    paced: Paced


def run_by_clock(system: System, job: BenchJob, pace: Pace, java: Sequence[str] = ()) -> ByClock:
    """Run a system, and the producer once the system reads.

    ``job.notebook`` is where its handlers write. Raises :class:`PeerError` when it failed, or did
    not start a record in time.
    """
    notebook = Path(job.notebook or "")
    with RunningSystem(system, job, java) as running:
        knocks = ((value_of(KNOCK, 0, 0), b"", each, None) for each in range(pace.partitions))
        produce_rows(pace.bootstrap, pace.topic, knocks)
        _await_file(notebook, running)
        paced = run_child("paced", pace, Paced, "producer")
        measured = running.result()
    return ByClock(notes=read_notebook(notebook), measured=measured, paced=paced)


def _await_file(notebook: Path, running: RunningSystem) -> None:
    """Wait until a handler has noted a record: the system has joined its group, and reads."""
    until = time.monotonic() + KNOCK_TIMEOUT
    while not notebook.exists() or not notebook.stat().st_size:
        running.check_alive()
        if time.monotonic() > until:
            raise PeerError(f"no record came within {KNOCK_TIMEOUT:g} s")
        time.sleep(LOOK)


def waits_beside_hot(
    system: System, job: BenchJob, pace: Pace, java: Sequence[str] = ()
) -> OtherKeyWaits:
    """Run a system whose producer sends too much of one key; return how long the other keys waited.

    Raises :class:`PeerError` as :func:`run_by_clock`, and if the run was over too soon.
    """
    return waits_of(job, pace, run_by_clock(system, job, pace, java).notes)


def waits_of(job: BenchJob, pace: Pace, notes: Sequence[Note]) -> OtherKeyWaits:
    """Return how long the keys beside the hot one waited. The run ends with the last handler.

    Raises :class:`PeerError` if that was before the last record was due.
    """
    hot = hot_records(pace.records, pace.hot_share)
    starts = [
        RecordStart(number=number, due=due, at=start, hot=number in hot)
        for number, due, start, _ in notes
    ]
    task = FairTask(
        side="keyshared",
        bootstrap=job.bootstrap,
        topic=job.topic,
        group=job.group,
        records=pace.records,
        rate=pace.rate,
        seconds=pace.records / pace.rate,
        partitions=pace.partitions,
        handler_ms=job.does.sleep * 1e3,
        notebook=job.notebook or "",
        hot_share=pace.hot_share,
    )
    ended = max((end for *_, end in notes), default=0)
    if not starts or ended < began_at(task, starts) + after_first(task, pace.records - 1):
        raise PeerError(f"it was over before {pace.records} records were due")
    return judge(task, starts, ended)

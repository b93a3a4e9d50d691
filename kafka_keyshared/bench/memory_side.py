"""One side of ``bench memory``: a side of :mod:`.side` whose resident memory is read as it runs.

Run as ``python -m kafka_keyshared.bench.memory_side`` with the task as JSON on standard input.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from kafka_keyshared.bench.child import read_task, tell_parent
from kafka_keyshared.bench.side import Task, run

STATM = Path("/proc/self/statm")
STATUS = Path("/proc/self/status")
MIB = 1 << 20


class MemoryTask(Task, kw_only=True, forbid_unknown_fields=True):
    """What to run; growth counts from ``mark`` records on."""

    mark: int


class Footprint(msgspec.Struct, kw_only=True):
    """Resident memory in MiB: the most ever, before the client was made, at the mark, at the end.

    ``curve_mib`` has one reading per mark of records. ``exact`` is false where the system does not
    tell what is resident now: each reading is then the most so far.
    """

    peak_mib: float
    before_mib: float
    mark_mib: float
    end_mib: float
    curve_mib: list[float]
    seconds: float
    exact: bool


def peak_mib() -> float:
    """Return the most that was ever resident in this process.

    Not from getrusage where there is /proc: what it says begins with what the parent had when it
    forked, so that a parent which has just produced millions of records would be measured.
    """
    if STATUS.exists():
        for line in STATUS.read_text("ascii", "replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (MIB if sys.platform == "darwin" else 1024)


def resident_mib() -> float:
    """Return what is resident now, or the most so far where there is no /proc."""
    if STATM.exists():
        return int(STATM.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB
    return peak_mib()


class Meter:
    """Reads resident memory whenever another ``every`` records are done, and at the last one."""

    def __init__(self, every: int, records: int, read: Callable[[], float] = resident_mib) -> None:
        self.readings: list[float] = []
        self.end = 0.0
        self._every = every
        self._records = records
        self._read = read

    def note(self, done: int) -> None:
        """Take note of how many records are done; it may be several marks at once."""
        while done >= self._every * (len(self.readings) + 1):
            self.readings.append(self._read())
        if done >= self._records and not self.end:
            self.end = self._read()


def footprint(task: MemoryTask) -> Footprint:
    """Run the side and return what it held."""
    before = resident_mib()
    meter = Meter(task.mark, task.records)
    result = run(task, meter.note)
    return Footprint(
        # The kernel brings the high-water mark up to date a little late.
        peak_mib=max(peak_mib(), meter.end, *meter.readings),
        before_mib=before,
        mark_mib=meter.readings[0],
        end_mib=meter.end,
        curve_mib=meter.readings,
        seconds=result.seconds,
        exact=STATM.exists(),
    )


def main() -> int:
    """Run the task on standard input."""
    tell_parent(footprint(read_task(MemoryTask)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

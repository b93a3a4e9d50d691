"""One side of ``bench memory``, with readings of its resident memory.

It is a side of :mod:`.side`. Run as ``python -m kafka_keyshared.lab.bench.memory_side`` with the
task as JSON on standard input.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from kafka_keyshared.lab.bench.child import read_task, tell_parent
from kafka_keyshared.lab.bench.side import Task, run

STATM = Path("/proc/self/statm")
STATUS = Path("/proc/self/status")
MIB = 1 << 20


class MemoryTask(Task, kw_only=True, forbid_unknown_fields=True):
    """Parameters; growth counts from ``mark`` records on."""

    mark: int


class Footprint(msgspec.Struct, kw_only=True):
    """Resident memory in MiB: the peak, before the client was made, at the mark, at the end.

    ``curve_mib`` has one reading per mark of records. ``exact`` is false if the system does not
    report the current resident memory. Each reading is then the peak so far.
    """

    peak_mib: float
    before_mib: float
    mark_mib: float
    end_mib: float
    curve_mib: list[float]
    seconds: float
    exact: bool


def peak_mib() -> float:
    """Return the peak of this process's resident memory.

    It does not use getrusage where there is /proc. The value of getrusage begins with the parent's
    memory at the fork. A parent that has just produced millions of records would be measured.
    """
    if STATUS.exists():
        for line in STATUS.read_text("ascii", "replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (MIB if sys.platform == "darwin" else 1024)


def resident_mib() -> float:
    """Return the current resident memory, or the peak so far if there is no /proc."""
    if STATM.exists():
        return int(STATM.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB
    return peak_mib()


class MemoryMeter:
    """Reads resident memory after every ``every`` records, and at the last one."""

    def __init__(self, every: int, records: int, read: Callable[[], float] = resident_mib) -> None:
        self.readings: list[float] = []
        self.end = 0.0
        self._every = every
        self._records = records
        self._read = read

    def note(self, done: int) -> None:
        """Take the number of records that are done. It may pass several marks at once."""
        while done >= self._every * (len(self.readings) + 1):
            self.readings.append(self._read())
        if done >= self._records and not self.end:
            self.end = self._read()


def footprint(task: MemoryTask) -> Footprint:
    """Run the side and return its memory use."""
    before = resident_mib()
    meter = MemoryMeter(task.mark, task.records)
    result = run(task, meter.note)
    return Footprint(
        # The kernel updates the high-water mark a little late.
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

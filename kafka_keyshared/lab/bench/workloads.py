"""Workloads of ``bench compare``: traffic, handler work, and checks of order.

Every value begins with two numbers. The first is the record's own, which counts up over the topic.
The second is its mark: the number of its key, or in a paced run its due time. So a handler can note
its call although the system gives it no topic, partition or key.
"""

from __future__ import annotations

import asyncio
import os
import random
import struct
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from kafka_keyshared.lab.bench.child import SEED
from kafka_keyshared.lab.bench.paced import STAMP

Traffic = Literal["uniform", "zipf", "one-key"]
TRAFFIC: tuple[Traffic, ...] = get_args(Traffic)
ZIPF = 1.1
"""The exponent: the n-th largest key has a share proportional to 1 / n ** 1.1."""

NOTE = struct.Struct("<qqqq")
"""A line of a notebook: the record's two numbers, its start and end (monotonic, in nanoseconds)."""

KNOCK = -1
"""The number of a record that only wakes a consumer up and is never judged."""

Handle = Callable[[Any], None]
HandleLater = Callable[[Any], Coroutine[Any, Any, None]]
ValueOf = Callable[[Any], bytes | None]


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """The work of a handler: a sleep in seconds, or processor time of its thread.

    ``uneven`` sleeps between nothing and that long, by the record's number.
    """

    sleep: float = 0.0
    cpu_ns: int = 0
    uneven: bool = False

    @property
    def empty(self) -> bool:
        """Whether it does nothing."""
        return not self.sleep and not self.cpu_ns


WORKS: dict[str, Work] = {
    "empty": Work(),
    "sleep-1ms": Work(sleep=0.001),
    "sleep-2ms": Work(sleep=0.002),
    "sleep-5ms": Work(sleep=0.005),
    "cpu-200us": Work(cpu_ns=200_000),
}
UNEVEN = "uneven"
"""The work of checked runs: records of a key overtake one another unless the system prevents that.
"""

HOT_WORK = "sleep-20ms"
"""The work of runs with a hot key, which ``bench fair`` has as well."""

_ALL = {**WORKS, UNEVEN: Work(sleep=0.002, uneven=True), HOT_WORK: Work(sleep=0.02)}


class BenchJob(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Parameters of a system. It ends after ``records``, or ``limit`` seconds after the first one.

    ``size`` is the part of its name after the colon. ``notebook`` is the file for the notes of
    handlers; None in runs that are measured. A ``paced`` run is one of latency.
    """

    family: str
    size: str
    bootstrap: str
    topic: str
    group: str
    records: int
    limit: float
    work: str = "empty"
    notebook: str | None = None
    paced: bool = False

    @property
    def does(self) -> Work:
        """Return the work of the handler."""
        return _ALL[self.work]

    @property
    def number(self) -> int:
        """Return the size of a system whose size is a number."""
        return int(self.size)


class JobResult(msgspec.Struct, kw_only=True):
    """Result of a run: the number of records done, and the seconds that they took."""

    seconds: float
    records: int


# --- traffic ---


def keys_of(traffic: Traffic, records: int, keys: int) -> Iterator[int]:
    """Return the number of each record's key, the same on every run."""
    if traffic == "one-key":
        return iter([0] * records)
    if traffic == "uniform":
        return (number % keys for number in range(records))
    return iter(zipf(records, keys, ZIPF))


def zipf(records: int, keys: int, exponent: float) -> list[int]:
    """Return the number of each record's key, where key n has a share of ``(n + 1) ** -exponent``.

    The draws are the same on every run. A run with fewer records is the beginning of a longer one.
    """
    shares = list(accumulate((number + 1) ** -exponent for number in range(keys)))
    return random.Random(SEED).choices(range(keys), cum_weights=shares, k=records)


def value_of(number: int, mark: int, size: int) -> bytes:
    """Return a value of this size, or at least of its two numbers."""
    return STAMP.pack(number, mark).ljust(size, b"x")


# --- handler work ---


def by_method(record: Any) -> bytes | None:
    """Return the value of a record of the Confluent client, or of this package."""
    found: bytes | None = record.value()
    return found


def by_attribute(record: Any) -> bytes | None:
    """Return the value of a record of aiokafka."""
    found: bytes | None = record.value
    return found


def itself(record: Any) -> bytes | None:
    """Return the record: it is a value already."""
    found: bytes | None = record
    return found


def handler_of(job: BenchJob, value: ValueOf) -> Handle:
    """Return the handler. It can be sent to processes, because it is made of named functions."""
    work = job.does
    if work.uneven:
        does: Handle = partial(_sleep_unevenly, work.sleep, value)
    elif work.sleep:
        does = partial(_sleep, work.sleep)
    elif work.cpu_ns:
        does = partial(_compute, work.cpu_ns)
    else:
        does = _do_nothing
    return does if job.notebook is None else partial(_noted, job.notebook, does, value)


def later_of(job: BenchJob, value: ValueOf) -> HandleLater:
    """Return the handler as a coroutine function."""
    work = job.does
    if work.uneven:
        does: HandleLater = partial(_sleep_unevenly_later, work.sleep, value)
    elif work.sleep:
        does = partial(_sleep_later, work.sleep)
    elif work.cpu_ns:
        does = partial(_compute_later, work.cpu_ns)
    else:
        does = _do_nothing_later
    return does if job.notebook is None else partial(_noted_later, job.notebook, does, value)


def _do_nothing(_record: Any) -> None:
    """Do nothing."""


async def _do_nothing_later(_record: Any) -> None:
    """Do nothing."""


def _sleep(seconds: float, _record: Any) -> None:
    time.sleep(seconds)


async def _sleep_later(seconds: float, _record: Any) -> None:
    await asyncio.sleep(seconds)


def _share(value: bytes | None) -> float:
    number = STAMP.unpack_from(value or b"")[0]
    return float((number * 2_654_435_761 >> 16 & 0xFF) / 255)


def _sleep_unevenly(most: float, value: ValueOf, record: Any) -> None:
    time.sleep(most * _share(value(record)))


async def _sleep_unevenly_later(most: float, value: ValueOf, record: Any) -> None:
    await asyncio.sleep(most * _share(value(record)))


def _compute(ns: int, _record: Any) -> None:
    """Use processor time by the thread's own clock: the same work however many threads wait."""
    clock = time.thread_time_ns
    end = clock() + ns
    while clock() < end:
        pass


async def _compute_later(ns: int, record: Any) -> None:
    _compute(ns, record)


@lru_cache(maxsize=1)
def notebook(path: str) -> int:
    """Return the file to which every process and thread appends, one note per call."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def _noted(path: str, does: Handle, value: ValueOf, record: Any) -> None:
    start = time.monotonic_ns()
    number, mark = STAMP.unpack_from(value(record) or b"")
    does(record)
    os.write(notebook(path), NOTE.pack(number, mark, start, time.monotonic_ns()))


async def _noted_later(path: str, does: HandleLater, value: ValueOf, record: Any) -> None:
    start = time.monotonic_ns()
    number, mark = STAMP.unpack_from(value(record) or b"")
    await does(record)
    os.write(notebook(path), NOTE.pack(number, mark, start, time.monotonic_ns()))


# --- notes of a notebook ---


class Checked(msgspec.Struct, kw_only=True):
    """Order of the records in a checked run.

    ``out_of_order`` started before an earlier record of their key, ``overlapping`` while an earlier
    one of it ran.
    """

    records: int
    missing: int
    repeated: int
    out_of_order: int
    overlapping: int

    @property
    def in_order(self) -> bool:
        """Whether the records of each key ran one after the other, in order."""
        return not self.out_of_order and not self.overlapping


Note = tuple[int, int, int, int]


def read_notebook(path: Path) -> list[Note]:
    """Return its lines, without those of records that only woke a consumer."""
    lines = NOTE.iter_unpack(path.read_bytes()) if path.exists() else iter(())
    return [(line[0], line[1], line[2], line[3]) for line in lines if line[0] != KNOCK]


def judge(notes: list[Note], records: int) -> Checked:
    """Check the notes of a run over ``records`` records, whose marks are their keys."""
    seen = {number for number, *_ in notes}
    highest: dict[int, int] = {}
    until: dict[int, int] = {}
    out_of_order = overlapping = 0
    for number, key, start, end in sorted(notes, key=lambda note: note[2]):
        out_of_order += number < highest.get(key, -1)
        overlapping += start < until.get(key, 0)
        highest[key] = max(number, highest.get(key, -1))
        until[key] = max(end, until.get(key, 0))
    return Checked(
        records=len(seen),
        missing=records - len(seen),
        repeated=len(notes) - len(seen),
        out_of_order=out_of_order,
        overlapping=overlapping,
    )

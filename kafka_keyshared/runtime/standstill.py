"""Standstills of the owner thread or the process, and their running records.

Two threads record the time: the owner after each round, and the caller of ``run()``, which checks
once a second. If both have the same gap, no thread of the process ran. The process was stopped, its
machine was paused, it was swapped out, or a C call kept the interpreter lock. If the caller went on
checking, only the owner was blocked, and the caller has seen where.

Records that ran are found by observations before and after the standstill.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from itertools import chain
from typing import NamedTuple

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.dispatch.tick import RunningSince
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import Coordinates, coordinates_of, in_words, some
from kafka_keyshared.runtime.loop import Loop


class StandstillRecords:
    """Remembers what ran at the last heartbeat. The core keeps that list anyway."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._before: list[RunningSince] = []

    def note(self) -> None:
        """Note the records that run at this heartbeat."""
        watches = self._loop.core.watches.values()
        self._before = [*chain.from_iterable(each.running.values() for each in watches)]

    def meanwhile(self, since: float) -> list[str]:
        """Return the records that ran during a standstill, with worker and stack position.

        ``since`` is the time of the last round before the standstill. The records are those of
        three groups:

        - records that ran at the heartbeat before;
        - records that run now;
        - the first record of each long slice whose end was read after ``since``.
        """
        found: dict[Coordinates, str] = {}
        core, pool = self._loop.core, self._loop.ports.pool
        # With all mail posted before it. A record that ended during the standstill, unreported
        # until now, does not run any more. It belongs to the slices that ended after ``since``.
        progress = self._loop.progress()
        for each in self._before:
            name, worker, *_ = each.whose
            found[coordinates_of(each.record)] = self._on(name, worker) + _in(
                pool.where(*each.whose)
            )
        for sub in core.subscriptions.values():
            for leased in sub.unsettled.leases():
                slice_ = leased.slice
                for index in leased.running(progress):
                    where = pool.where(sub.name, slice_.worker, slice_.id, index)
                    words = self._on(sub.name, slice_.worker) + _in(where)
                    found.setdefault(slice_.came.coordinates_of(index), words)
        for ended, at, whose, count in core.meters.ran_long:
            if ended >= since:
                others = f", or one of {count - 1:,} behind it" if count > 1 else ""
                found.setdefault(at, f"{self._on(*whose)}{others}")
        return [f"{at[0]}@{at[1]} on {words}" for at, words in found.items()]

    def _on(self, subscription: str, number: int) -> str:
        worker = self._loop.core.subscriptions[subscription].workers.get(number)
        return f"worker {number}" if worker is None else worker.name


def _in(where: str) -> str:
    return f" ({where})" if where else ""


log = log_of("kafka_keyshared.loop")

REAL = Clock()

HELD = 5.0
"""Seconds between two rounds of the owner from which on it counts as a standstill."""

HELD_LIVE = 10.0
"""Seconds after which the blocking location is logged while the standstill lasts."""

RECORDS_MOST = 10
"""Most running records that are stored for a standstill."""

NAMED = 5
BUSY = 0.5
"""CPU seconds per second of standstill from which on the process was computing."""


class Stood(NamedTuple):
    """A standstill that has ended: when, how long, process or owner only, and where.

    ``cpu`` is the CPU time that the process used during it, in seconds.
    """

    until: float
    seconds: float
    process: bool
    where: str
    cpu: float
    records: tuple[str, ...] = ()


class StandstillWatch:
    """Watches one run. Times are monotonic, in seconds; ``cpu`` returns CPU time of the process.

    ``last`` is the last standstill, with the records that were running.
    """

    def __init__(self, clock: Callable[[], float], cpu: Callable[[], float] = REAL.cpu) -> None:
        self._clock, self._cpu = clock, cpu
        self._lock = threading.Lock()
        self._turned: float | None = None
        self._cpu_then = 0.0
        # The caller's last check, its last long gap, and where it saw the owner blocked.
        self._looked: float | None = None
        self._gap = (0.0, 0.0)
        self._seen = ""
        self._told = False
        self._callback: tuple[str, float] | None = None
        self.last: Stood | None = None

    # --- the caller of run() ---

    def look(self, where: Callable[[], str], *, told: bool = False) -> None:
        """Note that the caller runs, and the owner's location if its round takes long.

        ``told`` says that the location is already logged elsewhere.
        """
        now = self._clock()
        with self._lock:
            if self._looked is not None and now - self._looked >= HELD:
                self._gap = self._looked, now
            self._looked = now
            held = 0.0 if self._turned is None else now - self._turned
            gap_after = self._gap[1] - (self._turned or 0.0)
            alone = held - max(0.0, gap_after)
            if alone < HELD / 2:
                return
            self._seen = where()
            tell = not self._told and not told and alone >= HELD_LIVE
            self._told = self._told or tell
        if tell:
            log.warning(
                "the owner thread has been blocked in %s for %s: nothing is polled, leased or "
                "committed",
                self._seen,
                in_words(held),
            )

    # --- the owner ---

    def called(self, name: str, seconds: float) -> None:
        """Note that a user callback ran this long on the owner thread."""
        if seconds >= HELD:
            with self._lock:
                self._callback = name, seconds

    def begin(self) -> None:
        """Start counting now; any gap before is no standstill."""
        self._turned, self._cpu_then = self._clock(), self._cpu()

    def turn(self, *, waited: bool) -> Stood | None:
        """Note that the owner has finished a round; return the standstill that just ended.

        ``waited`` says that the owner was in a rebalance since the last round, where it may wait.
        Then only a standstill of the process or a user callback counts.
        """
        now = self._clock()
        then = self._turned
        if then is not None and now - then < HELD:
            self._turned = now
            return None
        with self._lock:
            self._turned = now
            seen, self._seen, self._told = self._seen, "", False
            callback, self._callback = self._callback, None
            since, until = self._gap
            if self._looked is not None and now - self._looked >= HELD:
                since, until = self._looked, now
        cpu, self._cpu_then = self._cpu() - self._cpu_then, self._cpu()
        if then is None:
            return None
        both = max(0.0, min(until, now) - max(since, then))
        if both >= HELD - 1.0 and both >= (now - then) / 2:
            self.last = Stood(now, now - then, process=True, where="", cpu=cpu)
        elif callback is not None:
            self.last = Stood(now, callback[1], False, f"your {callback[0]} callback", cpu)
        elif waited or self._looked is None:
            return None
        else:
            self.last = Stood(now, now - then, process=False, where=seen, cpu=cpu)
        return self.last

    def sample(self) -> None:
        """Record the CPU time, at a heartbeat."""
        self._cpu_then = self._cpu()

    def tell(self, records: Iterable[str], interval: float) -> None:
        """Log the last standstill with the records that ran during it, and store them.

        ``interval`` is the client's ``max.poll.interval.ms``, in seconds.
        """
        if self.last is None:
            return
        names = tuple(dict.fromkeys(records))[:RECORDS_MOST]
        self.last = stood = self.last._replace(records=names)
        log.warning("%s", line_of(stood, interval))


def line_of(stood: Stood, interval: float) -> str:
    """Return the log line about a standstill."""
    what = "nothing was polled, leased or committed"
    if stood.process:
        why = (
            f"it used {stood.cpu:.1f} s of CPU: a C call kept the interpreter lock"
            if stood.cpu >= BUSY * stood.seconds
            else "it used hardly any CPU: it was stopped, paused with its machine or swapped out, "
            "or a C call waited with the interpreter lock"
        )
        text = f"the process stood still for {in_words(stood.seconds)} ({why}); {what}"
    else:
        where = f" in {stood.where}" if stood.where else ""
        text = (
            f"the owner thread was blocked{where} for {in_words(stood.seconds)} while other "
            f"threads ran; {what}"
        )
    text += f"; records that ran: {some(stood.records, NAMED)}"
    if stood.seconds >= interval:
        text += (
            f". That is longer than max.poll.interval.ms ({interval:g} s): the group gives the "
            "partitions to other members"
        )
    return text

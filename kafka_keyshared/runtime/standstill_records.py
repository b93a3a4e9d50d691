"""Records that ran during a standstill, from observations before and after it."""

from __future__ import annotations

from itertools import chain

from kafka_keyshared.core.dispatch.tick import RunningSince
from kafka_keyshared.model import Coordinates, coordinates_of
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

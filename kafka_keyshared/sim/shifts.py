"""Rare states of shifts, counted as a core comes to them: from outside nobody sees who has to wait.

What shifts are stands in :mod:`kafka_keyshared.core.shifts`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kafka_keyshared.core import events as ev
from kafka_keyshared.core.subscription import Subscriptions
from kafka_keyshared.model import Record, partition_of

WAITED = "records waited for their turn"
REVOKED = "partition revoked while it waited for a turn"
MOVED = "slots moved while records waited for a turn"

RARE = (WAITED, REVOKED, MOVED)


def waiting(subs: Subscriptions) -> Iterator[Record]:
    """Yield what workers are not handed because it is not their turn."""
    for sub in subs.values():
        for worker in sub.workers.values():
            if worker.off_shift:
                yield from worker.row.routed


class InTurn:
    """Counts each of :data:`RARE` at one member.

    - *records waited for their turn*: a chunk has come, and some of it has to wait;
    - *partition revoked while it waited for a turn*: or lost, with records that had to;
    - *slots moved while records waited for a turn*: from any worker to any other.
    """

    def __init__(self, subs: Subscriptions, reached: Counter[str]) -> None:
        self._subs = subs
        self._reached = reached
        # Of the subscriptions in which something waits, the tables before an event.
        self._tables: dict[str, int] = {}

    def before(self, event: ev.Event) -> None:
        """Look before the core takes an event."""
        self._tables.clear()
        subs = self._subs
        if not subs.wait_for_more() or next(waiting(subs), None) is None:
            return
        self._tables.update((sub.name, sub.table.version) for sub in subs.values())
        if isinstance(event, ev.Revoking):
            going = set(event.partitions)
            self._reached[REVOKED] += any(partition_of(each) in going for each in waiting(subs))

    def after(self, event: ev.Event) -> None:
        """Look behind it."""
        subs = self._subs
        moved = any(subs[name].table.version != version for name, version in self._tables.items())
        self._reached[MOVED] += moved
        if isinstance(event, ev.Fetched):
            self._reached[WAITED] += next(waiting(subs), None) is not None

"""What other keys get done while a hot key's record hangs: the same records, with it and without.

Only the core is driven, in made-up time: all workers but the one that hangs end at once what they
are given, so nothing but the core's own decisions can keep others waiting. The hot key has as many
records as all others together, in a partition of its own.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.slices import Progress, SerialProgress, Slice
from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.core.dispatch.tick import BEAT_SECONDS
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.hashing import slot_of
from kafka_keyshared.model import TopicPartition
from tests.support.records import FakeRecord

HOT, OTHERS = TopicPartition("orders", 0), TopicPartition("orders", 1)
ROUND = 0.01
"""Seconds of made-up time between two fetches."""


@dataclass(frozen=True, slots=True)
class SlowPlan:
    """The hot key's record takes ``seconds``; ``per_second`` records of it and of others each."""

    seconds: float = 30.0
    per_second: int = 2_000
    workers: int = 8
    pairs: int = 5


class Run:
    """A core that is fed at a steady rate, as far as it takes that."""

    def __init__(self, plan: SlowPlan, *, hangs: bool) -> None:
        self.plan = plan
        self.done = 0
        self.cpu = 0.0
        self._core = Dispatcher([SubscriptionSettings(workers=worker_names(plan.workers))])
        self._sub = self._core.subscriptions["default"]
        self._hanging = self._sub.table.owners[slot_of(b"hot")] if hangs else None
        # Of other workers: what is the hung one's own is not the window's matter.
        owners, own = self._sub.table.owners, self._sub.table.owners[slot_of(b"hot")]
        keys = [b"key-%d" % number for number in range(2_000)]
        self._keys = [key for key in keys if owners[slot_of(key)] != own]
        self._next = {HOT: 0, OTHERS: 0}
        self._out: list[Slice] = []
        self._now = self._beat_at = 0.0
        self._tell(ev.Assigned(dict.fromkeys((HOT, OTHERS), ev.StartPoint(0))))

    def run(self) -> None:
        """Run it for as long as the hot key's record takes."""
        while self._now < self.plan.seconds:
            self._now += ROUND
            # The one goes first, then the other: neither has the room for itself.
            order = (HOT, OTHERS) if round(self._now / ROUND) % 2 else (OTHERS, HOT)
            for partition in order:
                self._fetch(partition)
            if self._now - self._beat_at >= BEAT_SECONDS:
                self._beat_at = self._now
                self._tell(ev.Tick(self._progress()))

    def _fetch(self, partition: TopicPartition) -> None:
        core = self._core
        if partition in core.holds.paused(core.partitions):
            return
        count = min(round(self.plan.per_second * ROUND), core.room())
        if not count:
            return
        first = self._next[partition]
        self._next[partition] = end = first + count
        keys = [b"hot"] if partition == HOT else self._keys
        records = [FakeRecord(partition, at, keys[at % len(keys)]) for at in range(first, end)]
        self._tell(ev.Fetched(records, {partition: end}))
        while self._out:
            ended, self._out = self._out, []
            self.done += sum(
                1 for slice_ in ended for each in slice_.records if each.partition() == 1
            )
            self._tell(ev.Reported([ev.SliceEnded(each.id, 0.001) for each in ended]))

    def _tell(self, event: ev.Event) -> None:
        began = time.process_time()
        commands = self._core.handle(event, self._now)
        self.cpu += time.process_time() - began
        leased = [each.slice for each in commands if isinstance(each, cmd.LeaseSlice)]
        self._out += [each for each in leased if each.worker != self._hanging]

    def _progress(self) -> Progress:
        """What hangs is the first record of all that its worker was given."""
        if self._hanging is None:
            return {}
        slices = self._sub.workers[self._hanging].slices
        return {id_: SerialProgress(0 if at else 1) for at, id_ in enumerate(slices)}


def measure(plan: SlowPlan) -> dict[str, Any]:
    """Return ``kept``: what part of the others' records is done while the hot key hangs.

    And ``added_share``: what part more of its time the owner needs meanwhile than without, to see
    how much waits for the record. It has half as many records to lease then, too.
    """
    kept, added = [], []
    for _ in range(plan.pairs):
        plain, slow = Run(plan, hangs=False), Run(plan, hangs=True)
        for each in (plain, slow):
            each.run()
        if plain.done < 0.9 * plan.seconds * plan.per_second:
            raise KeySharedError(f"{plain.done} records were done where nothing hung")
        kept.append(slow.done / plain.done)
        added.append((slow.cpu - plain.cpu) / plan.seconds)
    return {"kept": round(min(kept), 3), "added_share": round(statistics.median(added), 3)}

"""What it costs the other slots that many drain: the same records, while 10,000 do and while none.

Only the core is driven, and each slice ends as soon as it is leased: a handler would hide the cost.
Pairs are taken in turns, and what is told is the ratio of processor times.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.worker_changes import slot_draining
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.hashing import slot_of
from kafka_keyshared.model import TopicPartition, partition_of
from tests.support.leased_slots import held_by_a, keys_by_slot, ranges
from tests.support.records import FakeRecord

OTHERS, WAITING = TopicPartition("others", 0), TopicPartition("waiting", 0)
CHUNK = 1_000


@dataclass(frozen=True, slots=True)
class DrainingPlan:
    """So many ``slots`` drain, with a record waiting for one in ten; ``records`` are of others."""

    slots: int = 10_000
    records: int = 100_000
    pairs: int = 7


class Run:
    """A core of which one worker holds a lease in each of many slots, and which goes on."""

    def __init__(self, plan: DrainingPlan, *, drains: bool) -> None:
        self._core, _ = held_by_a(plan.slots)
        self._now = 0.0
        self._core.handle(ev.Assigned(dict.fromkeys((OTHERS, WAITING), ev.StartPoint(0))), 0.0)
        sub = self._core.subscriptions["default"]
        if drains:
            for command in slot_draining.change(sub, ranges(plan.slots, of="B")):
                if isinstance(command, cmd.Recall):
                    self._core.handle(ev.Recalled("default", command.worker), 0.0)
            waiting = keys_by_slot()[: plan.slots : 10]
            self._fetch([FakeRecord(WAITING, at, key) for at, key in enumerate(waiting)])
        if sub.draining.count != (plan.slots if drains else 0):
            raise KeySharedError(f"{sub.draining.count} slots drain, and not {plan.slots}")
        self._slots = plan.slots
        self._sub = sub

    def seconds(self, records: list[FakeRecord]) -> float:
        """Return the processor time that these records take; none of their slots drains."""
        chunks = [records[at : at + CHUNK] for at in range(0, len(records), CHUNK)]
        held = self._sub.window.records
        began = time.process_time()
        for chunk in chunks:
            self._fetch(chunk)
        took = time.process_time() - began
        if self._sub.window.records != held:
            raise KeySharedError(f"{self._sub.window.records - held} records have not ended")
        return took

    def _fetch(self, chunk: list[FakeRecord]) -> None:
        partition = partition_of(chunk[-1])
        commands = self._handle(ev.Fetched(chunk, {partition: chunk[-1].offset() + 1}))
        while True:
            ended = [
                ev.SliceEnded(c.slice.id, 0.001) for c in commands if isinstance(c, cmd.LeaseSlice)
            ]
            if not ended:
                return
            commands = self._handle(ev.Reported(ended))

    def _handle(self, event: ev.Event) -> list[cmd.Command]:
        self._now += 0.01  # as time passes, more of a partition may be leased
        return self._core.handle(event, self._now)


def measure(plan: DrainingPlan) -> dict[str, Any]:
    """Return the ``ratio`` of the throughput while slots drain to that while none does."""
    keys = keys_by_slot()[plan.slots :][:: max(1, (65_536 - plan.slots) // 1_000)]
    if any(slot_of(key) < plan.slots for key in keys):
        raise KeySharedError("a key of the other slots is in one that drains")
    records = [FakeRecord(OTHERS, at, keys[at % len(keys)]) for at in range(plan.records)]
    ratios = []
    for _ in range(plan.pairs):
        plain, draining_ = Run(plan, drains=False), Run(plan, drains=True)
        ratios.append(plain.seconds(records) / draining_.seconds(records))
    return {"slots": plan.slots, "ratio": round(statistics.median(ratios), 3)}

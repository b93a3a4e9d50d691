"""Positions, derived at commit time from what is not settled.

Nothing is tracked per settled record. Everything received in [start, received end) is settled
unless it is found among the records still held; so the safe position of a partition is its lowest
unsettled offset, or its received end. Only received records are ever waited for: offsets that
compaction removed or that hold transaction markers are in nobody's hands and hold nothing up.

Example (the one of Danube's Key-Shared dispatcher): of 10, 11, 12, 13 all but 11 are settled; the
safe position is 11 and the settled set {12, 13}. When 11 settles, the safe position is 14.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_keyshared.core.metadata import Runs, settled_runs
from kafka_keyshared.model import Record, TopicPartition


@dataclass(slots=True)
class PartitionState:
    """One assigned partition of one epoch.

    ``received_end`` is the next offset yet to be received, None until something is known.
    ``restored`` holds, per subscription, the settled runs that came with the assignment and have
    not been passed yet; ``unknown`` what other subscriptions left in the metadata, to be handed on.
    """

    epoch: int
    received_end: int | None
    restored: dict[str, Runs] = field(default_factory=dict)
    unknown: Mapping[str, bytes] = field(default_factory=dict)

    def restored_end(self) -> int:
        """Return the end of the highest restored run, 0 without any."""
        return max((runs[-1][1] for runs in self.restored.values() if runs), default=0)

    def drop_passed(self) -> None:
        """Forget restored runs below the received end: from there on they are derived."""
        if self.restored and self.received_end is not None:
            end = self.received_end
            self.restored = {
                name: kept
                for name, runs in self.restored.items()
                if (kept := tuple((max(lo, end), hi) for lo, hi in runs if hi > end))
            }


class Snapshot(NamedTuple):
    """Position and settled sets of one partition, taken together."""

    position: int
    runs: dict[str, Runs]


Unsettled = dict[TopicPartition, list[int]]


def collect(records: Iterable[Record]) -> tuple[Unsettled, int]:
    """Return the offsets of the records by partition, and the sum of their value lengths."""
    found: Unsettled = {}
    total = 0
    for record in records:
        partition = TopicPartition(record.topic(), record.partition())
        offsets = found.get(partition)
        if offsets is None:
            found[partition] = offsets = []
        offsets.append(record.offset())
        total += len(record)
    return found, total


def derive(end: int, unsettled: Mapping[str, list[int]], restored: Mapping[str, Runs]) -> Snapshot:
    """Return the safe position and what each subscription has settled beyond it.

    ``unsettled`` gives each subscription's offsets in any order. The position waits for all of
    them: an offset is safe only when every subscription has settled it.
    """
    position = min((min(offsets) for offsets in unsettled.values() if offsets), default=end)
    runs: dict[str, Runs] = {}
    for name, offsets in unsettled.items():
        # A record that failed is held by its lane, and may be its slice's last started one too.
        held = sorted(set(offsets))
        if settled := settled_runs(position, end, held, restored.get(name, ())):
            runs[name] = settled
    return Snapshot(position, runs)

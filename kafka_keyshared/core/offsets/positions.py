"""Positions, derived at commit time from the unsettled records.

Nothing is tracked per settled record. Every record received in [start, received end) is settled
unless it is among the held records. So the safe position of a partition is its lowest unsettled
offset, or its received end. Offsets that compaction removed or that hold transaction markers are
never received, so they do not block the position.

Example (from Danube's Key-Shared dispatcher): 10, 12 and 13 are settled, 11 is not. The safe
position is 11 and the settled set {12, 13}. When 11 settles, the safe position is 14.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from kafka_keyshared.core.offsets.commit_metadata import Runs, clip, settled_runs
from kafka_keyshared.core.offsets.metadata_sections import LaneNotes, RunningNote
from kafka_keyshared.model import Record, TopicPartition


@dataclass(slots=True)
class PartitionState:
    """One assigned partition in one epoch: the next epoch has a state of its own.

    ``received_end`` is the next offset to receive, None until it is known. ``restored`` has, per
    subscription, the settled runs that came with the assignment and are not passed yet. ``unknown``
    has the metadata of other subscriptions, which is copied to the next commit. ``notes`` has the
    notes on lanes and records from the metadata at the assignment. ``topic_id`` is the topic's id
    at the start of the partition, None until it is known; commits name it. ``outdated`` says that
    the committed text names offsets beyond the end of the log.
    """

    received_end: int | None
    restored: dict[str, Runs] = field(default_factory=dict)
    unknown: Mapping[str, bytes] = field(default_factory=dict)
    notes: Mapping[str, LaneNotes] = field(default_factory=dict)
    topic_id: str | None = None
    outdated: bool = False

    @property
    def settled_end(self) -> int | None:
        """One past the highest offset that was settled or received; the log must reach it.

        A log that ends earlier was truncated, and its broker assigns these offsets again.
        """
        ends = [runs[-1][1] for runs in self.restored.values() if runs]
        return self.received_end if self.received_end is None else max(self.received_end, *ends, 0)

    def drop_passed(self, ceilings: Mapping[str, int]) -> None:
        """Forget restored runs of records that are received and not parked: those are derived now.

        ``ceilings`` are those of the subscriptions; records beyond them are parked.
        """
        received = self.received_end
        if self.restored and received is not None:
            ends = {name: min(received, ceilings.get(name, received)) for name in self.restored}
            self.restored = {
                name: kept
                for name, runs in self.restored.items()
                if (kept := clip(runs, ends[name]))
            }


NONE_RUN: Mapping[str, RunningNote] = {}
"""No running records. A plain dict, because Spark's tasks send snapshots by pickle."""


class OffsetSnapshot(NamedTuple):
    """Position and settled sets of one partition, taken together.

    ``leader_epoch`` is that of the record at the position, -1 when nothing is held there. ``notes``
    has the notes on the lanes and records of each subscription. ``running`` has its running
    records.
    """

    position: int
    runs: dict[str, Runs]
    leader_epoch: int = -1
    notes: Mapping[str, LaneNotes] = MappingProxyType({})
    running: Mapping[str, RunningNote] = NONE_RUN


class Derived(NamedTuple):
    """Summary of a snapshot of one partition, for the status.

    ``settled_max`` is one past the highest settled offset. ``islands`` is how many offsets are
    settled beyond the position. ``unsettled`` is how many records are held. ``oldest_ms`` is the
    timestamp of the record at the position. ``since`` is when that record was first seen to be the
    oldest, in monotonic seconds. With several subscriptions ``islands`` is their minimum,
    ``unsettled`` and ``settled_max`` are their maximum. ``runs`` has the offsets that each has
    settled beyond the position.
    """

    position: int
    settled_max: int
    islands: int
    unsettled: int
    oldest_ms: int | None
    since: float
    runs: Mapping[str, Runs] = MappingProxyType({})


Unsettled = dict[TopicPartition, dict[int, Record]]
"""Held records of each partition, by offset.

By offset, because a failed record may be held twice: by its lane, and as the last started record of
its slice.
"""


def collect(records: Iterable[tuple[TopicPartition, Record]]) -> Unsettled:
    """Return the records, each given with its partition, by partition and offset."""
    found: Unsettled = {}
    for partition, record in records:
        held = found.get(partition)
        if held is None:
            found[partition] = held = {}
        held[record.offset()] = record
    return found


def derive(
    end: int,
    unsettled: Mapping[str, Mapping[int, Record]],
    restored: Mapping[str, Runs],
    ceilings: Mapping[str, int],
) -> OffsetSnapshot:
    """Return the safe position and the offsets that each subscription has settled beyond it.

    ``unsettled`` has the held records of each subscription, in any order. An offset is safe only
    when every subscription has settled it. Records parked beyond a subscription's ceiling count as
    not received there. Otherwise offsets between parked records that never existed would make the
    set exceed its bound.
    """
    first = min((min(held) for held in unsettled.values() if held), default=None)
    position = end if first is None else first
    epoch = None
    runs: dict[str, Runs] = {}
    for name, held in unsettled.items():
        if position in held:
            epoch = held[position].leader_epoch()
        below = min(end, ceilings.get(name, end))
        open_below = sorted(offset for offset in held if offset < below)
        if settled := settled_runs(position, below, open_below, restored.get(name, ())):
            runs[name] = settled
    return OffsetSnapshot(position, runs, -1 if epoch is None else epoch)


def look(
    snapshot: OffsetSnapshot,
    held: Mapping[str, Mapping[int, Record]],
    before: Derived | None,
    now: float,
) -> Derived:
    """Return the summary of a snapshot; ``held`` has the records that it was derived from."""
    runs = [snapshot.runs.get(name, ()) for name in held]
    unsettled = max(map(len, held.values()))
    oldest = next(
        (each[snapshot.position] for each in held.values() if snapshot.position in each), None
    )
    same = before is not None and before.position == snapshot.position and before.unsettled
    return Derived(
        snapshot.position,
        max((each[-1][1] for each in runs if each), default=snapshot.position),
        min(sum(end - start for start, end in each) for each in runs),
        unsettled,
        None if oldest is None else oldest.timestamp()[1],
        before.since if same and before is not None else now,
        snapshot.runs,
    )

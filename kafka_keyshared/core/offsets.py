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
from types import MappingProxyType
from typing import NamedTuple

from kafka_keyshared.core.lane_notes import LaneNotes
from kafka_keyshared.core.metadata import Runs, clip, settled_runs
from kafka_keyshared.core.running_notes import Running
from kafka_keyshared.model import Record, TopicPartition


@dataclass(slots=True)
class PartitionState:
    """One assigned partition of one epoch: the next one has a state of its own.

    ``received_end`` is the next offset yet to be received, None until something is known.
    ``restored`` holds, per subscription, the settled runs that came with the assignment and have
    not been passed yet; ``unknown`` what other subscriptions left in the metadata, to be handed on,
    and ``notes`` what it said of lanes and records when the partition came. ``topic_id`` is the
    id of the topic that the partition began of, None until it is known: commits name it.
    ``outdated`` says that the committed text names offsets beyond the end of the log.
    """

    received_end: int | None
    restored: dict[str, Runs] = field(default_factory=dict)
    unknown: Mapping[str, bytes] = field(default_factory=dict)
    notes: Mapping[str, LaneNotes] = field(default_factory=dict)
    topic_id: str | None = None
    outdated: bool = False

    @property
    def settled_end(self) -> int | None:
        """One past the highest offset that has settled or was received: the log has to reach it.

        A log that ends before it was cut off, and gives these offsets out again.
        """
        ends = [runs[-1][1] for runs in self.restored.values() if runs]
        return self.received_end if self.received_end is None else max(self.received_end, *ends, 0)

    def drop_passed(self, ceilings: Mapping[str, int]) -> None:
        """Forget restored runs that are derived from here on: what is received and not parked.

        ``ceilings`` are those of the subscriptions: what stands beyond is parked.
        """
        received = self.received_end
        if self.restored and received is not None:
            ends = {name: min(received, ceilings.get(name, received)) for name in self.restored}
            self.restored = {
                name: kept
                for name, runs in self.restored.items()
                if (kept := clip(runs, ends[name]))
            }


NONE_RUN: Mapping[str, Running] = {}
"""No running records. A plain dict, because Spark's tasks send snapshots by pickle."""


class Snapshot(NamedTuple):
    """Position and settled sets of one partition, taken together.

    ``leader_epoch`` is that of the record at the position, -1 when nothing is held there;
    ``notes`` are what else there is to say of the lanes and records of each subscription, and
    ``running`` which of its records run.
    """

    position: int
    runs: dict[str, Runs]
    leader_epoch: int = -1
    notes: Mapping[str, LaneNotes] = MappingProxyType({})
    running: Mapping[str, Running] = NONE_RUN


class Derived(NamedTuple):
    """What a snapshot shows of one partition, for whoever looks on.

    ``completed`` is one past the highest settled offset, ``islands`` how many offsets are settled
    beyond the position, ``incomplete`` how many records are held; ``oldest_ms`` is the timestamp of
    the record at the position, and ``since`` when that record was first seen to be the oldest, in
    monotonic seconds. With several subscriptions the least settled one counts. ``runs`` are what
    each has settled beyond the position.
    """

    position: int
    completed: int
    islands: int
    incomplete: int
    oldest_ms: int | None
    since: float
    runs: Mapping[str, Runs] = MappingProxyType({})


Unsettled = dict[TopicPartition, dict[int, Record]]
"""What is held of each partition, by offset.

By offset, because a record that failed is held by its lane and may be its slice's last started one
too.
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
) -> Snapshot:
    """Return the safe position and what each subscription has settled beyond it.

    ``unsettled`` gives what each subscription holds, in any order. The position waits for all of
    them: an offset is safe only when every subscription has settled it. What is parked beyond a
    subscription's ceiling counts as not received there: offsets between parked records that never
    existed would make the set larger than it was bounded to.
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
    return Snapshot(position, runs, -1 if epoch is None else epoch)


def look(
    snapshot: Snapshot,
    held: Mapping[str, Mapping[int, Record]],
    before: Derived | None,
    now: float,
) -> Derived:
    """Return what the snapshot shows; ``held`` is what it was derived from."""
    runs = [snapshot.runs.get(name, ()) for name in held]
    incomplete = max(map(len, held.values()))
    oldest = next(
        (each[snapshot.position] for each in held.values() if snapshot.position in each), None
    )
    same = before is not None and before.position == snapshot.position and before.incomplete
    return Derived(
        snapshot.position,
        max((each[-1][1] for each in runs if each), default=snapshot.position),
        min(sum(end - start for start, end in each) for each in runs),
        incomplete,
        None if oldest is None else oldest.timestamp()[1],
        before.since if same and before is not None else now,
        snapshot.runs,
    )

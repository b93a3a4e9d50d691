"""The offset range of a batch, and its commit entries.

A batch goes from the group's position to the log end at the time of planning. Some policies leave
records behind: those that block keys, or a limit for dead letters. All other records of the batch
may then settle beyond them, in any pattern. The settled set must fit in the commit metadata. Such a
batch takes at most as much of a partition as the core lets a pod lease with three quarters of the
room. Other policies leave nothing behind, because a task waits for its retries. Their batches have
any size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafka_keyshared.core.contract.commands import CommitEntry, Notice
from kafka_keyshared.core.contract.events import StartPoint
from kafka_keyshared.core.offsets.commit import encode
from kafka_keyshared.core.offsets.commit_metadata import set_rooms
from kafka_keyshared.core.offsets.metadata_sections import LaneNotes, Tried
from kafka_keyshared.core.offsets.positions import OffsetSnapshot, PartitionState
from kafka_keyshared.core.offsets.settled_set_codec import bitmap_span
from kafka_keyshared.core.offsets.text_limit import TextLimit
from kafka_keyshared.core.partitions.assignment import start
from kafka_keyshared.core.partitions.offset_ceilings import lease_end
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.executors.notice_text import line_of
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.spark.placement import derived_key
from kafka_keyshared.spark.settled_offsets import common, to_position
from kafka_keyshared.spark.task import BatchShare, TaskReport

SET_SHARE = 0.75
"""Share of a set's room that a batch may need; the rest is for the members that resume after it."""

BATCH_OFFSETS = 1_000_000
"""Default maximum of offsets of a partition in a batch that leaves nothing behind."""


def leaves_nothing(settings: SubscriptionSettings) -> bool:
    """Return whether every record of a batch is certain to settle in it."""
    gives_up = settings.on_exhausted in ("drop", "dead_letter")
    # A record that goes by its own key, bytes or null, cannot have an unreadable key.
    readable = derived_key(settings) is None and settings.null_keys != "reject"
    keyed = readable or settings.when_undecodable() != "block"
    return gives_up and keyed and settings.dlq_limit is None


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """A batch: the share of each partition that has one, and notices for the log.

    ``states`` are those of all partitions as the core starts them; ``ends`` the ends of the logs.
    """

    shares: Mapping[TopicPartition, BatchShare]
    states: Mapping[TopicPartition, PartitionState]
    ends: Mapping[TopicPartition, int]
    notices: tuple[str, ...] = ()

    @property
    def offsets(self) -> int:
        """The number of offsets in the batch."""
        return sum(share.end - share.begin for share in self.shares.values())


def plan(
    starts: Mapping[TopicPartition, StartPoint],
    settings: SubscriptionSettings,
    most: int = BATCH_OFFSETS,
) -> BatchPlan:
    """Plan the next batch from the group's positions.

    ``starts`` have positions and the bounds of the logs. ``most`` is the maximum number of offsets
    of a partition in a batch.
    """
    shares: dict[TopicPartition, BatchShare] = {}
    states: dict[TopicPartition, PartitionState] = {}
    ends: dict[TopicPartition, int] = {}
    notices: list[str] = []
    for partition, point in starts.items():
        state, begin, said = start(partition, point, [settings.name])
        notices += [line_of(each).text for each in said if isinstance(each, Notice)]
        if begin is None or point.log_end is None:
            raise InvariantError(f"{partition}: a batch needs a position and the end of the log")
        states[partition], ends[partition] = state, point.log_end
        end = min(point.log_end, begin + most)
        if not leaves_nothing(settings):
            end = min(end, _reach(begin, state, settings.name))
        if end > begin:
            shares[partition] = BatchShare(point, begin, end)
    return BatchPlan(shares, states, ends, tuple(notices))


def _reach(begin: int, state: PartitionState, name: str) -> int:
    """Return the end up to which all records may settle, in any pattern, and the set still fits."""
    room = int(set_rooms([name])[name] * SET_SHARE)
    restored = state.restored.get(name, ())
    reach = begin + bitmap_span(room)
    if restored and restored[-1][1] > reach:
        return lease_end(begin, begin, (), restored, room)
    return reach


def outcome(
    plan: BatchPlan, reports: Iterable[TaskReport], name: str
) -> dict[TopicPartition, CommitEntry]:
    """Return the commit entries: for each partition the offsets that all tasks have settled."""
    told = list(reports)
    snapshots: dict[TopicPartition, OffsetSnapshot] = {}
    for partition, share in plan.shares.items():
        [first, *others] = [report.settled[partition] for report in told]
        runs, notes = first
        for each in others:
            runs, notes = common(runs, each.runs), together(notes, each.notes)
        position, beyond = to_position(share.begin, runs)
        tried = {each: tried for each, tried in notes.tried.items() if each >= position}
        snapshots[partition] = OffsetSnapshot(
            position,
            {name: beyond} if beyond else {},
            notes={name: LaneNotes(notes.diverted, tried)},
        )
    entries, encoded = encode(snapshots, plan.states, TextLimit([name]))
    for partition, text in encoded.items():
        if text.truncated:
            raise InvariantError(
                f"{partition}: the settled set beyond {entries[partition].position} does not "
                "fit in the commit metadata, although the batch was planned for it"
            )
    return entries


def together(one: LaneNotes, other: LaneNotes) -> LaneNotes:
    """Merge the notes of two tasks, each of which is authoritative for its own lanes.

    Lanes diverted before the batch are diverted for both. Therefore a lane counts as released if
    either task does not name it.
    """
    tried: dict[int, Tried] = {**one.tried, **other.tried}
    return LaneNotes(one.diverted | other.diverted, tried)

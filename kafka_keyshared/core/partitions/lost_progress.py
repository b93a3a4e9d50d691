"""Progress of lost partitions, restored when they come straight back.

A member must not commit a lost partition, because another member may own it. Often no member does:
in an outage all members lose their partitions and then get the same ones again. A client whose
commit is refused for an old generation also gives up all partitions and rejoins. If no other
member has committed since, this member's settled records are still settled and must not run again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from kafka_keyshared.core.contract.commands import Command, CommitEntry, Notice
from kafka_keyshared.core.contract.commit_facts import ProgressRegained
from kafka_keyshared.core.contract.events import StartPoint
from kafka_keyshared.core.offsets import commit_metadata
from kafka_keyshared.core.offsets.metadata_sections import (
    LaneNotes,
    LogPosition,
    from_position,
    merged,
    topic_id_in,
)
from kafka_keyshared.core.offsets.settled_set_codec import clip, union
from kafka_keyshared.model import TopicPartition

KEPT_SECONDS = 300.0
"""Longer than sessions and most outages, and too short for a topic to be recreated in it."""


@dataclass(frozen=True, slots=True)
class _RegainedRecord:
    ours: Collection[CommitEntry]
    left: CommitEntry
    until: float


class Regained:
    """The settled records of each lost partition. Times are monotonic, in seconds."""

    def __init__(self) -> None:
        self._kept: dict[TopicPartition, _RegainedRecord] = {}

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._kept

    def names_topic_id(self, partition: TopicPartition) -> bool:
        """Say whether the kept progress of a partition is valid for one topic id only."""
        kept = self._kept.get(partition)
        return kept is not None and topic_id_in(kept.left.metadata) is not None

    def keep(
        self,
        left: Mapping[TopicPartition, CommitEntry],
        ours: Mapping[TopicPartition, Collection[CommitEntry]],
        now: float,
    ) -> None:
        """Keep the entries that would have been committed for lost partitions.

        ``ours`` are the entries of this member that the broker may have. A partition without one is
        not kept: a commit of another member could not be detected.
        """
        self._kept = {each: kept for each, kept in self._kept.items() if now <= kept.until}
        for partition, entry in left.items():
            if entries := ours.get(partition):
                self._kept[partition] = _RegainedRecord(entries, entry, now + KEPT_SECONDS)

    def starts(
        self,
        starts: Mapping[TopicPartition, StartPoint],
        stored: Mapping[TopicPartition, CommitEntry | None],
        known: Collection[str],
        now: float,
    ) -> tuple[dict[TopicPartition, StartPoint], list[Command]]:
        """Return the actual start of assigned partitions, and the notices to log.

        ``stored`` is the broker's entry for each, ``known`` are the ids of the subscriptions. If
        the stored entry is still one of this member's, the partition starts at its kept position.
        It never starts beyond the end of its log, which may have been truncated or recreated. Each
        kept entry is used once.
        """
        really = {
            partition: _start(partition, point, stored[partition], kept, known)
            if (kept := self._kept.pop(partition, None)) is not None and now <= kept.until
            else point
            for partition, point in starts.items()
        }
        back = [each for each in starts if really[each] is not starts[each]]
        if not back:
            return really, []
        return really, [Notice(ProgressRegained(back))]


def _start(
    partition: TopicPartition,
    point: StartPoint,
    stored: CommitEntry | None,
    kept: _RegainedRecord,
    known: Collection[str],
) -> StartPoint:
    if stored is None or stored not in kept.ours:
        return point
    left = _both(partition, point.topic_id, stored, kept.left, known)
    # Without a known log end, kept progress cannot be checked against it, so none is used.
    if left is None or point.log_end is None or left.position > point.log_end:
        return point
    return replace(point, position=left.position, metadata=left.metadata, stored=False)


def _both(
    partition: TopicPartition,
    topic_id: str | None,
    stored: CommitEntry,
    left: CommitEntry,
    known: Collection[str],
) -> CommitEntry | None:
    """Return the union of the settled records of two entries of this member.

    Return None if one of them is not of the current topic.

    Mostly the result is ``left``. But the entry of a loss may have less than an earlier commit.
    Progress is read from the worker, and the worker may be gone.
    """
    position = max(stored.position, left.position)
    parts = [
        commit_metadata.decode(
            each.metadata, LogPosition(partition, each.position, topic_id), known
        )
        for each in (stored, left)
    ]
    if any(part.problem for part in parts):
        return None
    sections = {
        name: clip(union(*(part.sections.get(name, ()) for part in parts)), position)
        for name in known
    }
    unknown = {**parts[0].unknown, **parts[1].unknown}
    notes = {
        name: from_position(
            merged(*(part.notes.get(name, LaneNotes()) for part in parts)), position
        )
        for name in known
    }
    at = LogPosition(partition, position, topic_id)
    text = commit_metadata.encode(
        at, sections, unknown, notes, set_budget=commit_metadata.TEXT_LIMIT
    )
    return CommitEntry(position, text.text)

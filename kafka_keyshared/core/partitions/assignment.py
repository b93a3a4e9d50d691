"""Partition assignment: start positions, and what was settled before them.

A partition gets a new epoch each time it is assigned to this process. Late reports of an earlier
epoch settle, block and replace nothing (:mod:`.removal`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter

from kafka_keyshared.core.contract.commands import (
    AssignAt,
    Command,
    CommitEntry,
    Level,
    Notice,
)
from kafka_keyshared.core.contract.events import StartPoint
from kafka_keyshared.core.offsets import commit_metadata
from kafka_keyshared.core.offsets.lane_section import LaneNotes, Tried
from kafka_keyshared.core.offsets.log_position import LogPosition
from kafka_keyshared.core.offsets.positions import PartitionState
from kafka_keyshared.core.offsets.running_section import NONE_RUNNING, RunningNote
from kafka_keyshared.core.offsets.settled_set_codec import MAX_OFFSET
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.model import Record, TopicPartition, partition_of


def start(
    partition: TopicPartition, point: StartPoint, known: Iterable[str]
) -> tuple[PartitionState, int | None, list[Command]]:
    """Return the state of a newly assigned partition, its start position, and log notices.

    The commit metadata is used only if it was written for this log and this position. Commits that
    were mirrored, copied or restored carry the offsets of another log.

    The settled set is clipped to the offsets that the log holds. A claim beyond the log end would
    make new records there count as settled. The state is then ``outdated``: the clipped set must be
    committed before the log grows. Afterwards the next owner could not detect the wrong claim.

    When retention has removed the committed position, reading continues at the log start,
    regardless of ``auto.offset.reset``. Everything before the log start is gone, and everything
    after it is wanted.
    """
    if point.position is None:
        return PartitionState(None, topic_id=point.topic_id), None, []
    commands: list[Command] = []
    position = point.position
    if point.log_start is not None and position < point.log_start:
        commands.append(
            Notice(
                Level.WARNING,
                f"{partition}: retention has removed the log up to {point.log_start}, past the "
                f"committed position {position}; {point.log_start - position} offsets are gone, "
                "reading goes on at the start of the log",
            )
        )
        position = point.log_start
    log_end = MAX_OFFSET if point.log_end is None else point.log_end
    at = LogPosition(partition, point.position, point.topic_id)
    decoded = commit_metadata.decode(point.metadata, at, list(known))
    if decoded.problem is not None:
        commands.append(Notice(Level.WARNING, f"{partition}: {decoded.problem}"))
    restored = {
        name: runs
        for name, section in decoded.sections.items()
        if (runs := commit_metadata.clip(section, position, log_end))
    }
    notes = {
        name: LaneNotes(
            each.diverted,
            _within(each.tried, position, log_end),
            # Metadata that this member has yet to commit itself names no suspects.
            _running(each.running, position, log_end) if point.stored else NONE_RUNNING,
        )
        for name, each in decoded.notes.items()
    }
    outdated = _names_beyond(decoded, log_end)
    state = PartitionState(position, restored, decoded.unknown, notes, point.topic_id, outdated)
    return state, position, commands


def _names_beyond(decoded: commit_metadata.Decoded, log_end: int) -> bool:
    """Return whether the commit metadata names offsets that the log does not have."""
    if any(runs and runs[-1][1] > log_end for runs in decoded.sections.values()):
        return True
    notes = decoded.notes.values()
    return any(at >= log_end for each in notes for at in (*each.tried, *each.running.numbers))


def _within(tried: Mapping[int, Tried], low: int, high: int) -> dict[int, Tried]:
    """Return the attempt notes of records that the log can hold; others have not been tried."""
    return {offset: each for offset, each in tried.items() if low <= offset < high}


def _running(running: RunningNote, low: int, high: int) -> RunningNote:
    """Return the running records that the log can hold."""
    within = {at: number for at, number in running.numbers.items() if low <= at < high}
    return RunningNote(within, running.more)


def assign(
    partitions: dict[TopicPartition, PartitionState],
    starts: Mapping[TopicPartition, StartPoint],
    subscriptions: Mapping[str, Subscription],
) -> list[Command]:
    """Take over newly assigned partitions."""
    commands: list[Command] = []
    positions: dict[TopicPartition, int | None] = {}
    for partition, point in starts.items():
        state, position, notices = start(partition, point, subscriptions)
        partitions[partition] = state
        for name, notes in state.notes.items():
            sub = subscriptions[name]
            sub.diverted.begin(partition, notes.diverted)
            if notes.tried:
                sub.carried[partition] = dict(notes.tried)
        positions[partition] = position
        commands += notices
    commands.append(AssignAt(positions))
    return commands


def only_topic(partitions: Iterable[TopicPartition]) -> str | None:
    """Return the only topic of the partitions, or None if there are several topics or none."""
    topics = {partition.topic for partition in partitions}
    return topics.pop() if len(topics) == 1 else None


def stored(
    starts: Mapping[TopicPartition, StartPoint],
) -> dict[TopicPartition, CommitEntry | None]:
    """Return the entry that the broker has committed for each starting partition, or None."""
    return {
        partition: CommitEntry(point.position, point.metadata or "")
        if point.position is not None and point.stored
        else None
        for partition, point in starts.items()
    }


def unreceived(
    states: Mapping[TopicPartition, PartitionState], subscription: str
) -> Callable[[Record], bool] | None:
    """Return a test for records that the subscription settled before this assignment.

    Return None when there is no such record, so that the common path tests nothing.
    """
    sets = {
        partition: runs
        for partition, state in states.items()
        if (runs := state.restored.get(subscription))
    }
    if not sets:
        return None

    def settled_before(record: Record) -> bool:
        runs = sets.get(partition_of(record))
        if runs is None:
            return False
        offset = record.offset()
        index = bisect_right(runs, offset, key=itemgetter(0)) - 1
        return index >= 0 and offset < runs[index][1]

    return settled_before


def not_settled_before(
    states: Mapping[TopicPartition, PartitionState], sub: Subscription, records: Sequence[Record]
) -> Sequence[Record]:
    """Return the records not settled before this assignment; count the others as skipped."""
    settled_before = unreceived(states, sub.name)
    if settled_before is None:
        return records
    kept: list[Record] = []
    skipped: list[Record] = []
    for record in records:
        wanted = record.error() is not None or not settled_before(record)
        (kept if wanted else skipped).append(record)
    sub.counts.skip(skipped)
    return kept

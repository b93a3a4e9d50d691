"""Partition assignment: ownership states, start positions, and what was settled before them.

A partition gets a new epoch each time it is assigned to this process. Late reports of an earlier
epoch settle, block and replace nothing (:mod:`.removal`).
:mod:`kafka_keyshared.core.backpressure.pause_reasons` has the reasons why a partition is not
fetched.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from operator import itemgetter

from kafka_keyshared.core.contract.commands import (
    AssignAt,
    Command,
    CommitEntry,
    Notice,
)
from kafka_keyshared.core.contract.commit_facts import MetadataIgnored, PositionRemoved
from kafka_keyshared.core.contract.events import StartPoint
from kafka_keyshared.core.offsets import commit_metadata
from kafka_keyshared.core.offsets.metadata_sections import (
    NONE_RUNNING,
    LaneNotes,
    LogPosition,
    RunningNote,
    Tried,
)
from kafka_keyshared.core.offsets.positions import PartitionState
from kafka_keyshared.core.offsets.settled_set_codec import MAX_OFFSET
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import Record, TopicPartition, partition_of


class PartitionOwnership(enum.Enum):
    """The ownership state of a partition."""

    ABSENT = "absent"
    """Not assigned to this member."""
    OWNED = "owned"
    """Assigned to this member: its records start and its positions are committed."""
    CLOSING = "closing"
    """Being revoked: none of its records start, and it may be committed once more."""


class PartitionEvent(enum.Enum):
    """An event of a partition; the text is the error where the event is impossible."""

    ASSIGNED = "assigned twice without being revoked"
    RECEIVED = "delivered records without being assigned, or while it is given up"
    REVOKING = "about to be given up without being assigned, or twice"
    FORGOTTEN = "forgotten without being assigned, or before it is given up"


_S, _E = PartitionOwnership, PartitionEvent

PARTITION_TABLE: Mapping[PartitionOwnership, Mapping[PartitionEvent, PartitionOwnership]] = {
    _S.ABSENT: {_E.ASSIGNED: _S.OWNED},
    _S.OWNED: {
        _E.RECEIVED: _S.OWNED,
        _E.REVOKING: _S.CLOSING,
    },
    _S.CLOSING: {
        _E.FORGOTTEN: _S.ABSENT,
    },
}
"""The next state by state and event; a missing entry is an impossible event.

The owner thread revokes a partition within one call. During that call it fetches nothing, and the
revoke is not announced a second time.
"""


def refuse_impossible(
    states: Container[TopicPartition],
    closing: Container[TopicPartition],
    event: PartitionEvent,
    partitions: Iterable[TopicPartition],
) -> None:
    """Raise :class:`InvariantError` naming all partitions for which the event is impossible.

    ``states`` has the assigned partitions, ``closing`` those of them that are being revoked.
    """
    refused = []
    for each in partitions:
        owned = PartitionOwnership.CLOSING if each in closing else PartitionOwnership.OWNED
        if event not in PARTITION_TABLE[owned if each in states else PartitionOwnership.ABSENT]:
            refused.append(each)
    if refused:
        raise InvariantError(f"{', '.join(map(str, sorted(refused)))} {event.value}")


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
        commands.append(Notice(PositionRemoved(partition, point.log_start, position)))
        position = point.log_start
    log_end = MAX_OFFSET if point.log_end is None else point.log_end
    at = LogPosition(partition, point.position, point.topic_id)
    decoded = commit_metadata.decode(point.metadata, at, list(known))
    if decoded.problem is not None:
        commands.append(Notice(MetadataIgnored(partition, decoded.problem)))
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

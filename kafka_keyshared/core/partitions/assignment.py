"""Partition assignment and removal: start positions, epochs, running records.

A partition gets a new epoch each time it is assigned to this process. State of an earlier epoch is
forgotten without being settled. Late reports of that epoch settle, block and replace nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import itemgetter

from kafka_keyshared.core.contract.commands import (
    AssignAt,
    Command,
    CommitEntry,
    Lapse,
    Notice,
)
from kafka_keyshared.core.contract.events import StartPoint
from kafka_keyshared.core.contract.facts import MetadataIgnored, PositionRemoved
from kafka_keyshared.core.contract.slices import Progress, SliceState
from kafka_keyshared.core.lanes.closed import LETTERS_ON_THEIR_WAY
from kafka_keyshared.core.leasing.reopening import advance
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


def held_of(
    subs: Iterable[Subscription], partitions: Collection[TopicPartition], progress: Progress
) -> int:
    """Return how many records of these partitions are held, given the workers' progress."""
    return sum(
        partition in partitions for sub in subs for partition, _ in sub.unsettled.records(progress)
    )


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


def under_way(
    subscriptions: Iterable[Subscription],
    partitions: set[TopicPartition],
    progress: Progress,
) -> tuple[list[Record], int]:
    """Return the partitions' running records and the number of their unanswered dead letters."""
    found: list[Record] = []
    dead_letters = 0
    for sub in subscriptions:
        found += running(sub, partitions, progress)
        dead_letters += dead_lettering(sub, partitions)
    return found, dead_letters


def running(sub: Subscription, partitions: set[TopicPartition], progress: Progress) -> list[Record]:
    """Return the records of the partitions that are running, or that may be.

    While a worker has not answered its recall, any record that it has not ended may be running.
    """
    found = []
    for worker in sub.workers.values():
        for leased in worker.slices.values():
            came = leased.slice.came
            may = leased.outstanding(progress) if worker.recalls else leased.running(progress)
            found += [came[index] for index in may if came.partition_of(index) in partitions]
    return found


def dead_lettering(sub: Subscription, partitions: set[TopicPartition]) -> int:
    """Return how many records of the partitions wait for the answer to their dead letter."""
    return sum(
        closed.state in LETTERS_ON_THEIR_WAY
        and closed.head is not None
        and closed.partition in partitions
        for closed in sub.closed.lanes.values()
    )


def forget(sub: Subscription, partitions: set[TopicPartition], progress: Progress) -> list[Command]:
    """Drop everything of the partitions without settling it; return lapses for their leases.

    Unstarted records of the partitions must have been recalled; otherwise they come back too late.
    Records that still run belong to an earlier epoch from here on. Such a record may be the running
    one of its key; its serial worker then waits for it. Records that had ended by ``progress`` have
    settled although their slice still runs, and count as settled.
    """
    before = sum(1 for _ in sub.unsettled.waiting())
    commands: list[Command] = []
    for row in sub.routing.rows():
        for _, record in row.granted:
            if partition_of(record) in partitions:
                sub.give_back(record)
    for worker in sub.workers.values():
        worker.forget_before(partitions)
        lapsed = tuple(
            id_
            for id_, leased in worker.slices.items()
            if _note_in_time(sub, leased, partitions, progress)
        )
        if lapsed:
            commands.append(Lapse(sub.name, worker.id, lapsed, frozenset(partitions)))
    for place in sub.routing.places:
        place.forget(partitions)
    for partition in partitions:
        sub.carried.pop(partition, None)
    sub.failure_watch.forget(partitions)
    sub.diverted.forget(partitions, sub.closed)
    _open_without_head(sub)
    dropped = before - sum(1 for _ in sub.unsettled.waiting())
    sub.window.free(dropped)
    return commands


def _note_in_time(
    sub: Subscription, leased: SliceState, partitions: set[TopicPartition], progress: Progress
) -> bool:
    """Note which records of the partitions had ended; return whether the slice has any of them."""
    came = leased.slice.came
    these = [
        index
        for index in leased.indices()
        if came.partition_of(index) in partitions and not sub.epochs.ended(leased, index)
    ]
    if these:
        leased.in_time |= frozenset(these).difference(leased.outstanding(progress))
    return bool(these)


def _open_without_head(sub: Subscription) -> None:
    """Advance lanes whose head was forgotten; none of them is to run the head again."""
    for closed in list(sub.closed.lanes.values()):
        if closed.head is None:
            sub.routing.withdraw(closed)
            advance(sub, closed)

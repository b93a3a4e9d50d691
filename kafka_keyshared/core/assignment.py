"""Partitions coming and going: start points, epochs, what a revoke waits for, and forgetting.

A partition has a new epoch each time it is assigned to this process. What is left of an earlier
epoch is forgotten without being settled, and its late reports settle, block and replace nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import itemgetter

from kafka_keyshared.core import metadata
from kafka_keyshared.core.commands import AssignAt, Command, CommitEntry, Lapse, Level, Notice
from kafka_keyshared.core.events import StartPoint
from kafka_keyshared.core.lane_notes import LaneNotes, Tried
from kafka_keyshared.core.lanes import LETTERS_ON_THEIR_WAY
from kafka_keyshared.core.log_position import LogPosition
from kafka_keyshared.core.offsets import PartitionState
from kafka_keyshared.core.opening import advance
from kafka_keyshared.core.running_notes import NONE_RUNNING, Running
from kafka_keyshared.core.runs import MAX_OFFSET
from kafka_keyshared.core.slices import Leased, Progress
from kafka_keyshared.core.subscription import Subscription
from kafka_keyshared.model import Record, TopicPartition, partition_of


def start(
    partition: TopicPartition, point: StartPoint, known: Iterable[str]
) -> tuple[PartitionState, int | None, list[Command]]:
    """Return the state of a newly assigned partition, where to read from, and what to say.

    The commit metadata is believed only if it was written for this log and this position: commits
    that were mirrored, copied or restored carry the offsets of another log. The settled set in it
    is clipped to what the log really holds: what it claims beyond the end of the log would make new
    records there count as done. The state is then ``outdated``: what is left of the text has to be
    committed before the log has grown, because the next owner could not tell any more. When
    retention has removed the committed position, reading goes on at the start of the log, whatever
    ``auto.offset.reset`` says, because everything before it is gone and everything after it is
    wanted.
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
    decoded = metadata.decode(point.metadata, at, list(known))
    if decoded.problem is not None:
        commands.append(Notice(Level.WARNING, f"{partition}: {decoded.problem}"))
    restored = {
        name: runs
        for name, section in decoded.sections.items()
        if (runs := metadata.clip(section, position, log_end))
    }
    notes = {
        name: LaneNotes(
            each.diverted,
            _within(each.tried, position, log_end),
            # What this member was to commit itself names no suspect.
            _running(each.running, position, log_end) if point.stored else NONE_RUNNING,
        )
        for name, each in decoded.notes.items()
    }
    outdated = _names_beyond(decoded, log_end)
    state = PartitionState(position, restored, decoded.unknown, notes, point.topic_id, outdated)
    return state, position, commands


def _names_beyond(decoded: metadata.Decoded, log_end: int) -> bool:
    """Return whether a commit text names offsets that the log does not have."""
    if any(runs and runs[-1][1] > log_end for runs in decoded.sections.values()):
        return True
    notes = decoded.notes.values()
    return any(at >= log_end for each in notes for at in (*each.tried, *each.running.numbers))


def _within(tried: Mapping[int, Tried], low: int, high: int) -> dict[int, Tried]:
    """Return what is said of records that the log can hold; others have not been tried."""
    return {offset: each for offset, each in tried.items() if low <= offset < high}


def _running(running: Running, low: int, high: int) -> Running:
    """Return the running records that the log can hold."""
    within = {at: number for at, number in running.numbers.items() if low <= at < high}
    return Running(within, running.more)


def assign(
    partitions: dict[TopicPartition, PartitionState],
    starts: Mapping[TopicPartition, StartPoint],
    subscriptions: Mapping[str, Subscription],
) -> list[Command]:
    """Take over partitions."""
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
    """Return how many records of these partitions are held, by the workers' progress."""
    return sum(partition in partitions for sub in subs for partition, _ in sub.unsettled(progress))


def only_topic(partitions: Iterable[TopicPartition]) -> str | None:
    """Return the only topic that there is; None where there are several, or none."""
    topics = {partition.topic for partition in partitions}
    return topics.pop() if len(topics) == 1 else None


def stored(
    starts: Mapping[TopicPartition, StartPoint],
) -> dict[TopicPartition, CommitEntry | None]:
    """Return what the broker has committed for each partition that starts."""
    return {
        partition: CommitEntry(point.position, point.metadata or "")
        if point.position is not None and point.stored
        else None
        for partition, point in starts.items()
    }


def unreceived(
    states: Mapping[TopicPartition, PartitionState], subscription: str
) -> Callable[[Record], bool] | None:
    """Return the test for records that the subscription settled before this assignment.

    None when there is no such record, so that the common path tests nothing.
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
    """Return the records without those that were settled before this assignment; count these."""
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
    """Return the running records of the partitions and how many dead letters are on the way."""
    found: list[Record] = []
    dead_letters = 0
    for sub in subscriptions:
        found += running(sub, partitions, progress)
        dead_letters += dead_lettering(sub, partitions)
    return found, dead_letters


def running(sub: Subscription, partitions: set[TopicPartition], progress: Progress) -> list[Record]:
    """Return the records of the partitions that are running, or that may be.

    Of a worker that has not answered its recall that is whatever it has not ended.
    """
    found = []
    for worker in sub.workers.values():
        for leased in worker.slices.values():
            came = leased.slice.came
            may = leased.outstanding(progress) if worker.recalls else leased.running(progress)
            found += [came[index] for index in may if came.partition_of(index) in partitions]
    return found


def dead_lettering(sub: Subscription, partitions: set[TopicPartition]) -> int:
    """Return how many records of the partitions wait for the dead-letter topic's answer."""
    return sum(
        closed.state in LETTERS_ON_THEIR_WAY
        and closed.head is not None
        and closed.partition in partitions
        for closed in sub.closed.lanes.values()
    )


def forget(sub: Subscription, partitions: set[TopicPartition], progress: Progress) -> list[Command]:
    """Drop everything of the partitions without settling it; say which leases are over for it.

    What of it has not started must have been recalled, or comes back too late. What still runs is
    of an earlier epoch from here on; a key of which it is the one running is waited for by its
    serial worker. What had ended by ``progress`` has settled although the slice still runs, and
    will count so.
    """
    before = sum(1 for _ in sub.waiting())
    commands: list[Command] = []
    for row in sub.rows():
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
    for place in sub.places:
        place.forget(partitions)
    for partition in partitions:
        sub.carried.pop(partition, None)
    sub.failure_watch.forget(partitions)
    sub.diverted.forget(partitions, sub.closed)
    _open_without_head(sub)
    dropped = before - sum(1 for _ in sub.waiting())
    sub.window.free(dropped)
    return commands


def _note_in_time(
    sub: Subscription, leased: Leased, partitions: set[TopicPartition], progress: Progress
) -> bool:
    """Note which records of the partitions had ended; say whether the slice has any of them."""
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
    """Let lanes go on whose head is forgotten; none of them is to run it again."""
    for closed in list(sub.closed.lanes.values()):
        if closed.head is None:
            sub.withdraw(closed)
            advance(sub, closed)

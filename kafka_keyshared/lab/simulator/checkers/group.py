"""Members and assignments of the checkers' books."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers import restored_notes
from kafka_keyshared.lab.simulator.checkers.by_hand import PausedByHand
from kafka_keyshared.lab.simulator.checkers.logs import HistoryError, LogModels
from kafka_keyshared.lab.simulator.checkers.records import (
    Assignment,
    Delivery,
    End,
    LogModel,
    MemberModel,
    ReadingStart,
    Stage,
)
from kafka_keyshared.lab.simulator.commit_text import CommitTextError, Whose, read_commit
from kafka_keyshared.lab.simulator.history import History
from kafka_keyshared.lab.simulator.member_events import TextCopied
from kafka_keyshared.model import TopicPartition

ENDS = {"stopped": End.STOPPED, "killed": End.KILLED, "halted": End.HALTED}

CHANGES: tuple[type[Any], ...] = (
    *(
        happened.HandedOver,
        happened.TakenBack,
        happened.Began,
        happened.HandlerEnded,
        happened.LetterTold,
    ),
    *(
        happened.ReadingFrom,
        happened.RevokeBegan,
        happened.PartitionsReleased,
        happened.StopRequested,
        happened.Gone,
    ),
    *(happened.OwnerWaits, happened.OwnerResumed, happened.Owned, happened.WorkerDied),
)
"""Events that may change the reason why a record does not run."""


class GroupModel(LogModels):
    """Every member and every assignment, over the logs.

    Two attributes describe the current event: ``ended`` are the assignments that it ended, ``cut``
    are the records that ran in a process that it ended.
    """

    def __init__(self, history: History, settings: Sequence[SubscriptionSettings]) -> None:
        super().__init__(history, settings)
        self.timeline = history.timeline
        self.members: dict[int, MemberModel] = {}
        self.by_hand = PausedByHand(history, self.members)
        # The members that are not gone.
        self.present: dict[int, MemberModel] = {}
        self.assignments: dict[int, Assignment] = {}
        # The latest assignment of each partition, over or not.
        self.readers: dict[TopicPartition, Assignment] = {}
        self.ended: list[Assignment] = []
        self.cut: list[Delivery] = []
        # Callbacks that look at the state before an event changes it.
        self.before: list[Callable[[], None]] = []
        for kind in CHANGES:
            history.listen(kind, self._before)
        listeners: dict[type[Any], Any] = {
            happened.ReadsOn: self._reads_on,
            happened.Joined: self._joined,
            happened.Owned: self._owned,
            happened.ReadingFrom: self._reading,
            happened.RevokeBegan: self._revoking,
            happened.PartitionsReleased: self._released,
            happened.Misplaced: self._misplaced,
            happened.OwnerWaits: self._waiting,
            happened.OwnerResumed: self._answered,
            happened.CommitStored: self._commit_stored,
            TextCopied: self._text_copied,
            happened.StopRequested: self._stopping,
            happened.Gone: self._gone,
        }
        for kind, listener in listeners.items():
            history.listen(kind, listener)

    def _before(self, told: object) -> None:
        del told
        for look in self.before:
            look()

    @property
    def now(self) -> float:
        """Return the time."""
        return self.timeline.now

    # --- the group ---

    def member(self, number: int) -> MemberModel:
        """Return the state of a member."""
        try:
            return self.members[number]
        except KeyError:
            raise HistoryError(f"unknown member {number}") from None

    def _joined(self, told: happened.Joined) -> None:
        member = MemberModel(told.member, iter(self.settings))
        self.members[told.member] = self.present[told.member] = member

    def _owned(self, told: happened.Owned) -> None:
        member = self.member(told.member)
        for partition in told.partitions:
            if not told.too_late:
                self._steal(partition, member)
            if partition not in member.pending:
                member.keep(self.now, 1)
            member.pending[partition] = ReadingStart(
                told.stored.get(partition), stolen=told.too_late
            )

    def _steal(self, partition: TopicPartition, by: MemberModel) -> None:
        """Mark the partition as stolen at every other member that has it or is about to read it."""
        for member in self.present.values():
            if member is by:
                continue
            if partition in member.live:
                member.live[partition].stolen = True
            if partition in member.pending:
                member.pending[partition].stolen = True

    def _reading(self, told: happened.ReadingFrom) -> None:
        member = self.member(told.member)
        found = self.assignments.get(told.assignment)
        self.ended = []
        if found is None:
            found = self._assigned(member, told)
        elif found.log is not self._log(told.partition):
            raise HistoryError(f"{told}: the log was made anew; the assignment needs a number")
        found.early.clear()
        if told.position is None and found.start is not None:
            return
        if found.misplaced and told.position is not None:
            self._may_be_unused(found, told.position)
        found.misplaced = False
        found.loose.clear()
        if told.position is None:
            return
        if found.start is None or found.start > max(told.position, found.log.last + 1):
            # Unknown before, or a position that this log never had.
            self._starts(found, told.position)
        else:
            self._seeks(found, told.position)

    def _assigned(self, member: MemberModel, told: happened.ReadingFrom) -> Assignment:
        before = member.live.get(told.partition)
        if before is not None:
            self._over(before, End.REMADE)
        start = member.pending.pop(told.partition, None)
        if start is not None:
            member.keep(self.now, -1)
        log = self._log(told.partition)
        found = Assignment(told.assignment, member, log, iter(self.settings), start)
        given = before if start is None else start
        found.stolen = given is not None and given.stolen
        found.previous = self.readers.get(told.partition)
        had = member.had.get(told.partition)
        while had is not None and (had.start is None or not log.follows(had.log)):
            had = had.remembered  # it never began, so there is nothing to remember
        found.remembered = had
        member.had[told.partition] = found
        if before is not None:
            before.anew = found
        found.left_to_begin = told.position is None
        self.assignments[told.assignment] = member.live[told.partition] = found
        if not found.stolen:
            self.readers[told.partition] = found
        return found

    def _starts(self, assignment: Assignment, position: int) -> None:
        """Record the start of an assignment, and the offsets that its start commit covers.

        From here on the assignment vouches for those records that are already settled.
        """
        assignment.start = assignment.end = position
        known = [None] if assignment.begins is None else assignment.begins.entries
        entries = [each for each in known if each is not None and each[0] == position] or known
        assignment.found = entries[-1]
        covered = [_beyond(each, position, assignment.log) for each in entries]
        assignment.notes = [
            restored_notes.noted(each, position, assignment.log) for each in entries
        ]
        for sub in self.settings:
            restored_notes.diverted(assignment, sub)
            sets = [each.get(sub, set()) if sub in self.tracked else set() for each in covered]
            assignment.sure[sub] = set.intersection(*sets)
            assignment.perhaps[sub] = set.union(*sets)
            fates = assignment.log.fates[sub]
            for offset in assignment.sure[sub]:
                fate = fates.get(offset)
                if fate is not None and fate.settled_in is not None:
                    fate.vouch(assignment)

    def _seeks(self, assignment: Assignment, position: int) -> None:
        """Mark the records from ``position`` on as unused, unless a worker has them."""
        for sub, deliveries in assignment.deliveries.items():
            for offset in list(assignment.log.between(position, assignment.end)):
                each = deliveries.get(offset)
                if each is not None and _is_unused(each):
                    self._not_used(assignment, sub, each)
        if position < assignment.end:
            assignment.end = max(position, assignment.start or 0)

    def _may_be_unused(self, assignment: Assignment, position: int) -> None:
        """Remove records that the client may have lost and that can never arrive again.

        A later lease or lane order shows that the member has such a record.
        """
        for sub, deliveries in assignment.deliveries.items():
            waiting = [e for e in deliveries.values() if e.stage is Stage.OPEN and e.worker is None]
            for each in waiting:
                if each.offset < position and each.fate.removed:
                    self._not_used(assignment, sub, each)
                    assignment.unused[sub][each.offset] = each

    @staticmethod
    def _not_used(assignment: Assignment, sub: str, each: Delivery) -> None:
        """Remove a record from those that its member has."""
        del assignment.deliveries[sub][each.offset]
        each.stage = Stage.AGAIN
        if each.queued:
            each.queued = False
            assignment.queues[sub][each.lane].remove(each)
        assignment.open[sub] -= 1
        assignment.member.open[sub] -= 1

    def _reads_on(self, told: happened.ReadsOn) -> None:
        assignment = self.assignments[told.assignment]
        log = self._log(told.partition)
        for sub, deliveries in assignment.deliveries.items():
            gone = [each for at, each in deliveries.items() if log.fates[sub].get(at) != each.fate]
            for each in gone:
                if each not in assignment.loose or each.worker is not None:
                    raise HistoryError(f"{told}: that log has not everything that it has read")
                self._not_used(assignment, sub, each)
        assignment.log = log
        assignment.end = min(assignment.end, max(assignment.start or 0, log.last + 1))

    def _revoking(self, told: happened.RevokeBegan) -> None:
        member = self.member(told.member)
        if not member.revoking:
            member.keep(self.now, 1)
        member.revoking.update(told.partitions)
        for partition in told.partitions:
            if (mine := member.live.get(partition)) is not None:
                mine.revoking_at, mine.told_lost = self.now, told.lost

    def _released(self, told: happened.PartitionsReleased) -> None:
        member = self.member(told.member)
        self.ended = []
        for partition in told.partitions:
            if member.pending.pop(partition, None) is not None:
                member.keep(self.now, -1)
            assignment = member.live.pop(partition, None)
            if assignment is not None:
                self._over(assignment, End.LOST if told.lost else End.REVOKED)
        if member.revoking:
            member.revoking.difference_update(told.partitions)
            if not member.revoking:
                member.keep(self.now, -1)

    def _over(self, assignment: Assignment, end: End) -> None:
        assignment.over = End.LOST if assignment.stolen and end is End.REVOKED else end
        assignment.over_at = self.now
        assignment.outlived = assignment.log.dead
        for sub, count in assignment.open.items():
            assignment.member.open[sub] -= count
        self.ended.append(assignment)

    def _misplaced(self, told: happened.Misplaced) -> None:
        live = self.member(told.member).live
        for partition in told.partitions:
            if partition in live:
                live[partition].misplaced = True

    def _waiting(self, told: happened.OwnerWaits) -> None:
        self.member(told.member).keep(self.now, 1)

    def _answered(self, told: happened.OwnerResumed) -> None:
        self.member(told.member).keep(self.now, -1)

    def _stopping(self, told: happened.StopRequested) -> None:
        member = self.member(told.member)
        if member.stopping_at is None:
            member.stopping_at = self.now

    def _gone(self, told: happened.Gone) -> None:
        member = self.member(told.member)
        self.ended = []
        for assignment in member.live.values():
            self._over(assignment, ENDS[told.how])
            assignment.clean = told.clean
        self.cut = list(member.running)
        for each in self.cut:
            self.runs_no_more(each)
            each.worker = None
        member.live.clear()
        member.pending.clear()
        member.running.clear()
        self.present.pop(told.member, None)

    def runs_no_more(self, each: Delivery) -> None:
        """Record that its handler has returned or is gone."""
        each.running = False
        each.lane.running.remove(each)
        each.lane.freed = self.now
        each.assignment.running -= 1

    # --- commits at the broker ---

    def _commit_stored(self, told: happened.CommitStored) -> None:
        for partition, entry in told.entries.items():
            self.stored[partition] = entry
            self._may_begin_with(partition, entry)

    def _text_copied(self, told: TextCopied) -> None:
        entry = told.position, told.text
        self.stored[told.partition] = entry
        self._may_begin_with(told.partition, entry)

    def _may_begin_with(self, partition: TopicPartition, entry: tuple[int, str]) -> None:
        """Add a possible start for each member that does not know its start yet."""
        for member in self.present.values():
            start = member.pending.get(partition)
            reader = member.live.get(partition)
            if start is None and reader is not None and reader.start is None:
                start = reader.begins
            if start is not None:
                start.entries.append(entry)


@lru_cache(maxsize=1_000)
def sections_of(text: str, position: int, whose: Whose) -> dict[str, set[int]] | None:
    """Return the offsets that a text settles beyond the position; None for a text of another log.

    Callers do not change the result: the same text is read when it is sent and when an assignment
    begins with it.
    """
    try:
        return read_commit(text, position, whose)
    except CommitTextError:
        return None


def _is_unused(each: Delivery) -> bool:
    """Return whether a record arrived and its member has not used it yet."""
    if each.worker is not None:
        return False
    refused = each.lane.refused and each.stage in (Stage.LETTERING_ALONE, Stage.BLOCKED)
    return each.stage is Stage.OPEN or (refused and not each.posted)


def _beyond(entry: tuple[int, str] | None, start: int, log: LogModel) -> dict[str, set[int]]:
    """Return the offsets from ``start`` on that an entry covers, by subscription.

    A text in another format covers nothing. Offsets beyond the end of the log are of another log.
    """
    if entry is None:
        return {}
    position, text = entry
    sections = sections_of(text, position, log.whose) or {}
    below = set(log.between(start, position))
    there = {sub: {at for at in offsets if at <= log.last} for sub, offsets in sections.items()}
    return {sub: there.get(sub, set()) | below for sub in log.fates}

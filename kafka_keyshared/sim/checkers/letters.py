"""The books of dead letters, and of what somebody has ordered of closed lanes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from kafka_keyshared.core.settings import SubscriptionSettings
from kafka_keyshared.sim import history as happened
from kafka_keyshared.sim.checkers.group import Group
from kafka_keyshared.sim.checkers.ranges import OrderedRanges
from kafka_keyshared.sim.checkers.records import SKIPPED, Assignment, Delivery, Member, Stage
from kafka_keyshared.sim.happenings import LimitLifted
from kafka_keyshared.sim.history import History
from kafka_keyshared.sim.range_history import SettledUnrun

AFTER_THE_LAST = {
    "dead_letter": Stage.LETTERING_ALONE,
    "block": Stage.BLOCKED,
    "block_and_dlq": Stage.ARCHIVING,
    "divert": Stage.LETTERING,
}
"""What a record waits for whose attempts are used up, by the policy."""

LETTERED_OTHERWISE = (Stage.SETTLED, Stage.ARCHIVING, Stage.BLOCKED, Stage.LETTERING_ALONE)
"""A letter of what is in one of these does not divert its lane."""


class Letters(Group):
    """What has become of dead letters, and of orders for lanes.

    What the happening of this moment is about: ``delivery``, and ``heads`` (what came to stand
    first in its lane by it). ``ranges`` knows what is whose by order, and ``skipped``
    is how many records went unrun for that. ``unasked`` says that a letter was sent of what no
    handler had there, and whose lane is not diverted.
    """

    def __init__(self, history: History, settings: Sequence[SubscriptionSettings]) -> None:
        super().__init__(history, settings)
        self.delivery: Delivery | None = None
        self.heads: list[Delivery] = []
        self.unasked = False
        self.skipped = 0
        self.ranges = OrderedRanges(history, self.declared)
        history.listen(happened.LetterSent, self._letter_sent)
        history.listen(happened.LetterStored, self._letter_stored)
        history.listen(happened.LetterTold, self._letter_told)
        history.listen(happened.LaneOrdered, self._lane_ordered)
        history.listen(LimitLifted, self._limit_lifted)
        history.listen(SettledUnrun, self._skipped)

    @abstractmethod
    def _find(self, sub: str, offset: int, number: int) -> Delivery:
        """Return a record as an assignment delivered it."""

    @abstractmethod
    def _settle(self, each: Delivery, how: str) -> None:
        """Note that it is settled, and how."""

    @abstractmethod
    def _open_again(self, each: Delivery, sub: str) -> None:
        """Note that it is not settled, where it has counted so."""

    # --- dead letters ---

    def _letter_sent(self, told: happened.LetterSent) -> None:
        sub = told.subscription
        each = self.delivery = self._find(sub, told.offset, told.assignment)
        assignment, poison = each.assignment, self.settings[sub].poison
        diverts = poison == "divert" and bool(each.lane.hash) and not each.lane.refused
        if diverts and assignment.over is None and each.fate.settled_in is not assignment:
            self._open_again(each, sub)  # its member had settled it once, and does not know it
        if each.stage is Stage.UNSURE:
            each.stage = AFTER_THE_LAST.get(poison, Stage.LETTERING)
        each.copying = each.stage is Stage.ARCHIVING
        self.unasked = each.stage is Stage.OPEN and not any(
            each.lane.hash in at.diverted[sub] or each.lane.hash in at.perhaps_diverted[sub]
            for at in assignment.member.live.values()
        )
        each.posted = True
        if assignment.over is not None or each.stage in LETTERED_OTHERWISE:
            return
        if poison == "divert" and each.lane.hash:
            assignment.diverted[sub].add(each.lane.hash)
        each.stage = Stage.LETTERING

    def _letter_stored(self, told: happened.LetterStored) -> None:
        each = self.delivery = self._find(told.subscription, told.offset, told.assignment)
        fate = each.fate
        if each.copying:
            return
        if not fate.finished and not fate.log.dead:
            self.unfinished[fate.sub] -= 1
        fate.letter = True

    def _letter_told(self, told: happened.LetterTold) -> None:
        each = self.delivery = self._find(told.subscription, told.offset, told.assignment)
        self.heads = []
        if told.error:
            return
        each.assignment.letters[told.subscription] += 1
        if not each.copying:
            self._settle(each, "dead-lettered")
        elif each.stage is Stage.ARCHIVING and each.assignment.over is None:
            each.stage = Stage.BLOCKED
            each.fate.copied = each.archived = True

    def may_be_stopped(self, each: Delivery) -> bool:
        """Say whether so many letters of its partition were acknowledged that nothing starts."""
        limit = self.settings[each.fate.sub].dlq_limit
        letters = each.assignment.letters[each.fate.sub]
        return limit is not None and letters >= min(limit.in_a_row, limit.share * limit.records)

    def _limit_lifted(self, told: LimitLifted) -> None:
        live = self.member(told.member).live
        for partition in told.partitions:
            if partition in live:
                live[partition].letters.clear()
                live[partition].lifted_at = self.now

    # --- orders for lanes ---

    def _lane_ordered(self, told: happened.LaneOrdered) -> None:
        self.heads, self.delivery = [], None
        member, sub = self.member(told.member), told.subscription
        assignment = member.live.get(told.partition)
        each = None if assignment is None else self._ordered(assignment, sub, told.offset)
        if told.action == "release":
            self._divert_no_more(member, told, each)
        if each is None:
            return
        self.delivery = each
        self.heads = [each]
        if told.action == "drop":
            self._settle(each, "dropped by order")
        elif told.action == "dead_letter":
            if each.archived or each.fate.copied:
                self._settle(each, "dead-lettered")
            else:
                each.stage = Stage.LETTERING_ALONE
        elif each.stage in (Stage.RETRYING, Stage.OPEN):
            # It keeps its count, also where it was given to a worker for it and taken back.
            each.since = self.now
        elif each.stage is Stage.UNSURE:
            each.tries = 0
            each.stage, each.since = Stage.RETRYING, self.now
        elif each.stage is Stage.BLOCKED or not each.posted:
            each.tries = each.tries_most = 0
            each.stage, each.since = Stage.RETRYING, self.now
        elif each.stage is Stage.LETTERING:
            # Its own letter is on its way, and is sent again until it arrives; what follows runs.
            each.stage = Stage.LETTERING_ALONE

    def _ordered(self, assignment: Assignment, sub: str, offset: int) -> Delivery | None:
        """Return the head of an ordered lane: its member has it, whatever its client has lost."""
        if offset in assignment.unused[sub]:
            return self._find(sub, offset, assignment.number)
        return assignment.deliveries[sub].get(offset)

    def _divert_no_more(
        self, member: Member, told: happened.LaneOrdered, head: Delivery | None
    ) -> None:
        """Take the lane out of all that this member reads.

        Where a key alone was named it may be any of its lanes that there are.
        """
        sub = told.subscription
        hashes = {each for at in member.live for each in self._hashes(sub, told.key, at)}
        if head is not None:
            hashes = {head.lane.hash}
        for assignment in member.live.values():
            known = assignment.diverted[sub] | assignment.perhaps_diverted[sub]
            assignment.diverted[sub] -= hashes
            assignment.perhaps_diverted[sub] -= hashes
            if len(hashes) > 1:
                assignment.perhaps_diverted[sub] |= known & hashes

    # --- what is nobody's ---

    def _skipped(self, told: SettledUnrun) -> None:
        """Settle what was made nobody's by order: of all else that is dropped it is known already.

        Who says that of what is somebody's has settled nothing here, and its commit says too much.
        """
        self.heads, self.skipped = [], 0
        for _, offset, number in told.records:
            each = self._find(told.subscription, offset, number)
            nobodys = not self.ranges.takers(told.member, told.subscription, each.lane)
            if nobodys and each.stage is not Stage.SETTLED:
                self._settle(each, SKIPPED)
                self.skipped += 1

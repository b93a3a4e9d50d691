"""Books of dead letters, and of orders for closed lanes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers.group import GroupModel
from kafka_keyshared.lab.simulator.checkers.ranges import OrderedRanges
from kafka_keyshared.lab.simulator.checkers.records import (
    SKIPPED,
    Assignment,
    Delivery,
    MemberModel,
    Stage,
)
from kafka_keyshared.lab.simulator.history import History
from kafka_keyshared.lab.simulator.member_events import LimitLifted
from kafka_keyshared.lab.simulator.range_history import SettledUnrun

AFTER_THE_LAST = {
    "dead_letter": Stage.LETTERING_ALONE,
    "block": Stage.BLOCKED,
    "block_and_dlq": Stage.ARCHIVING,
    "divert": Stage.LETTERING,
}
"""Stage of a record whose attempts are used up, by poison policy."""

LETTERED_OTHERWISE = (Stage.SETTLED, Stage.ARCHIVING, Stage.BLOCKED, Stage.LETTERING_ALONE)
"""A dead letter of a record in one of these stages does not divert its lane."""


class Letters(GroupModel):
    """Outcomes of dead letters and of orders for lanes.

    ``delivery`` and ``heads`` describe the current event: its record, and the records that became
    first in their lane. ``ranges`` knows the owners of ordered ranges. ``skipped`` is how many
    records were settled unrun because of them. ``unasked`` says that a dead letter was sent for a
    record that no handler had, and whose lane is not diverted.
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
        """Record that it is settled, and how."""

    @abstractmethod
    def _open_again(self, each: Delivery, sub: str) -> None:
        """Reopen a record that counted as settled."""

    # --- dead letters ---

    def _letter_sent(self, told: happened.LetterSent) -> None:
        sub = told.subscription
        each = self.delivery = self._find(sub, told.offset, told.assignment)
        assignment, on_exhausted = each.assignment, self.settings[sub].on_exhausted
        diverts = on_exhausted == "divert" and bool(each.lane.hash) and not each.lane.refused
        if diverts and assignment.over is None and each.fate.settled_in is not assignment:
            self._open_again(each, sub)  # its member settled it once, and does not know that
        if each.stage is Stage.UNSURE:
            each.stage = AFTER_THE_LAST.get(on_exhausted, Stage.LETTERING)
        each.copying = each.stage is Stage.ARCHIVING
        self.unasked = each.stage is Stage.OPEN and not any(
            each.lane.hash in at.diverted[sub] or each.lane.hash in at.perhaps_diverted[sub]
            for at in assignment.member.live.values()
        )
        each.posted = True
        if assignment.over is not None or each.stage in LETTERED_OTHERWISE:
            return
        if on_exhausted == "divert" and each.lane.hash:
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
        """Return whether the dead-letter limit of the partition may stop all its starts."""
        limit = self.settings[each.fate.sub].dlq_limit
        letters = each.assignment.letters[each.fate.sub]
        return limit is not None and letters >= min(limit.consecutive, limit.share * limit.records)

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
        if told.action == "unblock":
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
            # It keeps its count, even if a worker got it for that purpose and gave it back.
            each.since = self.now
        elif each.stage is Stage.UNSURE:
            each.tries = 0
            each.stage, each.since = Stage.RETRYING, self.now
        elif each.stage is Stage.BLOCKED or not each.posted:
            each.tries = each.tries_most = 0
            each.stage, each.since = Stage.RETRYING, self.now
        elif each.stage is Stage.LETTERING:
            # Its own dead letter is in flight and is repeated until it arrives. The rest of the
            # lane runs.
            each.stage = Stage.LETTERING_ALONE

    def _ordered(self, assignment: Assignment, sub: str, offset: int) -> Delivery | None:
        """Return the head of an ordered lane. Its member has it, even after a lost position."""
        if offset in assignment.unused[sub]:
            return self._find(sub, offset, assignment.number)
        return assignment.deliveries[sub].get(offset)

    def _divert_no_more(
        self, member: MemberModel, told: happened.LaneOrdered, head: Delivery | None
    ) -> None:
        """Remove the lane from the diverted lanes of everything that this member reads.

        An order that names only a key may be for any existing lane of that key.
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

    # --- records that no worker takes ---

    def _skipped(self, told: SettledUnrun) -> None:
        """Settle records that an order left without a worker. Other drops are already known.

        A member that reports a record with a worker settles nothing here, and its commit covers too
        much.
        """
        self.heads, self.skipped = [], 0
        for _, offset, number in told.records:
            each = self._find(told.subscription, offset, number)
            nobodys = not self.ranges.takers(told.member, told.subscription, each.lane)
            if nobodys and each.stage is not Stage.SETTLED:
                self._settle(each, SKIPPED)
                self.skipped += 1

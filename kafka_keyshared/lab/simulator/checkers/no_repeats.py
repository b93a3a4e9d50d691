"""Checker I7: settled records do not run again without an accepted reason."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers.books import METADATA_LEAST, Books
from kafka_keyshared.lab.simulator.checkers.checker import Checker
from kafka_keyshared.lab.simulator.checkers.group import sections_of
from kafka_keyshared.lab.simulator.checkers.records import (
    REFUSED,
    SKIPPED,
    Assignment,
    Delivery,
    End,
    RecordFate,
    Stage,
)
from kafka_keyshared.lab.simulator.history import History, Listener
from kafka_keyshared.lab.simulator.member_events import CallbackRaised, LogsAsked

MOMENT = 1e-9

KEPT_SECONDS = 300.0
"""Seconds for which a member remembers its settled records of a lost partition."""

UNHEARD = {
    End.LOST: "its partition was lost",
    End.KILLED: "its process was killed",
    End.HALTED: "its process halted",
}


class NoRepeats(Checker):
    """I7, duplicates: a settled record starts again only if its settlement could not be known.

    The accepted reasons are

    - its process was killed or halted, or its partition was lost;
    - it ended after the deadline of the revoke (in seconds) or of the stop;
    - the last commit that covers it was not stored, or the log was truncated before that commit;
    - its topic had been created again, which was noticed late;
    - the broker refused sets;
    - its position was out of range, and the member could not learn whether the log is the same;
    - a callback raised: a process that cannot trust its own state commits nothing.

    A member that restarts a truncated log knows which of the remaining records it settled. Records
    that are covered by the start commit of an assignment never repeat. So only records repeat that
    settled after the broker's commit. A member that has not learned that its partition went to
    another member knows nothing of what settles there. A worker that has not answered a recall has
    not learned that its partition has gone.

    After a clean stop the broker has all settled records. A lost partition repeats nothing if it
    comes back to its member within five minutes and only that member committed. The exception is a
    partition that was lost while the member was about to give it back, and committed. The last
    record of a worker may be unknown if it was lost, or if the worker died. The same holds for all
    records that a worker ran when it died. Without reliability a record may start again in another
    assignment, never in the same.

    ``repeats`` counts the accepted repeats by reason.
    """

    invariant = "I7 no repeats"

    def __init__(
        self,
        history: History,
        settings: Sequence[SubscriptionSettings],
        books: Books | None = None,
        *,
        revoke_deadline: float = 5.0,
        go_on: bool = False,
    ) -> None:
        super().__init__(history, settings, books, go_on=go_on)
        self._deadline = revoke_deadline - MOMENT
        self.repeats: Counter[str] = Counter()
        # By member, subscription and worker: the last record that ended there, and the last beside
        # it. By assignment number: those of its partition when that was lost.
        self._last: dict[tuple[tuple[int, str, int], bool], RecordFate] = {}
        self._unclear: dict[int, list[RecordFate]] = {}
        self._dead: set[tuple[int, str, int]] = set()
        # Records that ended with their worker, which may have run several at once.
        self._died_in: dict[tuple[int, str, int], list[RecordFate]] = {}
        # Numbers of assignments whose log did not answer the last query.
        self._silent: set[int] = set()
        # Since when each member commits nothing.
        self._raised: dict[int, float] = {}

    def listeners(self) -> Mapping[type, Listener]:
        """Listen to starts and ends of records, to losses and to the ends of members."""
        return {
            happened.Began: self._began,
            happened.HandlerEnded: self._ended,
            happened.WorkerDied: self._died,
            happened.PartitionsReleased: self._released,
            happened.ReadingFrom: self._reading,
            CallbackRaised: self._callback_raised,
            LogsAsked: self._logs_asked,
            happened.Gone: self._gone,
        }

    def _began(self, told: happened.Began) -> None:
        each = self.books.delivery
        if self._dead:
            self._dead.discard((told.member, told.subscription, told.worker))
            self._died_in.pop((told.member, told.subscription, told.worker), None)
        if each is None or not each.fate.finished:
            return
        fate, now = each.fate, each.assignment
        before = fate.settled_in
        if fate.sub not in self.books.tracked and before is not now:
            self.repeats["nothing is tracked"] += 1
        elif fate.offset in now.sure.get(fate.sub, ()):
            found = "" if now.found is None else f" at {now.found[0]}"
            self._again(told, each, f"the stored commit{found} covers it with which that began")
        elif before is None:
            self.repeats["its letter was not heard of"] += 1
        elif before is now:
            self._again(told, each, "in the same assignment")
        elif now.is_not_given_back(told.subscription, told.worker, self._deadline):
            self.repeats["its worker had not heard that its partition has gone"] += 1
        else:
            excuse = self._excuse(fate, before, now)
            if excuse:
                self.repeats[excuse] += 1
            else:
                self._again(told, each, _accused(before))

    def _again(self, told: happened.Began, each: Delivery, words: str) -> None:
        self.violated(
            told.member,
            f"{each} began again at worker {told.worker} {each.assignment}: {each.fate.story()}; "
            f"{words}",
        )

    def _ended(self, told: happened.HandlerEnded) -> None:
        if self.books.delivery is not None:
            worker = told.member, told.subscription, told.worker
            self._last[worker, self.books.beside] = self.books.delivery.fate
            if told.outcome == "died":
                self._died_in.setdefault(worker, []).append(self.books.delivery.fate)

    def _died(self, told: happened.WorkerDied) -> None:
        self._dead.add((told.member, told.subscription, told.worker))

    def _released(self, told: happened.PartitionsReleased) -> None:
        self._note_unclear(told.member, lost=told.lost)

    def _reading(self, told: happened.ReadingFrom) -> None:
        self._note_unclear(told.member, lost=True)  # of restarted assignments, if any

    def _callback_raised(self, told: CallbackRaised) -> None:
        self._raised.setdefault(told.member, self.books.now)

    def _logs_asked(self, told: LogsAsked) -> None:
        live = self.books.member(told.member).live
        for partition in told.partitions:
            if partition not in live:
                continue
            change = self._silent.discard if partition in told.answered else self._silent.add
            change(live[partition].number)

    def _note_unclear(self, member: int, *, lost: bool) -> None:
        """Note the records whose end may be unknown.

        They are the last record of each worker, until it takes the next one. A dead worker takes
        none.
        """
        mine = [
            fate
            for (worker, _), fate in self._last.items()
            if worker[0] == member and (lost or worker in self._dead)
        ]
        for worker, fates in self._died_in.items():
            mine += fates if worker[0] == member and worker in self._dead else ()
        for each in self.books.ended:
            self._unclear[each.number] = [fate for fate in mine if each.log.has(fate)]

    def _excuse(self, fate: RecordFate, before: Assignment, now: Assignment) -> str:
        """Return why no member could know that the record had settled; '' if one could."""
        unclear = self._is_unclear(fate, before)
        late = _noticed_late(before)
        while before.anew not in (None, now):
            before = before.anew  # its member keeps its knowledge
            unclear = unclear or self._is_unclear(fate, before)
            late = late or _noticed_late(before)
        beside = before.over is None or before.number > now.number
        if now.stolen and beside:
            return UNHEARD[End.LOST]
        end = End.LOST if before.stolen else before.over
        if end in UNHEARD:
            known = end is End.LOST and self._regained(fate, before, now)
            return "" if known else UNHEARD[end]
        if end is None:
            return ""
        sent = before.sent
        if sent is None:
            covered = fate.offset in before.sure.get(fate.sub, ())
        else:
            covered = sent.covers(fate.sub, fate.offset)
        remade = end is End.REMADE
        excuses = {
            # A member that restarts a truncated log knows which of the remaining records settled.
            "its commit was not stored, or written over": covered and not remade,
            "its log was cut off, and no commit could be": before.outlived and not remade,
            "its topic was made anew, which was noticed late": late,
            "its worker had not gone on": unclear,
            "it ended too late": not fate.in_time or self._late(fate, before),
            "its set was refused": before.member.bare and not before.clean,
            "brokers take too little for a set": self.books.metadata_least < METADATA_LEAST
            and not before.clean,
            "its log was silent": before.misplaced and before.number in self._silent,
            "a callback had raised": self._had_raised(before),
            # It has not run: the last slot that drained there turned out to have no owner.
            "it was skipped behind the last commit": fate.how == SKIPPED
            and (sent is None or fate.at >= sent.at),
        }
        return next((why for why, holds in excuses.items() if holds), "")

    def _had_raised(self, before: Assignment) -> bool:
        # A revoke commits before its own callback can raise.
        return self._raised.get(before.member.number, math.inf) < before.over_at

    def _is_unclear(self, fate: RecordFate, before: Assignment) -> bool:
        return any(each is fate for each in self._unclear.get(before.number, ()))

    def _regained(self, fate: RecordFate, before: Assignment, now: Assignment) -> bool:
        """Return whether the member must know of it, and no other has been there since."""
        left = before.found
        if before.sent is not None:
            left = before.sent.position, before.sent.text
        return (
            before is now.previous
            and before.member is now.member
            and before.told_lost
            and not before.stolen
            and left is not None
            and now.found == left
            and fate.in_time
            and self.books.now - before.over_at < KEPT_SECONDS
            and not self._is_unclear(fate, before)
        )

    def _late(self, fate: RecordFate, before: Assignment) -> bool:
        """Return whether it ended when the member had stopped waiting for it."""
        if before.revoking_at is not None:
            return fate.at >= before.revoking_at + self._deadline
        since = before.member.stopping_at
        if before.over is not End.STOPPED or before.clean or since is None:
            return False
        return fate.at >= max(since, since if before.sent is None else before.sent.at)

    def _gone(self, told: happened.Gone) -> None:
        """Check that a clean stop has left every settled record with the broker."""
        if told.how != "stopped" or not told.clean:
            self._note_unclear(told.member, lost=False)
            return
        for assignment in self.books.ended:
            if assignment.stolen or assignment.outlived:
                continue
            position, text = self.books.stored.get(assignment.partition, (0, ""))
            sections = sections_of(text, position, assignment.log.whose)
            if sections is None:
                continue  # a tool has overwritten it
            for sub in self.books.tracked:
                deliveries, known = assignment.deliveries[sub], sections.get(sub, set())
                for offset, each in deliveries.items():
                    if offset < position or offset in known or each.stage is not Stage.SETTLED:
                        continue
                    # An earlier record may be unknown here. A record that no worker gets may still
                    # wait.
                    unrun = each.fate.how in (SKIPPED, REFUSED)
                    if each.fate.settled_in is assignment and not unrun:
                        self.violated(
                            told.member,
                            f"a stop counts as clean; {each} is not in what the broker has "
                            f"({position}, {text!r}): {each.fate.story()}",
                        )


def _noticed_late(before: Assignment) -> bool:
    """Return whether it read from a log that had been replaced, until its member restarted it."""
    return before.over is End.REMADE and not before.outlived


def _accused(before: Assignment) -> str:
    if before.over is None:
        return "that assignment is not over"
    over = f"that was {before.over.value} at {before.over_at:.3f}"
    if before.over is End.LOST:
        return f"{over}, and came back with no commit but its own"
    sent = "none was sent"
    if before.sent is not None:
        sent = f"number {before.sent.number} at {before.sent.position}, {before.sent.text!r}"
    return f"{over}, its last commit leaves it out: {sent}"

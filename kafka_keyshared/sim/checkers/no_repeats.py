"""I7: what is settled does not run again, unless it cannot be known."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from kafka_keyshared.core.settings import SubscriptionSettings
from kafka_keyshared.sim import history as happened
from kafka_keyshared.sim.checkers.books import METADATA_LEAST, Books
from kafka_keyshared.sim.checkers.checker import Checker
from kafka_keyshared.sim.checkers.group import sections_of
from kafka_keyshared.sim.checkers.records import (
    REFUSED,
    SKIPPED,
    Assignment,
    Delivery,
    End,
    Fate,
    Stage,
)
from kafka_keyshared.sim.happenings import CallbackRaised, LogsAsked
from kafka_keyshared.sim.history import History, Listener

MOMENT = 1e-9

KEPT_SECONDS = 300.0
"""For so long a member remembers what it had settled of a partition that it has lost."""

UNHEARD = {
    End.LOST: "its partition was lost",
    End.KILLED: "its process was killed",
    End.HALTED: "its process halted",
}


class NoRepeats(Checker):
    """I7, duplicates: a settled record begins again only where its settling could not be known.

    That is: its process was killed or has halted, its partition was lost, it ended when the
    deadline of the revoke (in seconds) or of the stop was over, the last commit that covers it was
    not stored, the log was cut off when that was to be sent, its topic had been made anew and that
    was noticed later, the broker has refused sets, its place was out of range and nobody told its
    member whether that is still the same log, or a callback had raised, after which a process that
    cannot trust its own state commits nothing. Who begins a log anew that was cut off knows what it
    had settled of what is left. Never what the commit covers with which an assignment began: so no
    more is repeated than had settled since the commit that the broker has.
    Who has not heard that its partition is another's knows nothing of what settles there; nor has a
    worker heard that its partition has gone which has not answered yet what it gives back.
    After a clean stop it has all that settled. A partition that was lost and comes back to its
    member within five minutes, with no commit but that member's, repeats nothing at all; unless the
    group has given it up only while the member was about to give it back, and committed. What a
    worker has ended last may be unknown where it was lost, or where that worker has died; and all
    that it was in then. Without reliability it may begin again in another assignment, and never in
    the same.

    ``repeats`` counts the others, by why.
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
        # By member, subscription and worker what ended there last, and what beside it; and what of
        # that was of a partition when that was lost, by the assignment's number.
        self._last: dict[tuple[tuple[int, str, int], bool], Fate] = {}
        self._unclear: dict[int, list[Fate]] = {}
        self._dead: set[tuple[int, str, int]] = set()
        # What ended with its worker, which may have been in many records at once.
        self._died_in: dict[tuple[int, str, int], list[Fate]] = {}
        # Assignments, by their numbers, whose log did not answer when it was asked for last.
        self._silent: set[int] = set()
        # Since when a member commits nothing any more.
        self._raised: dict[int, float] = {}

    def listeners(self) -> Mapping[type, Listener]:
        """It looks at each start and end of a record, at losses, and at stops that were clean."""
        return {
            happened.Began: self._began,
            happened.Ended: self._ended,
            happened.WorkerDied: self._died,
            happened.Released: self._released,
            happened.Reading: self._reading,
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

    def _ended(self, told: happened.Ended) -> None:
        if self.books.delivery is not None:
            worker = told.member, told.subscription, told.worker
            self._last[worker, self.books.beside] = self.books.delivery.fate
            if told.outcome == "died":
                self._died_in.setdefault(worker, []).append(self.books.delivery.fate)

    def _died(self, told: happened.WorkerDied) -> None:
        self._dead.add((told.member, told.subscription, told.worker))

    def _released(self, told: happened.Released) -> None:
        self._note_unclear(told.member, lost=told.lost)

    def _reading(self, told: happened.Reading) -> None:
        self._note_unclear(told.member, lost=True)  # of what it has begun anew, if anything

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
        """Note of what it is not known that it has ended.

        That is of the last record of each worker: until it takes the next one. Who waits for that
        waits in vain for one that is dead.
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

    def _excuse(self, fate: Fate, before: Assignment, now: Assignment) -> str:
        """Return why nobody could know that the record had settled; '' where somebody could."""
        unclear = self._is_unclear(fate, before)
        late = _noticed_late(before)
        while before.anew not in (None, now):
            before = before.anew  # its member knows on what it knew
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
            # Who begins a log anew that was cut off knows what has settled of what is left.
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
            # It has not run: a slot that drained last of all was found to be nobody's there.
            "it was skipped behind the last commit": fate.how == SKIPPED
            and (sent is None or fate.at >= sent.at),
        }
        return next((why for why, holds in excuses.items() if holds), "")

    def _had_raised(self, before: Assignment) -> bool:
        # A revoke commits before its own callback can raise.
        return self._raised.get(before.member.number, math.inf) < before.over_at

    def _is_unclear(self, fate: Fate, before: Assignment) -> bool:
        return any(each is fate for each in self._unclear.get(before.number, ()))

    def _regained(self, fate: Fate, before: Assignment, now: Assignment) -> bool:
        """Say whether the member has had to know of it, and that nobody has been there since."""
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

    def _late(self, fate: Fate, before: Assignment) -> bool:
        """Say whether it ended when nobody waited for it any more."""
        if before.revoking_at is not None:
            return fate.at >= before.revoking_at + self._deadline
        since = before.member.stopping_at
        if before.over is not End.STOPPED or before.clean or since is None:
            return False
        return fate.at >= max(since, since if before.sent is None else before.sent.at)

    def _gone(self, told: happened.Gone) -> None:
        """A stop that counts as clean has left everything that settled with the broker."""
        if told.how != "stopped" or not told.clean:
            self._note_unclear(told.member, lost=False)
            return
        for assignment in self.books.ended:
            if assignment.stolen or assignment.outlived:
                continue
            position, text = self.books.stored.get(assignment.partition, (0, ""))
            sections = sections_of(text, position, assignment.log.whose)
            if sections is None:
                continue  # a tool has written over it since
            for sub in self.books.tracked:
                deliveries, known = assignment.deliveries[sub], sections.get(sub, set())
                for offset, each in deliveries.items():
                    if offset < position or offset in known or each.stage is not Stage.SETTLED:
                        continue
                    # Of one from before it may not know; what no worker gets may still wait.
                    unrun = each.fate.how in (SKIPPED, REFUSED)
                    if each.fate.settled_in is assignment and not unrun:
                        self.violated(
                            told.member,
                            f"a stop counts as clean; {each} is not in what the broker has "
                            f"({position}, {text!r}): {each.fate.story()}",
                        )


def _noticed_late(before: Assignment) -> bool:
    """Say whether it had read of a log that was another one, until its member began that anew."""
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

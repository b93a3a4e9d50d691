"""What travels besides the settled set is true, and enough to go on by."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_keyshared.sim import history as happened
from kafka_keyshared.sim.checkers.books import METADATA_USUAL
from kafka_keyshared.sim.checkers.carried import notes_of
from kafka_keyshared.sim.checkers.checker import Checker
from kafka_keyshared.sim.checkers.records import Assignment, Sent, Stage
from kafka_keyshared.sim.commit_text import NOTHING, Notes
from kafka_keyshared.sim.history import Listener

FEW = 15
"""So many records that failed have room for their attempts, wherever they stand."""

UNSETTLED = (Stage.RETRYING, Stage.ARCHIVING, Stage.BLOCKED)


class TrueNotes(Checker):
    """I4, safe commit, of what goes with it: attempts, copies, and lanes that are diverted.

    A commit never says that a record was tried more often than it was, or that a copy of it was
    written when none was acknowledged. Of a record that was tried twice it says so, where only a
    few have failed. Each lane of which a record was diverted is in it, and no other. No record is
    dead-lettered that no handler had, unless its lane is diverted or its key cannot be read; and
    none is archived again whose copy the commit knows with which its assignment began.
    """

    invariant = "I4 true notes"

    def listeners(self) -> Mapping[type, Listener]:
        """It looks at each commit that is sent, and at each dead letter."""
        return {happened.CommitSent: self._sent, happened.LetterSent: self._letter}

    def _sent(self, told: happened.CommitSent) -> None:
        del told
        for assignment, sent in self.books.sent.values():
            if assignment is None:
                continue
            notes = notes_of(sent.text, sent.position, assignment.log.whose)
            for sub in self.settings:
                self._lanes(assignment, sent, sub, notes.get(sub, NOTHING))
                self._tried(assignment, sent, sub, notes.get(sub, NOTHING))

    def _lanes(self, assignment: Assignment, sent: Sent, sub: str, notes: Notes) -> None:
        known = assignment.diverted[sub]
        if not known and not notes.lanes:
            return
        if not self._cut() and (missing := known - notes.lanes):
            self._wrong(assignment, sent, f"of {sub!r} does not name {len(missing)} diverted lanes")
        if notes.lanes - known - assignment.perhaps_diverted[sub]:
            self._wrong(assignment, sent, f"of {sub!r} names lanes that are not diverted")

    def _tried(self, assignment: Assignment, sent: Sent, sub: str, notes: Notes) -> None:
        deliveries = assignment.deliveries[sub]
        for offset, (times, archived) in notes.tried.items():
            each = deliveries.get(offset)
            if each is None:
                continue  # it is handed on as it came
            if times > each.tries_most:
                self._wrong(
                    assignment, sent, f"says {times} attempts of {each}: {each.tries_most} at most"
                )
            if archived and not (each.archived or each.fate.copied):
                self._wrong(assignment, sent, f"says that {each} is archived, and no copy is there")
        failed = assignment.failed[sub]
        for offset in [each for each in failed if each < sent.position]:
            del failed[offset]
        waiting = [each for each in failed.values() if each.stage in UNSETTLED]
        if len(waiting) <= FEW and not self._cut():
            for each in waiting:
                # The last one may not be reported yet.
                if notes.tried.get(each.offset, (0, False))[0] < each.tries - 1:
                    self._wrong(assignment, sent, f"does not say {each.tries} attempts of {each}")

    def _cut(self) -> bool:
        """Say whether notes may be missing: settled sets come first where brokers take less."""
        return self.books.metadata_least < METADATA_USUAL

    def _letter(self, told: happened.LetterSent) -> None:
        each = self.books.delivery
        if each is None or each.assignment.over is not None:
            return
        if each.stage is Stage.BLOCKED:
            again = ", and archived already" if each.archived else ""
            self.violated(told.member, f"{each} is dead-lettered although it is blocked{again}")
        if self.books.unasked:
            self.violated(told.member, f"{each} is dead-lettered, and no handler has had it")

    def _wrong(self, assignment: Assignment, sent: Sent, words: str) -> None:
        self.violated(
            assignment.member.number,
            f"the commit {sent.number} of {assignment.partition} at {sent.position} {assignment} "
            f"{words}",
        )

"""Checker I4 for the notes that commits carry besides the settled set."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers.books import METADATA_USUAL
from kafka_keyshared.lab.simulator.checkers.checker import Checker
from kafka_keyshared.lab.simulator.checkers.records import Assignment, CommitModel, Stage
from kafka_keyshared.lab.simulator.checkers.restored_notes import notes_of
from kafka_keyshared.lab.simulator.commit_text import NOTHING, Notes
from kafka_keyshared.lab.simulator.history import Listener

FEW = 15
"""Failed records whose attempts always fit into the metadata, at any offsets."""

UNSETTLED = (Stage.RETRYING, Stage.ARCHIVING, Stage.BLOCKED)


class TrueNotes(Checker):
    """I4, safe commit, for its notes: attempts, copies and diverted lanes.

    A commit never says that a record was tried more often than it was. It never says that a copy
    was written when none was acknowledged. It says that a record was tried twice, if only a few
    records have failed. It names every lane of which a record was diverted, and no other. No record
    is dead-lettered that no handler had, unless its lane is diverted or its key cannot be read. No
    record is archived again if the start commit of its assignment knows its copy.
    """

    invariant = "I4 true notes"

    def listeners(self) -> Mapping[type, Listener]:
        """Listen to sent commits and dead letters."""
        return {happened.CommitRequested: self._sent, happened.LetterSent: self._letter}

    def _sent(self, told: happened.CommitRequested) -> None:
        del told
        for assignment, sent in self.books.sent.values():
            if assignment is None:
                continue
            notes = notes_of(sent.text, sent.position, assignment.log.whose)
            for sub in self.settings:
                self._lanes(assignment, sent, sub, notes.get(sub, NOTHING))
                self._tried(assignment, sent, sub, notes.get(sub, NOTHING))

    def _lanes(self, assignment: Assignment, sent: CommitModel, sub: str, notes: Notes) -> None:
        known = assignment.diverted[sub]
        if not known and not notes.lanes:
            return
        if not self._cut() and (missing := known - notes.lanes):
            self._wrong(assignment, sent, f"of {sub!r} does not name {len(missing)} diverted lanes")
        if notes.lanes - known - assignment.perhaps_diverted[sub]:
            self._wrong(assignment, sent, f"of {sub!r} names lanes that are not diverted")

    def _tried(self, assignment: Assignment, sent: CommitModel, sub: str, notes: Notes) -> None:
        deliveries = assignment.deliveries[sub]
        for offset, (times, archived) in notes.tried.items():
            each = deliveries.get(offset)
            if each is None:
                continue  # it is passed on unchanged
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
                # The last attempt may not be reported yet.
                if notes.tried.get(each.offset, (0, False))[0] < each.tries - 1:
                    self._wrong(assignment, sent, f"does not say {each.tries} attempts of {each}")

    def _cut(self) -> bool:
        """Return whether notes may be missing. Settled sets come first if metadata is limited."""
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

    def _wrong(self, assignment: Assignment, sent: CommitModel, words: str) -> None:
        self.violated(
            assignment.member.number,
            f"the commit {sent.number} of {assignment.partition} at {sent.position} {assignment} "
            f"{words}",
        )

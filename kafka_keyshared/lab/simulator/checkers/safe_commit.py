"""Checker I4: a commit covers only settled records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers.books import Books
from kafka_keyshared.lab.simulator.checkers.checker import Checker
from kafka_keyshared.lab.simulator.checkers.records import Assignment, CommitModel, Stage
from kafka_keyshared.lab.simulator.history import History, Listener


class SafeCommit(Checker):
    """I4, safe commit: the records that a sent commit covers, by position or set, are settled.

    Each is settled in the assignment that commits, or earlier as far as its member knows. The
    member knows that from its start commit or from itself. No undelivered offset is covered, except
    offsets without a record. The text beside the position can be read. Without a reliable
    subscription there is no commit. A commit says nothing about unreliable subscriptions.
    """

    invariant = "I4 safe commit"

    def __init__(
        self,
        history: History,
        settings: Sequence[SubscriptionSettings],
        books: Books | None = None,
        *,
        go_on: bool = False,
    ) -> None:
        super().__init__(history, settings, books, go_on=go_on)
        # By assignment and subscription: the position and the set that were checked and are right.
        self._below: dict[tuple[int, str], int] = {}
        self._beyond: dict[tuple[int, str], set[int]] = {}

    def listeners(self) -> Mapping[type, Listener]:
        """Listen to sent commits and appended records."""
        return {happened.CommitRequested: self._sent, happened.Appended: self._appended}

    def _appended(self, told: happened.Appended) -> None:
        if told.offset <= self.books.logs[told.partition].covered:
            self.violated(
                None, f"{told.partition}@{told.offset} was written where a commit had covered it"
            )

    def _sent(self, told: happened.CommitRequested) -> None:
        del told
        for assignment, sent in self.books.sent.values():
            if assignment is None:
                continue  # CommitSequence reports it
            if sent.sections is None:
                self._wrong(assignment, sent, f"has a text that cannot be read: {sent.text!r}")
            self._delivered(assignment, sent)
            for sub in self.settings:
                if sub in self.books.tracked:
                    self._settled(assignment, sent, sub)
                elif sub in (sent.sections or {}):
                    self._wrong(assignment, sent, f"says something of {sub!r}, which is no promise")
            if not self.books.tracked:
                self._wrong(assignment, sent, "is sent, and no subscription is at-least-once")

    def _delivered(self, assignment: Assignment, sent: CommitModel) -> None:
        if assignment.start is None:
            return
        fates = next(iter(assignment.log.fates.values()))
        for offset in assignment.log.between(assignment.end, sent.position):
            if not fates[offset].removed:
                self._wrong(
                    assignment,
                    sent,
                    f"is beyond {offset}, which was not delivered; received up to {assignment.end}",
                )
                return

    def _settled(self, assignment: Assignment, sent: CommitModel, sub: str) -> None:
        about = assignment.number, sub
        below = self._below.get(about, assignment.start or 0)
        seen = self._beyond.get(about, set())
        for offset in assignment.log.between(below, sent.position):
            if offset not in seen:
                self._one(assignment, sent, sub, offset)
        self._below[about] = max(below, sent.position)
        section = (sent.sections or {}).get(sub)
        if section or seen:
            section = section or set()
            for offset in sorted(section - seen):
                self._one(assignment, sent, sub, offset)
            self._beyond[about] = section

    def _one(self, assignment: Assignment, sent: CommitModel, sub: str, offset: int) -> None:
        delivery = assignment.deliveries[sub].get(offset)
        if delivery is not None and delivery.stage is Stage.SETTLED:
            return
        if offset in assignment.perhaps.get(sub, ()):
            return
        fate = assignment.log.fates[sub].get(offset)
        if delivery is not None:
            state = "it runs" if delivery.running else delivery.stage.value
            self._wrong(
                assignment,
                sent,
                f"covers {delivery}, which is not settled there: {state}; {delivery.fate.story()}",
            )
        elif fate is None and offset > assignment.log.last:
            # A marker, or no record yet. No record may ever appear there.
            assignment.log.covered = max(offset, assignment.log.covered)
        elif fate is not None and not fate.removed and assignment.member not in fate.known_to:
            self._wrong(
                assignment, sent, f"covers {fate} of {sub!r}, not delivered: {fate.story()}"
            )

    def _wrong(self, assignment: Assignment, sent: CommitModel, words: str) -> None:
        self.violated(
            assignment.member.number,
            f"the commit {sent.number} of {assignment.partition} at {sent.position} {assignment} "
            f"{words}",
        )

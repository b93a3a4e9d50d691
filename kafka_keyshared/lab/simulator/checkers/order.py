"""Checker I3: each lane runs in the order of its offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers.books import Books
from kafka_keyshared.lab.simulator.checkers.checker import Checker, FreeSince, always
from kafka_keyshared.lab.simulator.checkers.records import Assignment, Delivery, Stage
from kafka_keyshared.lab.simulator.history import History, Listener

STOP_GRACE = 1.0
"""Seconds within which an unblocked owner learns of its stop."""


CLOSED = (Stage.LETTERING, Stage.LETTERING_ALONE, Stage.ARCHIVING, Stage.BLOCKED)


class OrderChecker(Checker):
    """I3, order: no record starts before the earlier records of its lane have settled.

    Within an assignment a record starts only if everything delivered before it in its lane is
    settled. It does not start while it is dead-lettered or blocked, or its lane is diverted. It
    does not start once its partition is revoked or its member stops, unless its worker has yet to
    answer a recall.

    An assignment begins no lower than the stored position and skips no unsettled record. The same
    holds for a seek. Without reliability, a record without a worker counts as dropped once a later
    record of its lane has begun.
    """

    invariant = "I3 order"

    def __init__(
        self,
        history: History,
        settings: Sequence[SubscriptionSettings],
        books: Books | None = None,
        *,
        free_since: FreeSince = always,
        go_on: bool = False,
    ) -> None:
        super().__init__(history, settings, books, go_on=go_on)
        self._free_since = free_since
        self._started: set[int] = set()

    def listeners(self) -> Mapping[type, Listener]:
        """Listen to starts of records, and to the positions from which partitions are read."""
        return {
            happened.Began: self._began,
            happened.ReadingFrom: self._reading,
            happened.HandedOver: self._handed_over,
            happened.CommitRequested: self._sent,
        }

    # --- records ---

    def _began(self, told: happened.Began) -> None:
        books = self.books
        each = books.delivery
        if each is None:
            return
        assignment = each.assignment
        ahead = books.ahead
        if ahead is not None and not _perhaps_settled(ahead):
            self._wrong(told, each, f"before {ahead.fate} of its lane: {ahead.stage.value}")
        if each.stage in CLOSED:
            self._wrong(told, each, f"although {each.stage.value}")
        if each.lane.hash in assignment.diverted[told.subscription]:
            self._wrong(told, each, "although its lane is diverted")
        if each.stray:
            self._wrong(told, each, "although it was never delivered there")
        member = assignment.member
        if assignment.over is None and assignment.revoking_at is None and not member.stopping_at:
            return
        if member.recalling[told.subscription, told.worker]:
            return
        if assignment.over is not None:
            at = f"{assignment.over.value} at {assignment.over_at:.3f}"
            self._wrong(told, each, f"although its partition has gone: {at}")
        elif assignment.revoking_at is not None:
            self._wrong(told, each, f"although it is revoked since {assignment.revoking_at:.3f}")
        elif member.stopping_at and not member.kept:
            since = max(member.stopping_at, member.free_since, self._free_since(told.member))
            if books.now - since > STOP_GRACE:
                self._wrong(told, each, f"although its member stops since {since:.3f}")

    def _wrong(self, told: happened.Began, each: Delivery, words: str) -> None:
        where = f"at worker {told.worker} {each.assignment}"
        self.violated(told.member, f"{each} began {where} {words}")

    # --- start positions ---

    def _handed_over(self, told: happened.HandedOver) -> None:
        for number in dict.fromkeys(number for _, _, number in told.records):
            self._used(self.books.assignments[number])

    def _sent(self, told: happened.CommitRequested) -> None:
        del told
        for assignment, _ in self.books.sent.values():
            if assignment is not None:
                self._used(assignment)

    def _used(self, assignment: Assignment) -> None:
        if assignment.number not in self._started and assignment.start is not None:
            self._starts(assignment)

    def _reading(self, told: happened.ReadingFrom) -> None:
        position = told.position
        if position is None:
            return
        assignment = self.books.assignments[told.assignment]
        if told.assignment not in self._started:
            self._starts(assignment)
        if position < (assignment.start or 0):
            self.violated(
                told.member,
                f"{told.partition} is read again from {position}; {assignment} it was begun at "
                f"{assignment.start}",
            )
        self._skips(assignment, assignment.end, position)

    def _starts(self, assignment: Assignment) -> None:
        """Check the start against the positions that the broker had when the member asked."""
        self._started.add(assignment.number)
        start, begins = assignment.start, assignment.begins
        if begins is None or start is None:
            return
        positions = [0 if each is None else each[0] for each in begins.entries]
        if start < min(positions):
            self.violated(
                assignment.member.number,
                f"{assignment.partition} begins at {start} {assignment}, below the position "
                f"{min(positions)} that was stored",
            )
        self._skips(assignment, max(positions), start)

    def _skips(self, assignment: Assignment, known: int, position: int) -> None:
        """Check the records between the known position and the position that is read from."""
        log = assignment.log
        for offset in log.between(known, position):
            for sub in self.books.tracked:
                fate = log.fates[sub][offset]
                if not fate.removed and not fate.finished:
                    self.violated(
                        assignment.member.number,
                        f"{assignment.partition} is read from {position} {assignment}, beyond "
                        f"{fate} of {fate.sub!r}: {fate.story()}",
                    )


def _perhaps_settled(ahead: Delivery) -> bool:
    """Return whether its member may know it as settled, by one of its possible start texts."""
    settled = ahead.assignment.perhaps.get(ahead.fate.sub, ())
    return ahead.offset in settled and ahead.worker is None and not ahead.tries

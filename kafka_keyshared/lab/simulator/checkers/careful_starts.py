"""Checker I10: careful starts make progress in a crash loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor, inf

from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers.books import METADATA_LEAST, METADATA_USUAL, Books
from kafka_keyshared.lab.simulator.checkers.checker import Checker, FreeSince, always
from kafka_keyshared.lab.simulator.checkers.records import Assignment, End, MemberModel
from kafka_keyshared.lab.simulator.checkers.restored_notes import notes_of
from kafka_keyshared.lab.simulator.history import History, Listener
from kafka_keyshared.lab.simulator.member_events import LimitHeard

NAMED_WITHIN = 1.0
"""Seconds that records wait for the commit that names them."""

COMMITTED_WITHIN = 0.6
"""Seconds from the first settlement of a careful start to its commit, including the rounds."""

COMMITTED_SOON = 15.0
"""Seconds after which a partition that is read has a committed offset."""

SETTLED_MOST = 5.0
"""Seconds for which a start is careful."""

FEW = 8
"""Records of a partition that may start at first."""

DOUBLED_EVERY = 0.05
"""Seconds after which the number of records that may start doubles. Each commit doubles it too."""


DENIED = "began is not committed, as a right is missing"
"""Text in the last log line of a stop for a partition that has no committed offset."""


class _AssignmentLife:
    """Progress of one assignment. Times are in seconds."""

    def __init__(self, *, careful: bool, since: float) -> None:
        self.careful = careful
        self.since = since
        self.named = self.committed = False
        self.settled_at: float | None = None
        self.first_at: float | None = None
        self.begun: dict[str, int] = {}
        self.commits = 0


class CarefulStartsChecker(Checker):
    """I10, careful starts: each life of a crash loop makes progress.

    Soon after its first record has started, an assignment sends a commit that names records. After
    an unclean end the first record starts after such a commit, or after it has waited long enough
    for one. Few records start at first, and the first settlement is committed at once. After a
    clean stop no commit names a running record. A partition that is read soon has a committed
    offset, even without a record. Otherwise the last line of a clean stop says that the commit was
    denied.
    """

    invariant = "I10 careful starts"

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
        self._lives: dict[int, _AssignmentLife] = {}
        # When each assignment was first read.
        self._read_since: dict[int, float] = {}
        # Unanswered commits of each member, and when its last commit was refused.
        self._unanswered: dict[int, set[int]] = {}
        self._troubled: dict[int, float] = {}
        # The metadata limit that each member has learned from the brokers.
        self._limits: dict[int, int] = {}

    def listeners(self) -> Mapping[type, Listener]:
        """Listen to starts, settlements, commits and the ends of members."""
        return {
            happened.ReadingFrom: self._reading,
            happened.Began: self._began,
            happened.HandlerEnded: self._ended,
            happened.CommitRequested: self._sent,
            happened.CommitTold: self._told,
            happened.Gone: self._gone,
            LimitHeard: self._limit_heard,
        }

    def _limit_heard(self, told: LimitHeard) -> None:
        self._limits[told.member] = min(told.most, self._limits.get(told.member, told.most))

    def _limited(self, member: MemberModel, least: int) -> bool:
        """Return whether brokers accept less metadata than ``least`` from this member."""
        return member.bare or self._limits.get(member.number, METADATA_USUAL) < least

    def _names_none(self, member: MemberModel) -> bool:
        """Return whether brokers may refuse every text from this member that names a record."""
        return self._limited(member, METADATA_LEAST)

    def _may_name_none(self, member: MemberModel) -> bool:
        """Return whether names may be cut from the text: settled sets and attempts come first.

        The text may then equal the stored one, and the member sends no commit.
        """
        return self._limited(member, METADATA_USUAL)

    def _reading(self, told: happened.ReadingFrom) -> None:
        if told.position is not None:
            self._read_since.setdefault(told.assignment, self.books.now)

    def _life(self, assignment: Assignment) -> _AssignmentLife:
        life = self._lives.get(assignment.number)
        if life is None:
            # If the assignment may have begun with any of several texts, all must name running
            # records. A member that regains a lost partition treats none of its own running records
            # as suspects.
            before = assignment.remembered
            regained = before is not None and before.over is End.LOST
            unclean = (
                bool(assignment.notes)
                and not regained
                and all(
                    any(notes.running for notes in every.values()) for every in assignment.notes
                )
            )
            since = assignment.first_at if assignment.first_at is not None else self.books.now
            life = self._lives[assignment.number] = _AssignmentLife(careful=unclean, since=since)
        return life

    def _kept(self, member: int, since: float) -> bool:
        """Return whether the member may have been unable to commit since then."""
        trouble = self._troubled.get(member, -inf)
        return bool(
            self._unanswered.get(member)
            or trouble >= since - 2.0
            or self._free_since(member) > since
        )

    def _began(self, told: happened.Began) -> None:
        each = self.books.delivery
        if each is None or told.subscription not in self.books.tracked:
            return
        assignment, now = each.assignment, self.books.now
        if assignment.over is not None or assignment.misplaced:
            return
        life = self._life(assignment)
        life.first_at = now if life.first_at is None else life.first_at
        if not life.careful:
            return
        waited = now - life.since >= NAMED_WITHIN
        if not (life.named or waited or self._may_name_none(assignment.member)):
            self.violated(told.member, f"{each} began {assignment}, and no commit has named it")
        if each.tries > 1:
            return
        begun = life.begun[told.subscription] = life.begun.get(told.subscription, 0) + 1
        doubled = life.commits + floor((now - life.since) / DOUBLED_EVERY)
        # Each doubling admits as many as run, and all earlier ones may have settled.
        if doubled < 20 and begun > FEW * 2 ** (doubled + 1):
            self.violated(
                told.member,
                f"{each} began {assignment} as number {begun} within {now - life.since:.3f} s and "
                f"{life.commits} commits, although the partition has to begin with few records",
            )

    def _ended(self, told: happened.HandlerEnded) -> None:
        each = self.books.delivery
        if each is None or told.outcome not in ("done", "dropped"):
            return
        assignment = each.assignment
        if assignment.over is None and told.subscription in self.books.tracked:
            life = self._life(assignment)
            if life.settled_at is None:
                life.settled_at = self.books.now

    def _sent(self, told: happened.CommitRequested) -> None:
        self._unanswered.setdefault(told.member, set()).add(told.number)
        for assignment, sent in self.books.sent.values():
            if assignment is None:
                continue
            life = self._life(assignment)
            named = any(
                each.running
                for each in notes_of(sent.text, sent.position, assignment.log.whose).values()
            )
            life.named = life.named or named
            life.commits += 1
            life.committed = life.committed or life.settled_at is not None

    def _told(self, told: happened.CommitTold) -> None:
        self._unanswered.get(told.member, set()).discard(told.number)
        if told.result != "accepted":
            self._troubled[told.member] = self.books.now

    def _gone(self, told: happened.Gone) -> None:
        for assignment in self.books.ended:
            life = self._life(assignment)
            if told.how == "killed":
                self._in_vain(told.member, assignment, life)
            elif told.how == "stopped" and told.clean:
                self._clean(told.member, assignment, told.reason)
            self._lives.pop(assignment.number, None)
        self._unanswered.pop(told.member, None)
        self._troubled.pop(told.member, None)
        self._limits.pop(told.member, None)

    def _in_vain(self, member: int, assignment: Assignment, life: _AssignmentLife) -> None:
        settled, now = life.settled_at, self.books.now
        self._unnamed(member, assignment, life)
        if settled is None or life.committed or not life.careful:
            return
        if _leaves(assignment) or self._names_none(assignment.member):
            return
        early = life.first_at is not None and settled - life.first_at < SETTLED_MOST
        if early and now - settled >= COMMITTED_WITHIN and not self._kept(member, settled):
            self.violated(
                member,
                f"it was killed {now - settled:.3f} s after the first record of "
                f"{assignment.partition} had settled {assignment}, and has committed nothing",
            )

    def _unnamed(self, member: int, assignment: Assignment, life: _AssignmentLife) -> None:
        """Report an assignment that ran records for a while without sending a commit."""
        first, now = life.first_at, self.books.now
        if first is None or life.commits or now - first < COMMITTED_WITHIN:
            return
        if _leaves(assignment) or self._may_name_none(assignment.member):
            return
        if self._kept(member, first):
            return
        self.violated(
            member,
            f"it was killed {now - first:.3f} s after the first record of "
            f"{assignment.partition} had started {assignment}, and no commit has named it",
        )

    def _clean(self, member: int, assignment: Assignment, line: str) -> None:
        partition = assignment.partition
        if assignment.stolen or assignment.outlived or not self.books.tracked:
            return
        if partition not in self.books.stored:
            since = self._read_since.get(assignment.number, inf)
            said = assignment.misplaced or DENIED in line
            if self.books.now - since >= COMMITTED_SOON and not said:
                self.violated(
                    member, f"a stop counts as clean; {partition} has no committed offset"
                )
            return
        position, text = self.books.stored[partition]
        sent = assignment.sent
        if sent is None or (sent.position, sent.text) != (position, text):
            return
        if any(each.running for each in notes_of(text, position, assignment.log.whose).values()):
            self.violated(
                member,
                f"a stop counts as clean; the commit of {partition} at {position} names running "
                "records",
            )


def _leaves(assignment: Assignment) -> bool:
    """Return whether the partition is about to go. A stop commits once, at its end."""
    stops = assignment.member.stopping_at is not None
    return assignment.misplaced or assignment.revoking_at is not None or stops

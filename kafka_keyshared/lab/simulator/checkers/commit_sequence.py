"""Checker I5: commits never go back, and end with the assignment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers.books import METADATA_LEAST, Books
from kafka_keyshared.lab.simulator.checkers.checker import Checker
from kafka_keyshared.lab.simulator.checkers.records import Assignment, CommitModel
from kafka_keyshared.lab.simulator.history import History, Listener
from kafka_keyshared.model import TopicPartition, some

FOLLOWED_WITHIN = 15.0
"""Seconds within which a member repeats a commit over which an earlier one was stored.

A member whose commit failed waits for 10 s, and cannot know the stored state in that time.
"""


class CommitSequence(Checker):
    """I5, commit sequence: the positions sent in an assignment never decrease.

    No commit is sent after the assignment. Position and set describe one moment: the record at the
    position is not in the sets of all subscriptions. An offset stays in a set until the position
    has passed it, unless the broker refused sets. The stored position decreases only by a commit
    that arrives late. The member then repeats the later commit, as long as the assignment lasts.
    """

    invariant = "I5 commit sequence"

    def __init__(
        self,
        history: History,
        settings: Sequence[SubscriptionSettings],
        books: Books | None = None,
        *,
        go_on: bool = False,
    ) -> None:
        super().__init__(history, settings, books, go_on=go_on)
        self._last: dict[int, CommitModel] = {}
        # The broker's commit by partition: its number, its assignment and its content.
        self._has: dict[TopicPartition, tuple[int, Assignment | None, tuple[int, str]]] = {}
        # The number of each overwritten commit, its assignment, and when it was overwritten.
        self._owed: dict[TopicPartition, tuple[int, Assignment, float]] = {}
        self.late = 0

    def listeners(self) -> Mapping[type, Listener]:
        """Listen to sent and stored commits, and to the end of the run."""
        return {
            happened.CommitRequested: self._sent,
            happened.CommitStored: self._stored,
            happened.Finished: self._finished,
        }

    def _sent(self, told: happened.CommitRequested) -> None:
        for partition, (assignment, sent) in self.books.sent.items():
            if assignment is None:
                self._without(told, partition, sent)
                continue
            before = self._last.get(assignment.number)
            least = before.position if before is not None else _began_at(assignment)
            if sent.position < least:
                what = "where it began" if before is None else f"commit {before.number}"
                self._wrong(assignment, sent, f"falls below {least}, {what}")
            self._one_moment(assignment, sent, before)
            self._last[assignment.number] = sent

    def _without(
        self, told: happened.CommitRequested, partition: TopicPartition, sent: CommitModel
    ) -> None:
        reader = self.books.readers.get(partition)
        known = ""
        if reader is not None:
            over = reader.over.value if reader.over is not None else "not over"
            known = f"; it was last read {reader}, {over} at {reader.over_at:.3f}"
        self.violated(
            told.member,
            f"the commit {sent.number} of {partition} at {sent.position} is sent by a member that "
            f"does not have the partition{known}",
        )

    def _one_moment(
        self, assignment: Assignment, sent: CommitModel, before: CommitModel | None
    ) -> None:
        sections = sent.sections or {}
        fates = [sub for sub in assignment.log.fates if sub in self.books.tracked]
        if all(sent.position in sections.get(sub, ()) for sub in fates) and any(
            self._settled_there(assignment, sub, sent.position) for sub in fates
        ):
            self._wrong(assignment, sent, "has the very record at its position in its set")
        if assignment.member.bare or self.books.metadata_least < METADATA_LEAST:
            return
        had = assignment.sure if before is None else before.sections or {}
        for sub, covered in had.items():
            if sub not in fates:
                continue
            gone = covered - sections.get(sub, set())
            written = assignment.log.fates[sub]
            lost = sorted(each for each in gone if each >= sent.position and each in written)
            if lost:
                self._wrong(
                    assignment,
                    sent,
                    f"has lost {some(lost)} of {sub!r} from its set, which "
                    + ("it began with" if before is None else f"commit {before.number} had"),
                )

    def _settled_there(self, assignment: Assignment, sub: str, offset: int) -> bool:
        """Return whether this assignment itself has settled the record.

        A record that the previous assignment settled may stand at the position if it is
        undelivered.
        """
        delivery = assignment.deliveries[sub].get(offset)
        known = offset in assignment.perhaps.get(sub, ())
        return delivery is not None and not known and delivery.fate.settled_in is assignment

    def _wrong(self, assignment: Assignment, sent: CommitModel, words: str) -> None:
        self.violated(
            assignment.member.number,
            f"the commit {sent.number} of {assignment.partition} at {sent.position} {assignment} "
            f"{words}",
        )

    def _stored(self, told: happened.CommitStored) -> None:
        books = self.books
        parts = books.commits.get(told.number, {})
        for partition, entry in told.entries.items():
            assignment = parts[partition][0] if partition in parts else None
            number, whose, before = self._has.get(partition, (-1, None, (-1, "")))
            owed = self._owed.get(partition)
            if owed is not None and (told.number > owed[0] or assignment is not owed[1]):
                del self._owed[partition]
            if assignment is not None and whose is assignment and told.number < number:
                self.late += 1
                if entry != before:
                    self._owed[partition] = number, assignment, books.now
            self._has[partition] = told.number, assignment, entry

    def _finished(self, told: happened.Finished) -> None:
        del told
        for partition, (number, assignment, since) in sorted(self._owed.items()):
            if assignment.over is None and self.books.now - since > FOLLOWED_WITHIN:
                self.violated(
                    assignment.member.number,
                    f"{partition}: an earlier commit was stored over commit {number} at "
                    f"{since:.3f} {assignment}, and that was never sent again",
                )


def _began_at(assignment: Assignment) -> int:
    """Return the position below which the assignment commits nothing.

    An assignment that began by the reset policy may have begun below records that retention has
    removed since.
    """
    begins = assignment.begins
    if assignment.left_to_begin and begins is not None:
        return min(0 if each is None else each[0] for each in begins.entries)
    return assignment.start or 0

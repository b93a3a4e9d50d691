"""Commits beside a broker that refuses, stores without a word, and stores late."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kafka_keyshared.core.contract.commands import Commit, CommitEntry
from kafka_keyshared.core.contract.events import CommitAnswer, CommitResult
from kafka_keyshared.core.offsets.commit import DOUBT, CommitPolicy, Commits
from kafka_keyshared.model import TopicPartition
from tests.support.records import P0, P1
from tests.support.seeds import examples

STEPS = settings(
    derandomize=True, deadline=None, max_examples=examples(40), stateful_step_count=100
)

PARTITIONS = (P0, P1)
PICKS = st.integers(0, 29)
ANSWERS = (CommitResult.ACCEPTED, CommitResult.ACCEPTED, CommitResult.RETRY, CommitResult.TOO_LARGE)
WHAT = (*["commit"] * 4, *["answer"] * 4, *["wait"] * 4, "last", *["settle down"] * 2)


class Committing(RuleBasedStateMachine):
    """Positions move on, and each commit meets its fate.

    The oracle has what the broker has stored, what is on its way and may be stored late, and all
    that was ever sent of each partition.
    """

    def __init__(self) -> None:
        super().__init__()
        self.commits = Commits(CommitPolicy())
        self.commits.restart({each: CommitEntry(0, "") for each in PARTITIONS})
        self.now = 100.0
        self.wanted = dict.fromkeys(PARTITIONS, CommitEntry(0, ""))
        self.broker = dict.fromkeys(PARTITIONS, CommitEntry(0, ""))
        self.accepted = dict.fromkeys(PARTITIONS, 0)
        self.sent: dict[TopicPartition, list[int]] = {each: [] for each in PARTITIONS}
        self.flying: list[Commit] = []
        self.late: list[tuple[float, Commit]] = []

    def store(self, commit: Commit) -> None:
        self.broker.update(commit.entries)

    @rule(what=st.sampled_from(WHAT), pick=PICKS, other=PICKS)
    def act(self, what: str, pick: int, other: int) -> None:
        """One rule with weights: of many rules each run would leave out some."""
        partition = PARTITIONS[pick % 2]
        if what == "commit":
            self.move_on(partition, other % 4, other % 3)
            self.commit_if_due()
        elif what == "last":
            self.give_away(partition)
        elif what == "wait":
            self.wait((0.05, 0.2, 1.0, 4.0, DOUBT)[pick % 5])
        elif what == "answer" and self.flying:
            self.answer(ANSWERS[pick % len(ANSWERS)], (None, 0.0, 3.0)[other % 3], other)
        elif what == "settle down":
            self.settle_down()

    def move_on(self, partition: TopicPartition, step: int, ahead: int) -> None:
        """The position never falls; the set may be any."""
        position = self.wanted[partition].position + step
        self.wanted[partition] = CommitEntry(position, "x" * ahead)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        for due, commit in self.late[:]:
            if due <= self.now:
                self.late.remove((due, commit))
                self.store(commit)

    def commit_if_due(self) -> None:
        if self.commits.due(self.now, changed=True, idle_since=None):
            assert not self.flying, "one is in flight at a time"
            self.plan()

    def plan(self, *, final: TopicPartition | None = None) -> None:
        wanted = self.wanted if final is None else {final: self.wanted[final]}
        for commit in self.commits.plan(wanted, self.now, final=final is not None):
            for partition, entry in commit.entries.items():
                assert entry.position >= max(self.sent[partition], default=0), "they never fall"
                assert entry.position == self.wanted[partition].position
                assert entry.metadata in ("", self.wanted[partition].metadata)
                self.sent[partition].append(entry.position)
            self.flying.append(commit)

    def give_away(self, partition: TopicPartition) -> None:
        """A revoke: one last commit, also while another is in flight; then it begins anew.

        Of a generation that is over the broker stores nothing more.
        """
        self.move_on(partition, 2, 1)
        self.plan(final=partition)
        while self.flying:
            self.answer_well()
        assert self.broker[partition].position == self.wanted[partition].position
        self.late = [each for each in self.late if partition not in each[1].entries]
        self.commits.forget([partition])
        self.commits.restart({partition: self.broker[partition]})

    def answer(self, result: CommitResult, late: float | None, pick: int) -> None:
        """One that was given up may have been stored, or may be yet, as long as there is doubt."""
        commit = self.flying.pop(pick % len(self.flying))
        if result is CommitResult.ACCEPTED:
            self.store(commit)
            for partition, entry in commit.entries.items():
                self.accepted[partition] = entry.position
        elif result is CommitResult.RETRY and late is not None:
            self.late.append((self.now + late, commit))
        self.commits.answered(CommitAnswer(commit, result), self.now)

    def settle_down(self) -> None:
        """When answers are good for long enough, the broker has what is wanted."""
        while self.flying:
            self.answer_well()
        for _ in range(6):
            self.wait(DOUBT)
            if self.commits.due(self.now, changed=True, idle_since=None):
                self.plan()
            while self.flying:
                self.answer_well()
        assert not self.late
        for partition in PARTITIONS:
            assert self.broker[partition].position == self.wanted[partition].position
            assert self.broker[partition].metadata == self.wanted[partition].metadata

    def answer_well(self) -> None:
        commit = self.flying.pop(0)
        self.store(commit)
        for partition, entry in commit.entries.items():
            self.accepted[partition] = entry.position
        self.commits.answered(CommitAnswer(commit, CommitResult.ACCEPTED), self.now)

    @invariant()
    def only_what_was_accepted_counts_as_committed(self) -> None:
        for partition in PARTITIONS:
            assert self.commits.committed(partition) == self.accepted[partition]


TestCommitting = Committing.TestCase
TestCommitting.settings = STEPS

"""Commits beside a broker that refuses, stores without a word, and stores late."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafka_keyshared.core.commands import Commit, CommitEntry
from kafka_keyshared.core.commit import DOUBT, CommitPolicy, Commits
from kafka_keyshared.core.events import CommitAnswered, CommitResult
from kafka_keyshared.model import TopicPartition
from tests.support.records import P0, P1

STEPS = settings(derandomize=True, deadline=None, max_examples=100, stateful_step_count=50)

PARTITIONS = (P0, P1)


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

    @rule(partition=st.sampled_from(PARTITIONS), step=st.integers(0, 5), ahead=st.integers(0, 3))
    def move_on(self, partition: TopicPartition, step: int, ahead: int) -> None:
        """The position never falls; the set may be any."""
        position = self.wanted[partition].position + step
        self.wanted[partition] = CommitEntry(position, "x" * ahead)

    @rule(seconds=st.sampled_from([0.05, 0.2, 1.0, 4.0, DOUBT]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        for due, commit in self.late[:]:
            if due <= self.now:
                self.late.remove((due, commit))
                self.store(commit)

    @rule(partition=st.sampled_from(PARTITIONS), step=st.integers(0, 5), wait=st.booleans())
    def commit_if_due(self, partition: TopicPartition, step: int, wait: bool) -> None:
        self.move_on(partition, step, step % 2)
        self.wait(1.0 if wait else 0.2)
        if self.commits.due(self.now, changed=True, idle_since=None):
            assert not self.flying, "one is in flight at a time"
            self.plan()

    @rule(partition=st.sampled_from(PARTITIONS))
    def commit_a_last_time(self, partition: TopicPartition) -> None:
        """At a revoke or a stop: also while another is in flight. Nobody waits for its time."""
        self.move_on(partition, 2, 1)
        self.plan(final=True)

    def plan(self, *, final: bool = False) -> None:
        for commit in self.commits.plan(self.wanted, self.now, final=final):
            for partition, entry in commit.entries.items():
                assert entry.position >= max(self.sent[partition], default=0), "they never fall"
                assert entry.position == self.wanted[partition].position
                assert entry.metadata in ("", self.wanted[partition].metadata)
                self.sent[partition].append(entry.position)
            self.flying.append(commit)

    @precondition(lambda self: self.flying)
    @rule(
        result=st.sampled_from([CommitResult.ACCEPTED, CommitResult.RETRY, CommitResult.TOO_LARGE]),
        late=st.sampled_from([None, 0.0, 3.0]),
        data=st.data(),
    )
    def answer(self, result: CommitResult, late: float | None, data: st.DataObject) -> None:
        """One that was given up may have been stored, or may be yet, as long as there is doubt."""
        commit = self.flying.pop(data.draw(st.integers(0, len(self.flying) - 1)))
        if result is CommitResult.ACCEPTED:
            self.store(commit)
            for partition, entry in commit.entries.items():
                self.accepted[partition] = entry.position
        elif result is CommitResult.RETRY and late is not None:
            self.late.append((self.now + late, commit))
        self.commits.answered(CommitAnswered(commit, result), self.now)

    @rule()
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
        self.commits.answered(CommitAnswered(commit, CommitResult.ACCEPTED), self.now)

    @invariant()
    def only_what_was_accepted_counts_as_committed(self) -> None:
        for partition in PARTITIONS:
            assert self.commits.committed(partition) == self.accepted[partition]

    @invariant()
    def whatever_the_broker_has_may_be_there_by_what_this_member_knows(self) -> None:
        ours = self.commits.ours(PARTITIONS)
        for partition in PARTITIONS:
            assert self.broker[partition] in ours[partition]


TestCommitting = Committing.TestCase
TestCommitting.settings = STEPS

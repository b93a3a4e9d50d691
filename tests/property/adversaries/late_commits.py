"""The adversary whose coordinator stores some commits late: after the client has given up on them.

A coordinator that stood still goes on with the requests that it had, and may store an old commit
over a later one that it has accepted meanwhile, on another connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.commands import CommitEntry
from kafka_keyshared.core.contract.events import CommitResult
from kafka_keyshared.core.offsets.commit import DOUBT
from kafka_keyshared.core.offsets.commit_metadata import SET_BUDGET
from kafka_keyshared.model import TopicPartition
from tests.property.adversaries.protocol import Adversary

LATEST = DOUBT / 2
"""Seconds after which a late commit is stored at the next step, which may take as long."""


class DelayingAdversary(Adversary):
    """One seed of it."""

    def __init__(self, seed: int, *, records: int = 60, set_budget: int = SET_BUDGET) -> None:
        self.chance = Random(f"delaying-{seed}")
        self.late: list[tuple[float, TopicPartition, CommitEntry]] = []
        self.troubles = 0
        super().__init__(seed, records=records, set_budget=set_budget)

    def answer(self, commit: cmd.Commit, *, kindly: bool = False) -> None:
        """Answer as ever, or fail: then some of it is stored, some never, and some late."""
        if self.troubles <= 0 or self.chance.random() < 0.5:
            super().answer(commit, kindly=kindly)
            return
        self.troubles -= 1
        fates = {
            each: self.chance.choice(["stored", "never", "late", "late"]) for each in commit.entries
        }
        self.store(commit, {each for each, fate in fates.items() if fate == "stored"})
        self.late += [
            (self.member.now, each, commit.entries[each])
            for each, fate in fates.items()
            if fate == "late"
        ]
        self.refused.update(commit.entries)
        self.reached["commit failed"] += 1
        self.member.mailbox.append(ev.CommitAnswer(commit, CommitResult.RETRY, "timed out"))

    def act(self) -> None:
        """Let late commits arrive, but none after its time; and now and then commit in trouble."""
        for each in list(self.late):
            if self.member.now - each[0] >= LATEST or self.chance.random() < 0.2:
                self.arrive(each)
        if self.chance.random() < 0.1:
            self.troubles = 1
            self.commit()
            self.answer_commits()
            self.member.deliver()
        super().act()

    def heal(self) -> None:
        """The last trouble is when there is little left to do."""
        self.troubles = 10
        super().heal()

    def arrive(self, late: tuple[float, TopicPartition, CommitEntry]) -> None:
        """Store a late commit, whatever has been stored since."""
        self.late.remove(late)
        _, partition, entry = late
        before = self.stored.get(partition)
        self.stored[partition] = entry
        if before is not None and entry.position < before.position:
            self.reached["stored over a later one"] += 1

    def _last_answers(
        self, gone: Sequence[TopicPartition], *, drained: bool
    ) -> set[TopicPartition]:
        """What is late already arrives before the last commit; what fails now may after it."""
        for each in list(self.late):
            self.arrive(each)
        clean = super()._last_answers(gone, drained=drained)
        return clean - {partition for _, partition, _ in self.late}

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Give partitions; of an earlier generation the coordinator takes nothing any more."""
        self.late = [each for each in self.late if each[1] not in partitions]
        super().assign(partitions)

    def healed(self) -> bool:
        """Whether all is settled, and stays so after all has arrived, which it does in time."""
        for each in list(self.late):
            if self.member.now - each[0] >= LATEST or super().healed():
                self.arrive(each)
        return super().healed()

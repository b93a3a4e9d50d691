"""The adversary where partitions are lost more often, and others may have them in between."""

from __future__ import annotations

from random import Random

from kafka_keyshared.core.contract.commands import CommitEntry
from kafka_keyshared.core.offsets.commit_metadata import SET_BUDGET
from kafka_keyshared.model import TopicPartition
from tests.property.adversaries.protocol import Adversary


class LosingAdversary(Adversary):
    """One seed of it."""

    def __init__(self, seed: int, *, records: int = 60, set_budget: int = SET_BUDGET) -> None:
        self.chance = Random(f"losing-{seed}")
        super().__init__(seed, records=records, set_budget=set_budget)

    def act(self) -> None:
        """Now and then, let everything be lost; and let somebody else go on with some of it."""
        if self.chance.random() < 0.03 and self.oracle.owned:
            self.lose(sorted(self.oracle.owned))
            for partition in self.partitions:
                if partition not in self.oracle.owned and self.chance.random() < 0.3:
                    self.elsewhere(partition)
        super().act()

    def elsewhere(self, partition: TopicPartition) -> None:
        """Somebody else has the partition, settles some records and commits that."""
        stored = self.stored.get(partition)
        begin = 0 if stored is None else stored.position
        end = begin + self.chance.randint(0, 5)
        log = [offset for offset in self.oracle.log[partition] if begin <= offset < end]
        if log:
            self.oracle.settled_elsewhere(partition, log)
            self.stored[partition] = CommitEntry(end, "")
            self.reached["went on elsewhere"] += 1

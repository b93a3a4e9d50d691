"""The adversary in a world in which topics are deleted and made anew while they are read."""

from __future__ import annotations

from random import Random

from kafka_keyshared.core.offsets.commit_metadata import SET_BUDGET
from tests.property.adversaries.protocol import Adversary


class RemakingAdversary(Adversary):
    """One seed of it."""

    def __init__(self, seed: int, *, records: int = 60, set_budget: int = SET_BUDGET) -> None:
        # A generator of its own, so that what else happens is as in the world that keeps its logs.
        self.chance = Random(f"remade-{seed}")
        super().__init__(seed, records=records, set_budget=set_budget)

    def act(self) -> None:
        """Now and then, make a topic anew."""
        if self.chance.random() < 0.01:
            partition = self.chance.choice(self.partitions)
            held = self.member.core.unsettled_count()
            running = any(
                worker.running is not None for worker in self.member.pool.workers.values()
            )
            self.remake(partition, self.chance.randint(0, 30))
            self.reached["made anew while records are held"] += held > 0
            self.reached["made anew while records run"] += running
        super().act()

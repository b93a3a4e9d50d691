"""The adversary with one lease per key, where workers die more often and stay dead."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from kafka_keyshared.core.offsets.commit_metadata import SET_BUDGET
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.core.worker_changes.worker_lifecycle import EVICT_AFTER
from tests.property.adversaries.protocol import Adversary


class EvictingAdversary(Adversary):
    """One seed of it."""

    def __init__(self, seed: int, *, records: int = 60, set_budget: int = SET_BUDGET) -> None:
        self.chance = Random(f"evicting-{seed}")
        super().__init__(seed, records=records, set_budget=set_budget)

    def random_settings(self, name: str) -> SubscriptionSettings:
        """Settings under which records are granted their lane's lease before they are leased."""
        settings = super().random_settings(name)
        return replace(settings, workers=worker_names(3), one_in_flight_per_key=True)

    def act(self) -> None:
        """Now and then, let a thread end for good."""
        if self.chance.random() < 0.02:
            self.kill_worker()
            self.member.pool.replaceable = False
            self.member.beat(EVICT_AFTER)
        super().act()

"""The adversary whose workers answer a recall when they get to it, and where workers join."""

from __future__ import annotations

from random import Random

from kafka_keyshared.core import events as ev
from kafka_keyshared.core.metadata import SET_BUDGET
from kafka_keyshared.core.workers import WorkerState
from tests.support.adversary import Adversary

JOINED_MOST = 6
"""Workers that join in one life of a member."""


class JoiningAdversary(Adversary):
    """One seed of it."""

    def __init__(self, seed: int, *, records: int = 60, set_budget: int = SET_BUDGET) -> None:
        self.chance = Random(f"joining-{seed}")
        # A generator of its own, so that what else happens is as where they answer first.
        self.hesitation = Random(f"hesitating-{seed}")
        self.later = self.chance.choice([0.0, 0.5, 1.0])
        super().__init__(seed, records=records, set_budget=set_budget)

    def _count(self, name: str) -> int:
        """Names repeat, also those of workers that are gone."""
        taken = {worker.name for worker in self.member.sub(name).workers.values()}
        return next(n for n in range(JOINED_MOST + 1) if f"joined-{n}" not in taken)

    def _hesitates(self) -> bool:
        """Say whether a worker that is asked goes on first."""
        return self.hesitation.random() < self.later / 2

    def act(self) -> None:
        """Now and then, let a worker join; note what it meets."""
        member = self.member
        # Again and again, because there is a new pool with each member.
        member.pool.answers_later = lambda: self.chance.random() < self.later
        member.pool.hesitates = self._hesitates
        if self.chance.random() < 0.02:
            name = self.chance.choice(list(member.core.subscriptions))
            sub = member.sub(name)
            if len(sub.workers) < JOINED_MOST and not self.oracle.stopped:
                member.tell(ev.Join(name, f"joined-{self._count(name)}"))
                self.reached["joined"] += 1
        for sub in member.core.subscriptions.values():
            self.reached["joins while others hold its keys"] += bool(sub.changing)
            self.reached["a worker that joins has records waiting"] += any(
                not worker.row.empty() for worker in sub.changing
            )
            self.reached["a recall is not answered yet"] += any(
                worker.recalls for worker in sub.workers.values()
            )
            self.reached["asked twice before the answer"] += any(
                worker.recalls > 1 for worker in sub.workers.values()
            )
            self.reached["one that joined is active"] += any(
                worker.state is WorkerState.ACTIVE and worker.name.startswith("joined")
                for worker in sub.workers.values()
            )
        super().act()

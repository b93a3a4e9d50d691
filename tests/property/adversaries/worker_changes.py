"""The adversary whose workers answer a recall when they get to it, and come and go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.offsets.commit_metadata import SET_BUDGET
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.core.workers.worker import WorkerState
from kafka_keyshared.hashing import slot_of
from kafka_keyshared.lab.simulator.stepped import SteppedPool
from kafka_keyshared.model import Record
from tests.property.adversaries.protocol import Adversary
from tests.support.records import FakeRecord

PATTERNS = ("*1", "?2*", "*3*", "*4", "*")

JOINED_MOST = 6
"""Workers that join in one life of a member."""


class JoiningAdversary(Adversary):
    """One seed of it. ``staying`` are there after every resize."""

    staying: Sequence[str] = ()

    def __init__(self, seed: int, *, records: int = 60, set_budget: int = SET_BUDGET) -> None:
        self.chance = Random(f"joining-{seed}")
        # A generator of its own, so that what else happens is as where they answer first.
        self.hesitation = Random(f"hesitating-{seed}")
        self.later = self.chance.choice([0.0, 0.5, 1.0])
        self.watched: SteppedPool | None = None
        self.resizes = Random(f"resizing-{seed}")
        super().__init__(seed, records=records, set_budget=set_budget)

    def random_settings(self, name: str) -> SubscriptionSettings:
        """Settings of which some let slots open later, or let new workers wait."""
        return replace(
            super().random_settings(name),
            unblocking_interval=self.resizes.choice([0.0, 0.0, 0.05]),
            new_workers_wait=self.resizes.random() < 0.2,
            hands_over=self.resizes.random() < 0.4,
        )

    def _count(self, name: str) -> int:
        """Names repeat, also those of workers that are gone."""
        taken = {worker.name for worker in self.member.sub(name).workers.values()}
        return next(n for n in range(JOINED_MOST + 1) if f"joined-{n}" not in taken)

    def _watch_states(self) -> None:
        """Let workers have state of the slots that they run; none may be at two of them."""
        pool = self.member.pool
        if pool is self.watched:
            return
        self.watched, began = pool, pool.on_start
        states = defaultdict[tuple[str, int], set[int]](set)

        def started(sub: str, worker: int, item: Record) -> None:
            assert isinstance(item, FakeRecord)
            began(sub, worker, item)
            key = item.came_as[1]
            if key is None or not self.member.sub(sub).settings.hands_over:
                return
            slot = slot_of(key)
            others = [at for at, slots in states.items() if slot in slots and at != (sub, worker)]
            left = [at for at in others if at[0] == sub and not pool.workers[at].abandoned]
            assert not left, f"{item} runs at {worker}, and the state of its slot is at {left}"
            states[sub, worker].add(slot)

        def release(sub: str, worker: int, slots: Sequence[int]) -> set[int]:
            found = states[sub, worker].intersection(slots)
            states[sub, worker] -= found
            self.reached["state was released"] += bool(found)
            return found

        def adopt(sub: str, worker: int, slots: Sequence[int], state: object) -> None:
            assert isinstance(state, set)
            states[sub, worker] |= state

        pool.on_start, pool.on_release, pool.on_adopt = started, release, adopt

    def _join(self, name: str, worker: str) -> None:
        self.member.tell(ev.Join(name, worker))
        self.reached["joined"] += 1

    def _resize(self, name: str) -> None:
        """Have exactly some workers, old and new ones."""
        workers = self.member.sub(name).workers.values()
        names = {worker.name for worker in workers} | {f"resized-{n}" for n in range(3)}
        wanted = self.resizes.sample(sorted(names), self.resizes.randint(1, min(5, len(names))))
        wanted += [each for each in self.staying if each not in wanted]
        self.member.tell(ev.Resize(name, wanted))
        self.reached["resized"] += 1

    def _hesitates(self) -> bool:
        """Say whether a worker that is asked goes on first."""
        return self.hesitation.random() < self.later / 2

    def act(self) -> None:
        """Now and then, let a worker join; note what it meets."""
        member = self.member
        self._watch_states()
        # Again and again, because there is a new pool with each member.
        member.pool.answers_later = lambda: self.chance.random() < self.later
        member.pool.hesitates = self._hesitates
        if self.chance.random() < 0.02:
            name = self.chance.choice(list(member.core.subscriptions))
            sub = member.sub(name)
            if len(sub.workers) < JOINED_MOST and not self.oracle.stopped:
                self._join(name, f"joined-{self._count(name)}")
        if self.resizes.random() < 0.03 and not self.oracle.stopped:
            self._resize(self.resizes.choice(list(member.core.subscriptions)))
        for sub in member.core.subscriptions.values():
            states = {worker.state for worker in sub.changing}
            self.reached["a worker waits until it has caught up"] += WorkerState.JOINING in states
            self.reached["a worker leaves and has leases"] += WorkerState.LEAVING in states
            self.reached["slots drain"] += bool(sub.draining.count)
            self.reached["records wait for a slot to drain"] += not sub.draining.empty()
            self.reached["a retry waits for its slot to drain"] += bool(sub.draining.row.retries)
            self.reached["a grant waits for its slot to drain"] += bool(sub.draining.row.granted)
            self.reached["what has drained waits for the tick"] += bool(sub.draining.cleared)
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


class FilteringAdversary(JoiningAdversary):
    """Nobody filters at first; some of those that join do. One that takes every key is there.

    Once it is, the others are given other filters while they have records.
    """

    staying = ("resized-0",)
    pooled = 0.0  # whoever filters has keys of its own

    def __init__(self, seed: int, *, records: int = 60, set_budget: int = SET_BUDGET) -> None:
        self.setting = Random(f"setting-filters-{seed}")
        super().__init__(seed, records=records, set_budget=set_budget)

    def act(self) -> None:
        """Now and then, let a worker take other keys."""
        if self.setting.random() < 0.04 and not self.oracle.stopped:
            self._set_filters(self.setting.choice(list(self.member.core.subscriptions)))
        super().act()

    def _set_filters(self, name: str) -> None:
        sub = self.member.sub(name)
        names = {worker.name for worker in sub.workers.values() if worker.present}
        others = sorted(names.difference(self.staying))
        if not names.issuperset(self.staying) or not others:
            return
        worker = self.setting.choice(others)
        patterns = self.setting.sample(PATTERNS, self.setting.randint(0, 2))
        self.reached["filters were set while records run"] += bool(sub.leased)
        self.reached["filters were set while slots drain"] += bool(sub.draining.count)
        self.reached["filters were set while a retry waits"] += bool(sub.closed.lanes)
        self.member.tell(ev.SetFilters(name, worker, patterns))

    def heal(self) -> None:
        """Let somebody take every key again where the one that did was evicted: else they wait."""
        for name, sub in self.member.core.subscriptions.items():
            there = sorted(each.name for each in sub.workers.values() if each.present)
            if there and not set(there).intersection(self.staying):
                self.reached["nobody took every key"] += 1
                self.member.tell(ev.SetFilters(name, there[0], ["*"]))
        super().heal()

    def random_settings(self, name: str) -> SubscriptionSettings:
        """Settings in which workers may filter."""
        return replace(super().random_settings(name), hands_over=False)

    def _join(self, name: str, worker: str) -> None:
        sub = self.member.sub(name)
        patterns = self.resizes.sample(PATTERNS, self.resizes.randint(1, 2))
        first = sub.table.filtered is None and "*" not in patterns
        self.reached["the first to filter came while slots drain"] += bool(
            first and sub.draining.count
        )
        self.reached["the first to filter came while records run"] += bool(first and sub.leased)
        self.member.tell(ev.Join(name, worker, patterns))
        self.reached["joined with filters"] += 1

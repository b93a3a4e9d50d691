"""Members that receive, settle, fail, dawdle and leave as they like, against an oracle.

Partitions come and go meanwhile, mostly while members hold records of theirs.

The pool and its cells are the real ones; only the threads are missing, so a seed fixes everything.
tests/support/seeds.py has fewer run, or more.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.contract.slices import Slice
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.executors.mailbox import Mailbox
from kafka_keyshared.executors.pull.pool import PullPool
from kafka_keyshared.executors.pull.pull_inflight import Cell
from kafka_keyshared.model import Coordinates, TopicPartition
from tests.property.adversaries.oracle import covered_by
from tests.support.core_harness import Harness
from tests.support.records import P0, P1, failure, record
from tests.support.seeds import enough, patience, seeds

SEEDS = seeds(60)
STEPS = 250
MEMBERS = 3
KEYS = 7

pytestmark = pytest.mark.timeout(patience(400))


class World:
    """A dispatcher over the real pull pool, what members hold, and what has been settled."""

    def __init__(self, seed: int, *, split: bool) -> None:
        self.chance = random.Random(seed)
        settings = SubscriptionSettings(
            workers=tuple(f"worker-{index}" for index in range(MEMBERS)),
            retry=RetryPolicy(attempts=1_000, backoff=0.2, jitter=0.0),
            prefetch_records=6,
            one_in_flight_per_key=not split,
            individually=True,
        )
        self.split = split
        self.harness = Harness(settings)
        self.mailbox: Mailbox[Any] = Mailbox()
        self.pool = PullPool(self.mailbox, Clock(lambda: self.harness.now), ascending=split)
        for name in settings.workers:
            self.pool.join(name)
        self.harness.pool = self.pool  # type: ignore[assignment]
        self.harness.serve = self.serve  # type: ignore[method-assign]
        self.written = {P0: 0, P1: 0}
        self.fetched = {P0: 0, P1: 0}
        self.metadata = {P0: "", P1: ""}
        self.away: list[TopicPartition] = []
        self.keys: dict[Coordinates, bytes | None] = {}
        # Lane -> what each member holds of it, in the order of its receipt.
        self.held: dict[int, list[Slice]] = {index: [] for index in range(MEMBERS)}
        self.settled: set[Coordinates] = set()
        self.gone: set[int] = set()
        self.position = {P0: 0, P1: 0}
        self.harness.assign(P0, P1)

    # --- what happens ---

    def fetch(self) -> None:
        here = [each for each in (P0, P1) if each not in self.away]
        records = []
        for _ in range(self.chance.randint(1, 12) if here else 0):
            at = self.chance.choice(here)
            if self.fetched[at] == self.written[at]:
                # A key is of one partition, as it is in a topic.
                key = b"%d-%d" % (at.partition, self.chance.randrange(KEYS))
                self.keys[at, self.written[at]] = None if self.chance.random() < 0.2 else key
                self.written[at] += 1
            records.append(record(self.fetched[at], self.keys[at, self.fetched[at]], at))
            self.fetched[at] += 1
        self.harness.fetch(*records, ends={each: self.fetched[each] for each in here})

    def fetch_rest(self) -> None:
        """Fetch what was written and is to be read again."""
        records = [
            record(offset, self.keys[at, offset], at)
            for at, start in self.fetched.items()
            for offset in range(start, self.written[at])
        ]
        self.fetched.update(self.written)
        self.harness.fetch(*records, ends=self.written)

    def receive(self) -> None:
        index = self.chance.randrange(MEMBERS)
        for slice_ in self.cell(index).take(self.chance.randint(1, 4), 0):
            self.received(index, slice_)

    def received(self, index: int, slice_: Slice) -> None:
        self.check_receipt(index, slice_)
        self.held[index].append(slice_)

    def settle(self) -> None:
        index = self.chance.randrange(MEMBERS)
        chosen = [each for each in self.held[index] if self.chance.random() < 0.5]
        if self.split:
            # As a loop does: up to some record of a partition.
            chosen = self.up_to_one_of(index)
        for slice_ in self.end(index, chosen):
            at = coordinates_of(slice_)
            assert at not in self.settled, f"{at} settled twice"
            self.settled.add(at)

    def up_to_one_of(self, index: int) -> list[Slice]:
        if not self.held[index]:
            return []
        partition, offset = coordinates_of(self.chance.choice(self.held[index]))
        return [
            each
            for each in self.held[index]
            if coordinates_of(each)[0] == partition and coordinates_of(each)[1] <= offset
        ]

    def end(self, index: int, shares: list[Slice]) -> list[Slice]:
        """Settle these; return those whose lease was not over."""
        late = self.cell(index).settle(shares)
        for each in shares:
            self.held[index].remove(each)
        return [each for each in shares if each not in late]

    def fail(self) -> None:
        index = self.chance.randrange(MEMBERS)
        if self.held[index] and not self.split:
            slice_ = self.held[index].pop(self.chance.randrange(len(self.held[index])))
            self.cell(index).fail(slice_, failure())

    def expire(self) -> None:
        """Some member has had everything for too long."""
        index = self.chance.randrange(MEMBERS)
        cell = self.cell(index)
        for slice_ in cell.end_leases([each.id for each in cell.held()]):
            self.held[index].remove(slice_)

    def leave(self) -> None:
        index = self.chance.randrange(MEMBERS)
        if len(self.gone) < MEMBERS - 1 and self.chance.random() < 0.05:
            self.cell(index).leave(broken=self.chance.random() < 0.5)
            self.held[index].clear()
            self.gone.add(index)

    def rebalance(self) -> None:
        """Some partition goes, though members may still hold records of it; or all come back."""
        if self.away:
            for each in self.away:
                self.fetched[each] = self.position[each]
                self.harness.assign(
                    each,
                    position=self.position[each],
                    metadata=self.metadata[each],
                    log=(0, self.written[each]),
                )
            self.away.clear()
            return
        self.away = self.chance.sample([P0, P1], self.chance.randint(1, 2))
        self.harness.tell(ev.Revoking(self.away))
        for _ in range(self.chance.randint(0, 3)):
            self.settle()
        if clean := self.chance.random() < 0.7:
            self.commit(self.away)
        self.harness.tell(ev.Forget(self.away))
        for each in self.away:
            mine = {at for at in self.settled if at[0] == each}
            entry = cmd.CommitEntry(self.position[each], self.metadata[each])
            known = covered_by(entry, ["default"], range(self.written[each]))["default"]
            assert not clean or known == {offset for _, offset in mine}
            # Lost, what was settled since the last commit runs again.
            self.settled -= {at for at in mine if at[1] not in known}

    def beat(self) -> None:
        self.pool.beat()
        self.harness.now += 0.5
        self.harness.tell(
            ev.Tick(self.pool.progress(), self.pool.dead(), None, self.pool.departed())
        )

    def deliver(self) -> None:
        self.take_mail()
        self.harness.deliver(self.chance.choice([1, 3, None]))

    def take_mail(self) -> None:
        while not self.mailbox.empty():
            self.harness.mailbox.append(self.mailbox.get_nowait())

    def serve(self) -> None:
        self.take_mail()
        self.harness.deliver()

    def commit(self, partitions: list[TopicPartition] | None = None) -> None:
        self.harness.actor.commit(partitions, final=partitions is not None)
        for commit in self.harness.commits:
            for partition, entry in commit.entries.items():
                for offset in range(self.position[partition], entry.position):
                    assert (partition, offset) in self.settled, f"{partition}@{offset} committed"
                assert entry.position >= self.position[partition], "a position fell"
                self.position[partition] = entry.position
                self.metadata[partition] = entry.metadata
            self.harness.answer(commit)
        self.harness.commits.clear()

    # --- what must hold ---

    def check_receipt(self, index: int, slice_: Slice) -> None:
        """Nothing ahead of it in its lane is unsettled, except what this very member holds."""
        partition, offset = at = coordinates_of(slice_)
        assert at not in self.settled, f"{at} was received after it was settled"
        key = self.keys[at]
        mine = {coordinates_of(each) for each in self.holding(index)} if self.split else set()
        later = [each for each in mine if each[0] == partition and each[1] >= offset]
        assert not later, f"{at} was received while its member holds {later}"
        if key is None:
            return
        for earlier in range(offset):
            if self.keys[partition, earlier] == key:
                ahead = (partition, earlier)
                assert ahead in self.settled or ahead in mine, f"{at} overtook {ahead}"
        for other in self.held:
            same = [each for each in self.holding(other) if self.keys[coordinates_of(each)] == key]
            assert other == index or not same, f"{key!r} is at two members"

    def holding(self, index: int) -> list[Slice]:
        """Return what a member has received and may still settle."""
        leased = set(self.cell(index).held())
        return [each for each in self.held[index] if each in leased]

    def cell(self, index: int) -> Cell:
        return self.pool.cells["default", index]

    def drain(self) -> None:
        """Everything that was written settles in the end."""
        while self.away:
            self.rebalance()
        for _ in range(3_000):
            self.fetch_rest()
            for index in range(MEMBERS):
                for slice_ in self.cell(index).take(100, 0):
                    self.received(index, slice_)
                for slice_ in self.end(index, list(self.held[index])):
                    self.settled.add(coordinates_of(slice_))
            self.deliver()
            self.beat()
            self.commit()
            if self.position == self.written:
                return
        raise AssertionError(f"stuck at {self.position} of {self.written}")


def coordinates_of(slice_: Slice) -> Coordinates:
    message = slice_.records[0]
    return TopicPartition(message.topic(), message.partition()), message.offset()


@pytest.mark.parametrize("split", [False, True], ids=["pull", "split"])
def test_whatever_members_do_keys_stay_in_order_and_nothing_is_lost(split: bool) -> None:
    happened: dict[str, int] = defaultdict(int)
    for seed in SEEDS:
        world = World(seed, split=split)
        acts: list[Callable[[], None]] = [
            *[world.receive] * 6,
            *[world.settle] * 4,
            *[world.deliver] * 6,
            *[world.fetch] * 2,
            *[world.beat] * 2,
            world.fail,
            world.expire,
            world.leave,
            world.commit,
            world.rebalance,
        ]
        try:
            for _ in range(STEPS):
                act = world.chance.choice(acts)
                act()
                happened[act.__name__] += 1
            world.drain()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        happened["left"] += len(world.gone)
    assert happened["left"] > 10 or not enough(), "members do leave"

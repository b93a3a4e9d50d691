"""Draining against a naive oracle, which knows every lease and asks the ring for every owner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.routing.ring import ROUTING_VNODES, VnodeRing
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.hashing import slot_of
from kafka_keyshared.lab.simulator.handlers import Ending
from kafka_keyshared.model import Record
from tests.support.core_harness import Harness
from tests.support.records import ERROR, FakeRecord, record
from tests.support.seeds import examples

NAMES = ("a", "b", "c", "d")
KEYS = [b"%d" % number for number in range(12)]

pytestmark = pytest.mark.timeout(300)


class Draining(RuleBasedStateMachine):
    """Workers come and go, records come, start, end and fail, in any order.

    ``hands`` is the oracle's: which worker has which records, from what was handed over to it and
    has ended, failed or come back.
    """

    @initialize(interval=st.sampled_from([0.0, 0.3]), one_lease=st.booleans())
    def begin(self, interval: float, one_lease: bool) -> None:
        self.harness = Harness(
            SubscriptionSettings(
                workers=NAMES[:2],
                prefetch_records=6,
                unblocking_interval=interval,
                one_in_flight_per_key=one_lease,
            )
        )
        self.harness.assign()
        self.names: tuple[str, ...] = NAMES[:2]
        self.offset = 0
        self.started: list[FakeRecord] = []
        self.done: set[int] = set()
        self.running: dict[bytes, int] = {}
        self.harness.pool.on_start = self._started
        self.harness.pool.on_end = self._ended
        self.late = False
        self.harness.pool.answers_later = lambda: self.late
        self.harness.pool.hesitates = lambda: False

    def _started(self, _sub: str, worker: int, item: Record) -> None:
        assert isinstance(item, FakeRecord)
        key, offset = item.key(), item.offset()
        assert key not in self.running, f"{key!r} runs twice"
        ahead = [each for each in range(offset) if KEYS[each % 12] == key and each not in self.done]
        assert not ahead, f"{item} has started before {ahead}"
        self.running[key] = worker

    def _ended(self, _sub: str, _worker: int, item: Record, verdict: Ending) -> None:
        del self.running[item.key()]
        if verdict is None:
            self.done.add(item.offset())

    # --- what happens ---

    @rule(count=st.integers(1, 12))
    def fetch(self, count: int) -> None:
        new = [record(at, KEYS[at % 12]) for at in range(self.offset, self.offset + count)]
        self.offset += count
        self.harness.fetch(*new)

    @rule(names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    def resize(self, names: list[str]) -> None:
        self.names = tuple(names)
        self.harness.tell(ev.Resize("default", names))

    @rule(at=st.integers(0, 5), times=st.integers(1, 6))
    def work(self, at: int, times: int) -> None:
        workers = [each for each in self.harness.pool.workers.values() if each.busy]
        for _ in range(times if workers else 0):
            worker = workers[at % len(workers)]
            if worker.running is not None:
                worker.finish()
            else:
                worker.step()

    @rule(at=st.integers(0, 5))
    def fail(self, at: int) -> None:
        running = [each for each in self.harness.pool.workers.values() if each.running is not None]
        if running:
            running[at % len(running)].finish(ERROR)

    @rule()
    def deliver(self) -> None:
        self.harness.deliver()

    @rule()
    def commit(self) -> None:
        for commit in self.harness.commit():
            self.harness.answer(commit)

    @rule(seconds=st.sampled_from([0.05, 0.4, 40.0]))
    def later(self, seconds: float) -> None:
        self.harness.later(seconds)

    @rule(late=st.booleans())
    def answers(self, late: bool) -> None:
        self.late = late

    # --- what holds ---

    @invariant()
    def no_slot_is_at_two_workers_and_each_count_is_that_of_the_leases_there_are(self) -> None:
        if not hasattr(self, "harness"):
            return
        sub = self.harness.sub()
        present = {each.name: each.id for each in sub.workers.values() if each.present}
        assert set(present) == set(self.names)
        at: dict[int, int] = {}
        pending: Counter[int] = Counter()
        for worker in sub.workers.values():
            for leased in worker.slices.values():
                for index in leased.indices():
                    if index in leased.let_go:
                        continue
                    slot = slot_of(leased.slice.records[index].key())
                    assert at.setdefault(slot, worker.id) == worker.id
                    pending[slot] += self.owner(slot, present) != worker.id
        pending = +pending
        assert {slot: sub.draining.pending(slot) for slot in pending} == dict(pending)
        assert sub.draining.count == len(pending)
        for each in sub.workers.values():
            for waiting in each.row.waiting():
                assert slot_of(waiting.key()) not in pending

    def owner(self, slot: int, present: Mapping[str, int]) -> int:
        """Whose the slot is: a ring goes by the names alone, in whatever order they are given."""
        owner = VnodeRing(sorted(self.names), ROUTING_VNODES).owner(slot)
        assert isinstance(owner, str)
        return present[owner]

    def teardown(self) -> None:
        """Whatever has happened, all of it can run, and does."""
        if not hasattr(self, "harness"):
            return
        self.late = False
        for _ in range(400):
            for worker in self.harness.pool.workers.values():
                while worker.busy:
                    if worker.running is not None:
                        worker.finish()
                    worker.step()
            self.harness.deliver()
            self.harness.later(40.0)
            if len(self.done) == self.offset:
                break
        assert self.done == set(range(self.offset))
        self.harness.tell(ev.LeaseDue())
        sub = self.harness.sub()
        assert (sub.draining.count, sub.draining.empty(), sub.draining.counting) == (0, True, False)
        assert len(sub.workers) == len(self.names)


Draining.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None
)
TestDraining = Draining.TestCase

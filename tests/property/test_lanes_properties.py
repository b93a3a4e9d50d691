"""Leases and lanes of a whole core beside a list for each key."""

from __future__ import annotations

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.lab.simulator.stepped import SteppedWorker
from tests.support.core_harness import Harness
from tests.support.records import failure, record
from tests.support.seeds import examples

STEPS = settings(
    derandomize=True, deadline=None, max_examples=examples(25), stateful_step_count=100
)

KEYS = (b"a", b"b", b"c", b"d", b"e", b"f")
PICKS = st.integers(0, 11)
WHAT = (
    *["start"] * 6,
    *["end"] * 5,
    *["fail"] * 2,
    *["hear"] * 5,
    *["fetch"] * 3,
    *["take back"] * 2,
    *("wait", "wait", "beat", "join", "commit", "all"),
)


class Lanes(RuleBasedStateMachine):
    """Records of a few keys are leased, start, end, fail, are taken back, and move to who joins.

    The oracle has the offsets of each key that have not settled, in order, and what runs.
    """

    member: Harness

    def __init__(self) -> None:
        super().__init__()
        self.end = 0
        self.lanes: dict[bytes, deque[int]] = {key: deque() for key in KEYS}
        self.running: dict[bytes, int] = {}
        self.joined = 0
        # What each worker has done last: that it is done, it says when it takes the next one.
        self.last: dict[int, int] = {}

    @initialize(workers=st.integers(1, 3), one_lease=st.booleans(), leases=st.sampled_from([2, 6]))
    def begin(self, workers: int, one_lease: bool, leases: int) -> None:
        self.member = Harness(
            SubscriptionSettings(
                workers=worker_names(workers),
                retry=RetryPolicy(attempts=1_000, backoff=0.1, jitter=0.0),
                one_in_flight_per_key=one_lease,
                prefetch_records=leases,
            )
        )
        self.member.assign()
        self.fetch([KEYS[at % 4] for at in range(12)])

    @rule(what=st.sampled_from(WHAT), pick=PICKS, other=PICKS)
    def act(self, what: str, pick: int, other: int) -> None:
        """One rule with weights: of many rules each run would leave out some."""
        if what == "fetch":
            self.fetch([KEYS[(pick + at * other) % len(KEYS)] for at in range(1 + pick % 5)])
        elif what == "start":
            self.start(pick)
        elif what in ("end", "fail"):
            self.end_one(pick, what == "fail")
            if other % 2:
                self.start(pick)
        elif what == "hear":
            self.member.deliver(None if other % 2 else 1)
        elif what == "take back":
            self.take_back(pick, bool(other % 2))
        elif what == "wait":
            self.member.later((0.05, 0.5, 40.0)[pick % 3])
        elif what == "beat":
            self.member.beat()
        elif what == "join" and self.joined < 3:
            self.join()
        elif what == "commit":
            self.commit()
        elif what == "all" and self.end > 40:
            self.work_all_of_it()

    def teardown(self) -> None:
        if hasattr(self, "member"):
            self.member.discard()

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=8))
    def fetch(self, keys: list[bytes]) -> None:
        records = [record(self.end + at, key) for at, key in enumerate(keys)]
        for each in records:
            self.lanes[each.key()].append(each.offset())
        self.end += len(keys)
        self.member.fetch(*records)

    def worker(self, pick: int, *, runs: bool) -> SteppedWorker | None:
        """One of those that run something, or that might."""
        workers = [each for _, each in sorted(self.member.pool.workers.items())]
        able = [each for each in workers if (each.running is not None) is runs]
        able = able if runs else [each for each in able if each.busy]
        return able[pick % len(able)] if able else None

    def start(self, pick: int) -> None:
        worker = self.worker(pick, runs=False)
        if worker is None or (started := worker.start()) is None:
            return
        key, offset = started.key(), started.offset()
        assert key not in self.running, "two of a key at once"
        assert self.lanes[key][0] == offset, "not before the one ahead of it has settled"
        self.running[key] = offset

    def end_one(self, pick: int, fails: bool) -> None:
        worker = self.worker(pick, runs=True)
        if worker is None or worker.running is None:
            return
        key = worker.running.key()
        del self.running[key]
        if not fails:
            self.last[worker.index] = self.lanes[key].popleft()
        worker.finish(failure() if fails else None)

    def take_back(self, pick: int, later: bool) -> None:
        """What has not started comes back, at once or when the worker has answered."""
        self.member.pool.answers_later = lambda: later
        workers = sorted(self.member.sub().workers)
        self.member.recall(workers[pick % len(workers)])

    def join(self) -> None:
        self.joined += 1
        self.member.tell(ev.Join("default", f"joined-{self.joined}"))

    def commit(self) -> None:
        position, runs = self.member.committed()
        covered = {offset for first, end in runs for offset in range(first, end)}
        self.check_held(set(range(position, self.end)) - covered)
        assert position not in covered

    def check_held(self, held: set[int]) -> None:
        unsettled = {offset for lane in self.lanes.values() for offset in lane}
        assert unsettled <= held <= unsettled | set(self.last.values())

    def work_all_of_it(self) -> None:
        """Whatever has happened, nothing is stuck: with time and work it all settles."""
        for _ in range(200):
            for _, worker in sorted(self.member.pool.workers.items()):
                if worker.running is None and (started := worker.start()) is not None:
                    assert self.lanes[started.key()][0] == started.offset()
                    self.running[started.key()] = started.offset()
                if worker.running is not None:
                    key = worker.running.key()
                    del self.running[key]
                    self.lanes[key].popleft()
                    worker.finish()
            self.member.deliver()
            self.member.later(0.5)
            busy = any(worker.busy for worker in self.member.pool.workers.values())
            if not (busy or self.member.mailbox or any(self.lanes.values())):
                break
        assert not any(self.lanes.values()), self.lanes
        assert self.member.committed() == (self.end, [])

    @invariant()
    def what_is_held_is_what_has_not_settled(self) -> None:
        if not hasattr(self, "member") or self.member.mailbox:
            return  # what is in the mail the core has not heard of
        sub = self.member.sub()
        self.check_held({e.offset() for _, e in sub.unsettled.records(self.member.pool.progress())})

    @invariant()
    def the_leases_of_a_key_are_at_one_worker(self) -> None:
        if not hasattr(self, "member"):
            return
        at: dict[bytes, int] = {}
        for worker in self.member.sub().workers.values():
            for leased in worker.slices.values():
                for each in leased.records():
                    assert at.setdefault(each.key(), worker.id) == worker.id, each


TestLanes = Lanes.TestCase
TestLanes.settings = STEPS

"""What the core relies on in every pool, and that the tests' own pool behaves like the real one."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Any, Protocol

import pytest

from kafka_keyshared.audit.judge import judge
from kafka_keyshared.audit.ledger import MemoryLedger
from kafka_keyshared.audit.wrap import audited
from kafka_keyshared.client.port import CommittedOffset
from kafka_keyshared.clock import Clock
from kafka_keyshared.core.commands import Commit, Fence, Recall, StartWorker
from kafka_keyshared.core.dispatcher import Dispatcher
from kafka_keyshared.core.events import (
    CommitAnswered,
    CommitResult,
    Ended,
    Failed,
    FencePassed,
    Recalled,
    Report,
    SetAside,
)
from kafka_keyshared.core.lanes import lane_of
from kafka_keyshared.core.retry_policy import RetryPolicy
from kafka_keyshared.core.settings import SubscriptionSettings
from kafka_keyshared.core.slices import Slice
from kafka_keyshared.owner.instance import Instance
from kafka_keyshared.owner.ports import Ports
from kafka_keyshared.pools.port import Pool
from kafka_keyshared.pools.threads import ThreadPool, WorkerSpec
from tests.support.pool import FakePool
from tests.support.ports import FakeClient
from tests.support.records import P0, P1, FakeRecord, failure, record
from tests.support.slices import slice_of

WAIT = 30.0
Plan = Callable[[FakeRecord], BaseException | None]


class Driver(Protocol):
    """A pool of one worker whose handler does what a plan says, record by record."""

    pool: Any

    def reports(self, count: int) -> list[Report]:
        """Let it work until it has posted that many reports."""

    def close(self) -> None:
        """End it."""


class Threads:
    def __init__(self, plan: Plan) -> None:
        def handler(item: Any) -> None:
            error = plan(item)
            if error is not None:
                raise error

        self._mailbox: SimpleQueue[Report] = SimpleQueue()
        spec = WorkerSpec("default", 0, "worker-0", lambda: (handler, None))
        self.pool = ThreadPool([spec], self._mailbox, Clock())
        self.pool.start()

    def reports(self, count: int) -> list[Report]:
        return [self._mailbox.get(timeout=WAIT) for _ in range(count)]

    def close(self) -> None:
        assert self.pool.stop(WAIT) == []
        with pytest.raises(Empty):
            self._mailbox.get_nowait()


class Fake:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._posted: list[Report | Recalled] = []
        self.pool = FakePool(Dispatcher([SubscriptionSettings()]), self._posted.append)

    def reports(self, count: int) -> list[Report]:
        for worker in self.pool.workers.values():
            while worker.busy:
                item: Any = worker.start()
                if item is not None:
                    worker.finish(None if self._plan(item) is None else failure())
        found, self._posted[:] = self._posted[:count], self._posted[count:]
        return [each for each in found if not isinstance(each, Recalled)]

    def close(self) -> None:
        assert self._posted == []


@pytest.fixture(params=[Threads, Fake])
def driver(request: pytest.FixtureRequest) -> Iterator[Callable[[Plan], Driver]]:
    made: list[Driver] = []

    def make(plan: Plan) -> Driver:
        made.append(request.param(plan))
        return made[-1]

    yield make
    for each in made:
        each.close()


MakeDriver = Callable[[Plan], Driver]


def shown(reports: list[Report], *shares: Slice) -> list[tuple[str, int]]:
    """Each report and the offset that it names, -1 where it names none."""
    records = {slice_.id: slice_.records for slice_ in shares}
    return [
        (
            type(each).__name__,
            records[each.slice][each.index].offset() if isinstance(each, Failed | SetAside) else -1,
        )
        for each in reports
    ]


def test_slices_are_run_in_order_and_each_ends_once(driver: MakeDriver) -> None:
    ran: list[int] = []
    made = driver(lambda item: ran.append(item.offset()))
    slices = [slice_of(record(1), record(2, None)), slice_of(), slice_of(record(3, "other"))]
    for each in slices:
        made.pool.submit(each)
    reports = made.reports(3)
    assert [each.slice for each in reports if isinstance(each, Ended)] == [
        each.id for each in slices
    ]
    assert ran == [1, 2, 3]
    assert made.pool.progress() == {}


def test_a_failed_lane_is_set_aside_in_order_until_its_fence(driver: MakeDriver) -> None:
    ran: list[int] = []

    def plan(item: FakeRecord) -> BaseException | None:
        ran.append(item.offset())
        return ValueError() if item.offset() in (2, 3) else None

    made = driver(plan)
    slices = [
        slice_of(record(1), record(2), record(3, "b"), record(4), record(5, "c")),
        slice_of(record(6, "b"), record(7)),
        slice_of(record(8), record(9, "b")),
        slice_of(record(10, "b")),
    ]
    made.pool.submit(slices[0])
    made.pool.submit(slices[1])
    made.pool.fence(Fence("default", 0, (lane_of(record(2)),)))
    made.pool.submit(slices[2])
    made.pool.fence(Fence("default", 0, (lane_of(record(3, "b")),)))
    made.pool.submit(slices[3])
    reports = made.reports(12)
    assert shown(reports, *slices) == [
        ("Failed", 2),
        ("Failed", 3),
        ("SetAside", 4),
        ("Ended", -1),
        ("SetAside", 6),
        ("SetAside", 7),
        ("Ended", -1),
        ("FencePassed", -1),
        ("SetAside", 9),
        ("Ended", -1),
        ("FencePassed", -1),
        ("Ended", -1),
    ]
    assert isinstance(reports[7], FencePassed)
    assert ran == [1, 2, 3, 5, 8, 10]


def test_records_without_keys_never_set_each_other_aside(driver: MakeDriver) -> None:
    made = driver(lambda item: ValueError())
    slice_ = slice_of(record(1, None), record(2, None))
    made.pool.submit(slice_)
    assert shown(made.reports(3), slice_) == [("Failed", 1), ("Failed", 2), ("Ended", -1)]


def test_the_failure_is_posted_before_the_next_record_starts(driver: MakeDriver) -> None:
    """Whoever reads progress first and the mailbox after it knows of every failure before it."""
    order: list[str] = []

    def plan(item: FakeRecord) -> BaseException | None:
        order.append(f"start {item.offset()}")
        return ValueError() if item.offset() == 1 else None

    made = driver(plan)

    class Noted:
        """Notes what is posted on its way to where it went before."""

        def __init__(self, post: Callable[[Any], None]) -> None:
            self._post = post

        def put(self, item: Report | Recalled) -> None:
            order.append(type(item).__name__)
            self._post(item)

    pool = made.pool
    if isinstance(pool, FakePool):
        pool.post = Noted(pool.post).put
    else:
        pool._mailbox = Noted(pool._mailbox.put)
    made.pool.submit(slice_of(record(1, "a"), record(2, "b")))
    made.reports(2)
    assert order == ["start 1", "Failed", "start 2", "Ended"]


def test_a_recall_takes_back_all_that_has_not_started_of_the_slices_that_it_names(
    driver: MakeDriver,
) -> None:
    ran: list[int] = []
    answers: list[Recalled] = []
    slices = [
        slice_of(record(1, "a"), record(2, "b"), record(3, "c")),
        slice_of(record(4, "d"), record(5, "e")),
    ]

    def plan(item: FakeRecord) -> None:
        ran.append(item.offset())
        if item.offset() == 1:  # while the worker is busy
            answers.append(made.pool.recall(Recall("default", 0, {slices[0].id: [2]})))

    made = driver(plan)
    for each in slices:
        made.pool.submit(each)
    reports = made.reports(2)
    (answer,) = answers
    assert (answer.subscription, answer.worker) == ("default", 0)
    assert [(id_, list(back)) for id_, back in answer.slices] == [(slices[0].id, [1, 2])]
    assert ran == [1, 4, 5], "what came back never runs, and what was not named does"
    assert [each.slice for each in reports if isinstance(each, Ended)] == [s.id for s in slices]


def test_a_worker_that_is_added_runs_what_it_is_given(driver: MakeDriver) -> None:
    ran: list[int] = []
    made = driver(lambda item: ran.append(item.offset()))
    made.pool.add(StartWorker("default", 7, "worker-7"))
    slice_ = slice_of(record(1), worker=7)
    made.pool.submit(slice_)
    (ended,) = made.reports(1)
    assert isinstance(ended, Ended)
    assert (ended.slice, ran) == (slice_.id, [1])
    assert made.pool.dead() == []


# --- a pool under the real loop ---

RECORDS = 3_000
KEYS = 40


class InstanceOf:
    """The real instance over a pool with a real clock, and a fake client."""

    def __init__(
        self,
        make_pool: Callable[[Any, SimpleQueue[Any]], Pool],
        mailbox: SimpleQueue[Any] | None = None,
    ) -> None:
        self._chance = random.Random(4)
        self._lock = threading.Lock()
        self.ledger = MemoryLedger("consumer")
        self.written = MemoryLedger("producer")
        retry = RetryPolicy(attempts=50, backoff=0.001, factor=1.0)
        settings = SubscriptionSettings(
            workers=tuple(f"worker-{index}" for index in range(4)),
            retry=retry,
            window_records=400,
        )
        core = Dispatcher([settings])
        mailbox = mailbox or SimpleQueue()
        self.client = FakeClient(time.monotonic, cooperative=True)
        self.client.answer = self._accept
        self.pool = make_pool(audited(self._handler, self.ledger), mailbox)
        ports = Ports(self.client, self.pool, mailbox, Clock())
        self.instance = Instance(core, ports, revoke_deadline=10.0)
        self.instance.rebalancer.observer = self._observe
        self.instance.start()
        self.instance.join()

    def _observe(self, what: str, partitions: Any) -> None:
        tell = {"assigned": self.ledger.assigned, "revoked": self.ledger.revoked}
        for partition in partitions:
            tell[what](*partition)

    def _handler(self, item: Any) -> None:
        with self._lock:
            roll = self._chance.random()
        if roll < 0.03:
            raise ValueError
        if roll < 0.05:
            threading.Event().wait(0.002)

    def _accept(self, commit: Commit) -> CommitAnswered:
        for partition, entry in commit.entries.items():
            number = self.ledger.commit_sent(*partition, entry.position)
            self.client.stored[partition] = CommittedOffset(entry.position, entry.metadata)
            self.ledger.commit_answered(number, accepted=True)
        return CommitAnswered(commit, CommitResult.ACCEPTED)

    def fill(self) -> None:
        for number in range(RECORDS):
            partition = (P0, P1)[number % 2]
            key = None if number % 11 == 0 else b"key-%d" % (number % KEYS)
            item = FakeRecord(partition, number // 2, key)
            self.client.logs.setdefault(partition, []).append(item)
            self.written.produced(*partition, number // 2, key)

    def settled(self) -> int:
        # What ended just before its partition went, in a slice that was not reported yet, counts as
        # stale; every revoke here is in time, so it was settled and does not run again.
        counts = self.instance.core.subscriptions["default"].counts
        return counts.ok + counts.dropped + counts.stale


def thread_pool(handler: Any, mailbox: SimpleQueue[Any]) -> Pool:
    specs = [
        WorkerSpec("default", index, f"worker-{index}", lambda: (handler, None))
        for index in range(4)
    ]
    return ThreadPool(specs, mailbox, Clock())


@pytest.mark.parametrize("make_pool", [thread_pool])
def test_under_failures_and_revokes_each_record_settles_once_in_order(
    make_pool: Callable[[Any, SimpleQueue[Any]], Pool],
) -> None:
    """Every revoke here is in time, so nothing at all may run twice."""
    made = InstanceOf(make_pool)
    made.fill()
    made.client.callbacks["assign"]([P0, P1])
    deadline = time.monotonic() + 60
    moves = 0
    while made.settled() < RECORDS:
        assert time.monotonic() < deadline, f"{made.settled()} of {RECORDS} settled"
        made.instance.step()
        made.instance.core.check()
        if made.settled() > (moves + 1) * RECORDS // 12 and moves < 8:
            moves += 1
            gone = [P0] if moves % 2 else [P0, P1]
            made.client.callbacks["revoke"](gone)
            made.client.callbacks["assign"](gone)
    report = made.instance.stop(10.0, lambda: False)
    assert made.pool.stop(WAIT) == []
    assert report.clean
    assert moves == 8
    verdict = judge([made.written, made.ledger])
    assert verdict.totals.produced == RECORDS
    assert verdict.totals.failed_attempts > 20
    assert verdict.clean, "\n".join(verdict.lines())
    assert [made.client.stored[each].position for each in (P0, P1)] == [RECORDS // 2] * 2


class Deadly(SimpleQueue):  # type: ignore[type-arg]
    """A mailbox that now and then ends the worker's thread instead of taking a failure."""

    deaths = 0
    seen = 0

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        by_worker = threading.current_thread().name.startswith("keyshared-")
        if by_worker and isinstance(item, Failed):
            self.seen += 1
            if self.seen % 25 == 0 and self.deaths < 3:
                self.deaths += 1
                raise SystemExit
        super().put(item, block, timeout)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_threads_that_die_cost_an_attempt_and_nothing_else() -> None:
    mailbox = Deadly()
    made = InstanceOf(thread_pool, mailbox)
    made.fill()
    made.client.callbacks["assign"]([P0, P1])
    deadline = time.monotonic() + 60
    while made.settled() < RECORDS:
        assert time.monotonic() < deadline, f"{made.settled()} of {RECORDS} settled"
        made.instance.step()
        made.instance.core.check()
    report = made.instance.stop(10.0, lambda: False)
    assert made.pool.stop(WAIT) == []
    assert report.clean
    assert mailbox.deaths == 3
    verdict = judge([made.written, made.ledger])
    assert verdict.clean, "\n".join(verdict.lines())

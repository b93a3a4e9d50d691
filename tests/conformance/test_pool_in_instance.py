"""A pool under the real loop: records settle once and in order, whatever fails, dies and goes."""

from __future__ import annotations

import dataclasses
import random
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeAlias

import pytest

from kafka_keyshared.client.port import CommittedOffset
from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.commands import Commit
from kafka_keyshared.core.contract.events import CommitAnswer, CommitResult, Failed
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.executors.mailbox import Mailbox
from kafka_keyshared.observability.audit.judge import RuleFinding, judge
from kafka_keyshared.observability.audit.ledger import MemoryLedger
from kafka_keyshared.observability.audit.ledger_wrappers import audited
from kafka_keyshared.runtime.instance import Instance
from kafka_keyshared.runtime.ports import Ports
from tests.conformance.instance_pools import MAKERS
from tests.conformance.pool_sides import Members, Side, Threads
from tests.support.loop_ports import FakeClient
from tests.support.records import P0, P1, FakeRecord

Maker: TypeAlias = Callable[["InstanceOf", Any, Any], Any]

WAIT = 30.0
RECORDS = 3_000
KEYS = 40

FASTER = 50.0
"""How much faster made-up time passes where handlers hang, so that there are enough heartbeats."""

HANGS = 0.2


class InstanceOf:
    """The real instance over a pool with a real clock, and a fake client."""

    def __init__(
        self,
        make_pool: Maker,
        mailbox: SimpleQueue[Any] | None = None,
        clock: Clock = Clock(),  # noqa: B008 - an immutable value
        ack_timeout: float | None = None,
        by: type[Side] = Threads,
    ) -> None:
        self._hangs = ack_timeout is not None
        self._chance = random.Random(4)
        self._lock = threading.Lock()
        self.ledger = MemoryLedger("consumer")
        self.written = MemoryLedger("producer")
        retry = RetryPolicy(attempts=50, backoff=0.001, factor=1.0)
        settings = SubscriptionSettings(
            workers=tuple(f"worker-{index}" for index in range(4)),
            retry=retry,
            window_records=400,
            ack_timeout=ack_timeout,
            individually=not by.serial,
            one_in_flight_per_key=by is Members,
        )
        core = Dispatcher([settings])
        mailbox = mailbox or Mailbox()
        self.client = FakeClient(clock.monotonic, cooperative=True)
        self.client.answer = self._accept
        self.close: Callable[[], object] = lambda: None
        self.pool = make_pool(self, audited(self._handler, self.ledger), mailbox)
        ports = Ports(self.client, self.pool, mailbox, clock)
        # A deadline that is broken repeats records: on this clock it is long, whoever else works.
        self.instance = Instance(core, ports, revoke_deadline=10.0 * FASTER)
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
        if self._hangs and roll > 0.995:
            threading.Event().wait(HANGS)
            if roll > 0.998:
                raise ValueError

    def _accept(self, commit: Commit) -> CommitAnswer:
        for partition, entry in commit.entries.items():
            number = self.ledger.commit_sent(*partition, entry.position)
            self.client.stored[partition] = CommittedOffset(entry.position, entry.metadata)
            self.ledger.commit_answered(number, accepted=True)
        return CommitAnswer(commit, CommitResult.ACCEPTED)

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
        return counts.ok + counts.dropped + counts.stale_results


SIZES = (6, 2, 5, 3, 4)
"""How many workers there are, one after the other."""


def test_under_failures_revokes_and_resizes_each_record_settles_once_in_order(
    kind: type[Side],
) -> None:
    """Every revoke here is in time, so nothing at all may run twice."""
    made = InstanceOf(MAKERS[kind], by=kind)
    made.fill()
    made.client.callbacks["assign"]([P0, P1])
    deadline = time.monotonic() + 60
    moves = 0
    while made.settled() < RECORDS:
        assert time.monotonic() < deadline, f"{made.settled()} of {RECORDS} settled"
        made.instance.step()
        made.instance.core.check()
        if made.settled() > (moves + 1) * RECORDS // 12 and moves < 8:
            names = tuple(f"worker-{index}" for index in range(SIZES[moves % len(SIZES)]))
            made.instance.loop.tell(ev.Resize("default", names))
            moves += 1
            gone = [P0] if moves % 2 else [P0, P1]
            made.client.callbacks["revoke"](gone)
            made.client.callbacks["assign"](gone)
    report = made.instance.stop(10.0, lambda: False)
    assert made.pool.stop(WAIT) == []
    made.close()
    assert report.clean
    assert moves == 8
    verdict = judge([made.written, made.ledger])
    assert verdict.totals.produced == RECORDS
    assert verdict.totals.failed_attempts > 20
    assert verdict.clean, "\n".join(verdict.lines())
    assert [made.client.stored[each].position for each in (P0, P1)] == [RECORDS // 2] * 2


class Deadly(Mailbox[Any]):
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
def test_threads_that_die_cost_an_attempt_and_nothing_else(kind: type[Side]) -> None:
    mailbox = Deadly()
    made = InstanceOf(MAKERS[kind], mailbox, by=kind)
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


def test_records_that_hang_cost_their_own_lanes_and_settle_once_in_order(kind: type[Side]) -> None:
    """With revokes that are in time meanwhile; and no thread is left over."""
    before = threading.active_count()
    clock = Clock(monotonic=lambda: time.monotonic() * FASTER)
    made = InstanceOf(MAKERS[kind], clock=clock, ack_timeout=1.0, by=kind)
    made.fill()
    made.client.callbacks["assign"]([P0, P1])
    deadline = time.monotonic() + 60
    moves = most = 0
    counts = made.instance.core.subscriptions["default"].counts
    # A call may outlast a revoke: what goes stale then runs again, and only then it is done.
    done = made.settled if kind.serial else lambda: counts.ok
    while done() < RECORDS:
        assert time.monotonic() < deadline, f"{done()} of {RECORDS} settled"
        made.instance.step()
        made.instance.core.check()
        most = max(most, threading.active_count())
        if made.settled() > (moves + 1) * RECORDS // 5 and moves < 3:
            moves += 1
            made.client.callbacks["revoke"]([P0])
            made.client.callbacks["assign"]([P0])
    report = made.instance.stop(10.0 * FASTER, lambda: False)
    assert made.pool.stop(WAIT) == []
    assert report.clean
    assert moves == 3
    assert counts.stuck > 2
    assert most > before + 4, "others have gone on beside them"
    verdict = judge([made.written, made.ledger])
    if not kind.serial:
        # Of a stuck call what stands behind another one of its key runs again, whatever it says.
        verdict = dataclasses.replace(
            verdict, duplicates=RuleFinding(), order_violations=RuleFinding()
        )
    assert verdict.clean, "\n".join(verdict.lines())
    assert threading.active_count() == before


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_worker_that_comes_back_within_six_heartbeats_keeps_its_keys(
    kind: type[Side],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For three heartbeats no thread can be started; then it goes on where it was."""
    mailbox = Deadly()
    mailbox.deaths = 2  # there is one more to come
    clock = Clock(monotonic=lambda: time.monotonic() * FASTER)
    made = InstanceOf(MAKERS[kind], mailbox, clock, by=kind)
    made.fill()
    made.client.callbacks["assign"]([P0, P1])
    sub = made.instance.core.subscriptions["default"]
    owners = list(sub.table.owners)
    start = threading.Thread.start
    refused: list[str] = []

    def seldom(thread: threading.Thread) -> None:
        if thread.name.startswith("keyshared-") and len(refused) < 3:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", seldom)
    deadline = time.monotonic() + 60
    while made.settled() < RECORDS:
        assert time.monotonic() < deadline, f"{made.settled()} of {RECORDS} settled"
        made.instance.step()
        made.instance.core.check()
    monkeypatch.undo()
    report = made.instance.stop(10.0 * FASTER, lambda: False)
    assert made.pool.stop(WAIT) == []
    assert report.clean
    assert mailbox.deaths == 3
    assert len(refused) == 3
    assert len(set(refused)) == 1, "it was the same worker each time"
    assert list(sub.table.owners) == owners, "nobody was evicted"
    assert not sub.gone
    verdict = judge([made.written, made.ledger])
    assert verdict.clean, "\n".join(verdict.lines())

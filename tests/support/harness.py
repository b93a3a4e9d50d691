"""The owner's side without Kafka: it does what the core's commands say, as the loop does."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from kafka_keyshared.core import events as ev
from kafka_keyshared.core.commit import CommitPolicy
from kafka_keyshared.core.dispatcher import Dispatcher
from kafka_keyshared.core.metadata import SET_BUDGET
from kafka_keyshared.core.settings import SubscriptionSettings
from kafka_keyshared.core.subscription import Subscription
from kafka_keyshared.model import Record, TopicPartition
from tests.support.pool import FakePool, FakeWorker, Verdict
from tests.support.records import P0

Mail: TypeAlias = ev.Report | ev.DeadLettered | ev.CommitAnswered


class Harness:
    """A dispatcher, its fake pool, and everything that it asked for. Time stands until moved."""

    def __init__(
        self,
        *subscriptions: SubscriptionSettings,
        commit: CommitPolicy = CommitPolicy(),  # noqa: B008 - an immutable value
        set_budget: int = SET_BUDGET,
    ) -> None:
        self.now = 100.0
        settings = subscriptions or [SubscriptionSettings()]
        self.core = Dispatcher(settings, commit, set_budget=set_budget)
        self.checks = True  # after every event; not where that takes longer than all the rest
        self.mailbox: deque[Mail] = deque()
        self.pool = FakePool(self.core, self.mailbox.append)
        self.publishes: list[ev.Publish] = []
        self.commits: list[ev.Commit] = []
        self.client_events: list[Record] = []
        self.assigned: dict[TopicPartition, int | None] = {}
        self.paused: set[TopicPartition] = set()
        self.notices: list[ev.Notice] = []
        self.halted: list[str] = []
        self.seen: list[ev.Command] = []
        self._telling = 0
        self.progress: Mapping[ev.Slice, int] = {}  # that of the latest commit
        self._acts: dict[type[Any], Callable[[Any], object]] = {
            ev.Lease: lambda command: self.pool.submit(command.slice),
            ev.Fence: lambda c: self.pool.fence(c),  # noqa: PLW0108 - the pool may be another
            ev.Recall: lambda c: self.tell(self.pool.recall(c.subscription, c.worker)),
            ev.Publish: self.publishes.append,
            ev.Commit: self.send,
            ev.ClientEvents: lambda command: self.client_events.extend(command.events),
            ev.AssignAt: self._assign,
            ev.Pause: lambda command: self.paused.update(command.partitions),
            ev.Resume: lambda command: self.paused.difference_update(command.partitions),
            ev.ReplaceWorker: lambda c: self.pool.replace(c.subscription, c.worker),
            ev.AbandonWorker: lambda c: self.pool.abandon(c.subscription, c.worker),
            ev.Notice: self.notices.append,
            ev.Halt: lambda command: self.halted.append(command.reason),
        }

    # --- in and out ---

    def tell(self, event: ev.Event) -> list[ev.Command]:
        """Give the core an event, check every rule, and do what it says."""
        commands = self.core.handle(event, self.now)
        if self.checks:
            self.core.check()
        self.seen += commands
        self._telling += 1
        for command in commands:
            self._acts[type(command)](command)
        self._telling -= 1
        if self._telling:
            return commands  # the answer to a command; those behind it are still to come
        # The loop looks at what the core wants held back when the core commands it, so it must.
        held = self.paused & self.core.partitions.keys()
        assert held == self.core.pressure.paused(), "held back without a command, or let go so"
        return commands

    def _assign(self, command: ev.AssignAt) -> None:
        """Assign as the loop does: the client has kept the pauses of what comes back."""
        self.assigned.update(command.positions)
        self.paused.difference_update(command.positions.keys() - self.core.pressure.paused())

    def send(self, commit: ev.Commit) -> None:
        """Take a commit as the client does."""
        self.commits.append(commit)

    def deliver(self, count: int | None = None) -> None:
        """Deliver the oldest of the mail, all of it unless told."""
        mail = [self.mailbox.popleft() for _ in range(min(len(self.mailbox), count or 1 << 30))]
        reports: list[ev.Report] = []
        for item in mail:
            if isinstance(item, ev.DeadLettered | ev.CommitAnswered):
                self._report(reports)
                reports = []
                self.tell(item)
            else:
                reports.append(item)
        self._report(reports)

    def _report(self, reports: list[ev.Report]) -> None:
        if reports:
            self.tell(ev.Reported(reports))

    # --- what a test says ---

    def assign(
        self,
        *partitions: TopicPartition,
        position: int | None = 0,
        metadata: str | None = None,
        log: tuple[int, int] | None = None,
    ) -> None:
        """Assign partitions (P0 unless told) at a position."""
        low, high = log or (None, None)
        point = ev.StartPoint(position, metadata, low, high)
        self.tell(ev.Assigned(dict.fromkeys(partitions or (P0,), point)))

    def fetch(self, *records: Record, ends: Mapping[TopicPartition, int] | None = None) -> None:
        """Deliver records; each partition's end is behind its last one unless told."""
        found: dict[TopicPartition, int] = {}
        for each in records:
            if each.error() is None:
                found[TopicPartition(each.topic(), each.partition())] = each.offset() + 1
        self.tell(ev.Fetched(records, {**found, **(ends or {})}))

    def worker(self, index: int = 0, sub: str = "default") -> FakeWorker:
        """One worker."""
        return self.pool.workers[sub, index]

    def sub(self, name: str = "default") -> Subscription:
        """The core's state of a subscription."""
        return self.core.subscriptions[name]

    def owner_of(self, record: Record, sub: str = "default") -> FakeWorker:
        """The worker that the record's key belongs to."""
        return self.pool.workers[sub, self.sub(sub).owner(record).index]

    def work(
        self, verdicts: Mapping[int, Sequence[Verdict]] | None = None, rounds: int = 1_000
    ) -> list[int]:
        """Run until nothing more can; return the offsets in the order in which they started.

        ``verdicts`` says for an offset how its attempts end, one after the other; then it is done.
        """
        script = {offset: deque(each) for offset, each in (verdicts or {}).items()}
        started: list[int] = []
        for _ in range(rounds):
            moved = bool(self.mailbox)
            for worker in self.pool.workers.values():
                if (item := worker.start()) is not None:
                    started.append(item.offset())
                    planned = script.get(item.offset())
                    worker.finish(planned.popleft() if planned else None)
                    moved = True
                moved = moved or worker.busy
            if not moved and not self.mailbox:
                return started
            self.deliver()
        raise AssertionError(f"the work never ended; started so far: {started[:50]}")

    def later(self, seconds: float) -> None:
        """Let time pass; delays that are over by then fire, as the loop sees to."""
        self.now += seconds
        due = self.core.next_due()
        if due is not None and due <= self.now:
            self.tell(ev.Flush())

    def beat(self, times: int = 1) -> None:
        """Give the core heartbeats, half a second apart."""
        for _ in range(times):
            self.now += 0.5
            self.tell(ev.Beat(self.pool.progress(), self.pool.dead()))

    def commit(
        self, partitions: Iterable[TopicPartition] | None = None, *, final: bool = False
    ) -> list[ev.Commit]:
        """Commit as the loop does (progress, mailbox, then the event); return what is sent."""
        self.progress = self.pool.progress()
        self.deliver()
        before = len(self.commits)
        wanted = None if partitions is None else list(partitions)
        self.tell(ev.CommitDue(self.progress, wanted, final))
        return self.commits[before:]

    def answer(
        self, commit: ev.Commit, result: ev.CommitResult = ev.CommitResult.ACCEPTED
    ) -> list[ev.Command]:
        """Answer a commit."""
        return self.tell(ev.CommitAnswered(commit, result, "" if not result else "said no"))

    def committed(self) -> tuple[int, list[tuple[int, int]]]:
        """Commit and accept; return position and settled runs of P0 that the core now has."""
        for commit in self.commit():
            self.answer(commit)
        snapshot = self.core.snapshot(self.pool.progress(), self.now)[P0]
        return snapshot.position, list(snapshot.runs.get("default", ()))

    def dead_letter(self, error: str | None = None) -> ev.Publish:
        """Answer the oldest dead letter."""
        publish = self.publishes.pop(0)
        self.tell(ev.DeadLettered(publish, error, "" if error else "orders.dlq-1@7"))
        return publish

    def revoke(self, *partitions: TopicPartition, commit: bool = True) -> list[ev.Commit]:
        """Revoke (or lose, without a commit) partitions, waiting for nothing."""
        self.tell(ev.Revoking(partitions))
        sent: list[ev.Commit] = []
        if commit:
            sent = self.commit(partitions, final=True)
        else:
            self.progress = self.pool.progress()
            self.deliver()
        self.tell(ev.Forget(partitions, not commit, self.progress))
        return sent

    def said(self, part: str) -> bool:
        """Whether a notice says that."""
        return any(part in notice.text for notice in self.notices)

"""The owner's side without Kafka: the core is driven as the loop drives it, step by step."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.slices import Progress
from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.core.failures.detaching import LOOK_EVERY
from kafka_keyshared.core.leasing import recall
from kafka_keyshared.core.offsets.commit import CommitPolicy
from kafka_keyshared.core.offsets.commit_metadata import SET_BUDGET
from kafka_keyshared.core.routing.port import Unowned
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.executors.command_interpreter import Actor, Mail
from kafka_keyshared.executors.notice_text import NoticeLine, line_of
from kafka_keyshared.lab.simulator.handlers import Ending
from kafka_keyshared.lab.simulator.stepped import SteppedPool, SteppedWorker
from kafka_keyshared.model import Record, TopicPartition
from tests.support.records import P0


class Harness:
    """A dispatcher, its fake pool, and everything that it asked for. Time stands until moved."""

    def __init__(
        self,
        *subscriptions: SubscriptionSettings,
        commit: CommitPolicy = CommitPolicy(),  # noqa: B008 - an immutable value
        set_budget: int = SET_BUDGET,
        careful: bool = False,
    ) -> None:
        self.now = 100.0
        settings = subscriptions or [SubscriptionSettings()]
        self.core = Dispatcher(settings, commit, set_budget=set_budget, careful=careful)
        self.checks = True  # after every event; not where that takes longer than all the rest
        self.mailbox: deque[Mail] = deque()
        self._pool = SteppedPool(self.core, self.mailbox.append)
        self.publishes: list[cmd.Publish] = []
        self.commits: list[cmd.Commit] = []
        self.client_events: list[Record] = []
        self.assigned: dict[TopicPartition, int | None] = {}
        self.notices: list[NoticeLine] = []
        self.halted: list[str] = []
        self.seen: list[cmd.Command] = []
        self.progress: Progress = {}  # that of the latest commit
        self.actor = HarnessActor(self)

    @property
    def pool(self) -> SteppedPool:
        """The pool of the test's own, or the one that it was given instead."""
        return self._pool

    @pool.setter
    def pool(self, pool: SteppedPool) -> None:
        self._pool = self.actor.pool = pool

    # --- in and out ---

    def tell(self, event: ev.Event) -> list[cmd.Command]:
        """Give the core an event, check every rule, and do what it says."""
        commands = self.core.handle(event, self.now)
        if self.checks:
            self.core.check()
        self.seen += commands
        self.actor.act(commands)
        return commands

    def discard(self) -> None:
        """End it, as a process ends: nothing can be asked of it any more.

        A member is in a circle of references, and its slot tables are lists of 65,536 that would go
        with it only when Python looks for circles; to walk them was a sixth of a life of 300 steps.
        """
        self.core.subscriptions.clear()

    @property
    def paused(self) -> set[TopicPartition]:
        """The partitions that the client is not to fetch from."""
        return self.core.holds.paused(self.core.partitions)

    def recall(self, index: int = 0, sub: str = "default") -> None:
        """Have a worker give back all that it has not started, as for whoever leaves or stops."""
        core = self.sub(sub)
        self.actor.act(recall.recall(core, [core.workers[index]]))

    def send(self, commit: cmd.Commit) -> None:
        """Take a commit as the client does."""
        self.commits.append(commit)

    def deliver(self, count: int | None = None) -> None:
        """Deliver the oldest of the mail, all of it unless told."""
        mail = [self.mailbox.popleft() for _ in range(min(len(self.mailbox), count or 1 << 30))]
        self.actor.hear(mail)

    def serve(self) -> None:
        """Deliver the mail where the owner would wait for it or take it."""
        self.deliver()

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

    def worker(self, index: int = 0, sub: str = "default") -> SteppedWorker:
        """One worker."""
        return self.pool.workers[sub, index]

    def record(self, id_: int, index: int) -> Record:
        """A record of a slice that is out."""
        return self.core.leased(id_).slice.records[index]

    def sub(self, name: str = "default") -> Subscription:
        """The core's state of a subscription."""
        return self.core.subscriptions[name]

    def owner_of(self, record: Record, sub: str = "default") -> SteppedWorker:
        """The worker that the record's key belongs to."""
        owner = self.sub(sub).routing.owner(record)
        assert not isinstance(owner, Unowned), f"{record} is nobody's just now: {owner.name}"
        return self.pool.workers[sub, owner.id]

    def work(
        self, verdicts: Mapping[int, Sequence[Ending]] | None = None, rounds: int = 1_000
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
            self.tell(ev.LeaseDue())

    def look(self, seconds: float = LOOK_EVERY) -> None:
        """Let time pass, and look meanwhile who is held up, as the loop does."""
        for _ in range(round(seconds / LOOK_EVERY)):
            self.now += LOOK_EVERY
            if self.core.look_wanted(self.now):
                self.tell(ev.LeaseDue(self.actor.progress()))

    def beat(self, times: int = 1) -> None:
        """Give the core heartbeats, half a second apart."""
        for _ in range(times):
            self.now += 0.5
            progress, dead, back = self.pool.progress(), self.pool.dead(), self.pool.revived()
            self.tell(ev.Tick(progress, dead, revived=back))

    def commit(
        self, partitions: Iterable[TopicPartition] | None = None, *, final: bool = False
    ) -> list[cmd.Commit]:
        """Commit as the loop does (progress, mailbox, then the event); return what is sent."""
        before = len(self.commits)
        wanted = None if partitions is None else list(partitions)
        self.progress = self.actor.commit(wanted, final=final)
        return self.commits[before:]

    def answer(
        self, commit: cmd.Commit, result: ev.CommitResult = ev.CommitResult.ACCEPTED
    ) -> list[cmd.Command]:
        """Answer a commit."""
        return self.tell(ev.CommitAnswer(commit, result, "" if not result else "said no"))

    def committed(self) -> tuple[int, list[tuple[int, int]]]:
        """Commit and accept; return position and settled runs of P0 that the core now has."""
        for commit in self.commit():
            self.answer(commit)
        snapshot = self.core.snapshots.take(self.pool.progress(), self.now)[P0]
        return snapshot.position, list(snapshot.runs.get("default", ()))

    def dead_letter(self, error: str | None = None) -> cmd.Publish:
        """Answer the oldest dead letter."""
        publish = self.publishes.pop(0)
        self.tell(ev.DeadLetterAnswer(publish, error, "" if error else "orders.dlq-1@7"))
        return publish

    def revoke(self, *partitions: TopicPartition, commit: bool = True) -> list[cmd.Commit]:
        """Revoke (or lose, without a commit) partitions, waiting for nothing."""
        self.tell(ev.Revoking(partitions))
        sent: list[cmd.Commit] = []
        if commit:
            sent = self.commit(partitions, final=True)
        else:
            self.progress = self.actor.progress()
        self.tell(ev.Forget(partitions, not commit, self.progress))
        return sent

    def said(self, part: str) -> bool:
        """Whether a notice says that."""
        return any(part in notice.text for notice in self.notices)


class HarnessActor(Actor):
    """Acts on the core's commands by noting them; what a worker is to do, the pool is told."""

    def __init__(self, harness: Harness) -> None:
        super().__init__(harness.core, harness.pool, lambda: harness.now)
        self._harness = harness

    def tell(self, event: ev.Event) -> None:
        self._harness.tell(event)

    def serve(self, timeout: float) -> bool:
        there = bool(self._harness.mailbox)
        self._harness.serve()
        return there

    def publish(self, publish: cmd.Publish) -> None:
        self._harness.publishes.append(publish)

    def send(self, commit: cmd.Commit) -> None:
        self._harness.send(commit)

    def client_events(self, messages: Sequence[Record]) -> None:
        self._harness.client_events.extend(messages)

    def assign_at(self, positions: Mapping[TopicPartition, int | None]) -> None:
        self._harness.assigned.update(positions)

    def notice(self, notice: cmd.Notice) -> None:
        self._harness.notices.append(line_of(notice))

    def halt(self, reason: str) -> None:
        self._harness.halted.append(reason)

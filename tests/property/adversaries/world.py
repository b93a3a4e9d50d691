"""A small world around a member: its log, its broker, and what may happen there."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import ClassVar, Literal

from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.commands import CommitEntry
from kafka_keyshared.core.contract.events import CommitResult
from kafka_keyshared.core.contract.outcomes import Disposition
from kafka_keyshared.core.contract.retry_policy import PoisonPolicy, RetryPolicy
from kafka_keyshared.core.contract.slices import Progress
from kafka_keyshared.core.offsets.commit_metadata import SET_BUDGET, encode
from kafka_keyshared.core.records.lane_identity import Lane
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.lab.simulator.handlers import Ending
from kafka_keyshared.lab.simulator.stepped import SteppedWorker
from kafka_keyshared.model import Drop, Record, TopicPartition
from tests.property.adversaries.oracle import Oracle, partition_of
from tests.property.adversaries.rare_states import note
from tests.support.commit_texts import here
from tests.support.core_harness import Harness
from tests.support.records import FakeRecord, failure

_SCOPES: tuple[Literal["topic", "partition", "subscription"], ...] = (
    "topic",
    "topic",
    "partition",
    "subscription",
)
ATTEMPTS = (Disposition.ERROR, Disposition.RETRY, Disposition.DEAD_LETTER)
_POISON: tuple[PoisonPolicy, ...] = ("drop", "dead_letter", "block")


def random_settings(rng: Random, name: str) -> SubscriptionSettings:
    """A subscription small enough that its bounds are met."""
    on_exhausted = rng.choice(_POISON)
    return SubscriptionSettings(
        name=name,
        workers=tuple(f"worker-{index}" for index in range(rng.randint(1, 4))),
        order_scope=rng.choice(_SCOPES),
        retry=RetryPolicy(attempts=rng.randint(1, 4), backoff=rng.choice([0.0, 0.1])),
        on_exhausted=on_exhausted,
        dlq=on_exhausted == "dead_letter" or rng.random() < 0.5,
        window_records=rng.choice([6, 20, 60, 200]),
        prefetch_records=rng.choice([1, 2, 5, 12, 1_000]),
        one_in_flight_per_key=rng.choice((False, False, True)),
    )


def _with_later_policies(settings: SubscriptionSettings, rng: Random) -> SubscriptionSettings:
    """The settings, every other time with a policy that has become possible later."""
    later: dict[PoisonPolicy, PoisonPolicy] = {"block": "block_and_dlq", "dead_letter": "divert"}
    if settings.on_exhausted not in later or rng.random() < 0.5:
        return settings
    return replace(settings, on_exhausted=later[settings.on_exhausted], dlq=True)


MATE = b"key-0-15576"
"""A key of the very slot of ``key-0``."""


class Member(Harness):
    """The member under test, watched by the oracle."""

    def __init__(self, world: World) -> None:
        super().__init__(*world.settings, set_budget=world.set_budget)
        self.world = world
        for each in self.core.subscriptions.values():
            if each.shared is not None and world.few_shards:
                each.shared.long = 3
        self.watch(world.oracle)

    def watch(self, oracle: Oracle) -> None:
        """Tell the oracle of every start and end of a handler."""

        def started(sub: str, worker: int, item: Record) -> None:
            assert isinstance(item, FakeRecord)
            asked = bool(self.pool.workers[sub, worker].asked)
            self.world.reached["started before the answer"] += asked
            oracle.started(sub, item, asked=asked)

        def ended(sub: str, worker: int, item: Record, verdict: Ending) -> None:
            assert isinstance(item, FakeRecord)
            oracle.ended(sub, item, verdict)

        self.pool.on_start, self.pool.on_end = started, ended
        if self.world.writes:
            self.pool.write_into = self.world.write_into

    def send(self, commit: cmd.Commit) -> None:
        """Let the oracle judge the commit before the broker gets it."""
        self.world.oracle.bare = self.world.bare
        for partition, entry in commit.entries.items():
            self.world.oracle.committing(partition, entry, self.world.received[partition])
        assert self.world.bare or not self.said("does not fit"), "a settled set was cut"
        self.commits.append(commit)

    def serve(self) -> None:
        """Deliver the mail; it comes late, while everybody is busy."""
        self.world.steps(3)
        self.deliver()

    def tell(self, event: ev.Event) -> list[cmd.Command]:
        """Note the rare states that an event meets, and hold the workers' bounds after it."""
        if isinstance(event, ev.CommitDue):
            self.world.steps(3)
        note(self.world.reached, self, event)
        commands = super().tell(event)
        for command in commands:
            if isinstance(command, cmd.Publish):
                assert isinstance(command.record, FakeRecord)
                self.world.oracle.published(command.subscription, command.record, command.last)
        for worker in self.pool.workers.values():
            settings = self.sub(worker.sub).settings
            leased = sum(len(self.core.leased(id_)) for id_ in worker.given)
            assert leased <= settings.prefetch_records, f"{worker.index} holds {leased} leases"
            if settings.one_in_flight_per_key and worker.alive:
                self._assert_one_lease_per_lane(worker)
        return commands

    def _assert_one_lease_per_lane(self, worker: SteppedWorker) -> None:
        lanes: Counter[Lane] = Counter()
        oracle = self.world.oracle
        for handover in worker.given.values():
            lanes.update(
                oracle.lane(worker.sub, r)
                for r in handover.unstarted()
                if isinstance(r, FakeRecord)
            )
        if worker.running is not None:
            assert isinstance(worker.running, FakeRecord)
            lanes[oracle.lane(worker.sub, worker.running)] += 1
        assert all(count == 1 for count in lanes.values()), f"leased more than once: {lanes}"


class World:
    """One seed: a log, a broker, a member, and the will to break it."""

    pooled: ClassVar[float] = 0.5
    """The share of the seeds in which workers share what waits."""
    few_shards = False

    def __init__(self, seed: int, *, records: int = 60, set_budget: int = SET_BUDGET) -> None:
        self.rng = rng = Random(seed)
        self.set_budget = set_budget
        self.reached: Counter[str] = Counter()
        # A generator of its own, so that what was there before it stays what a seed makes of it.
        self.extra = extra = Random(f"extra-{seed}")
        names = ["default", "audit"][: rng.choice([1, 1, 2])]
        self.settings = [self.random_settings(name) for name in names]
        self.size_most = extra.choice([40, 40, 40, 4_000])
        if extra.random() < 0.3:
            most = extra.choice([100, 1_000, 5_000])
            self.settings = [replace(each, window_bytes=most) for each in self.settings]
        # One of its own here too: policies that were added behind the others.
        later = Random(f"poison-{seed}")
        self.settings = [_with_later_policies(each, later) for each in self.settings]
        weights = Random(f"weights-{seed}")
        if weights.random() < 0.3:
            most = weights.choice([1, 50, 500])
            self.settings = [replace(each, prefetch_bytes=most) for each in self.settings]
        shared = Random(f"pooled-{seed}")
        if shared.random() < self.pooled:
            # With few shards most keys share one, and a busy key is soon a hot one.
            self.few_shards = shared.random() < 0.5
            self.settings = [
                replace(each, pooled=True, shards=len(each.workers) if self.few_shards else None)
                for each in self.settings
            ]
        self.oracle = self.make_oracle()
        self.partitions = [
            TopicPartition(f"topic-{number % rng.choice([1, 2])}", number)
            for number in range(rng.randint(1, 4))
        ]
        if extra.random() < 0.1:
            self.partitions += [TopicPartition("topic-many", number) for number in range(20)]
        self.queue = self._write(records)
        self.stored: dict[TopicPartition, CommitEntry] = {}
        self.received: dict[TopicPartition, int] = {}
        self.refused: set[TopicPartition] = set()  # the last answer for it was not "accepted"
        # All of them once a text was refused for its size: what the member learns holds for each.
        self.bare: set[TopicPartition] = set()
        # Whether brokers take less metadata than usual; by itself, as it leaves no end clean.
        self.takes_less = Random(f"limit-{seed}").random() < 0.25
        self.fail_share = rng.choice([0.0, 0.05, 0.2, 0.5])
        # A generator of its own, so that what else happens is as where handlers only read.
        self.pen = Random(f"pen-{seed}")
        # Two subscriptions have the same records, and the one would read what the other wrote.
        self.writes = len(self.settings) == 1 and self.pen.random() < 0.5
        self.member = self.make_member()

    # --- what a world of another kind has otherwise ---

    def make_member(self) -> Member:
        """The next member under test."""
        return Member(self)

    def random_settings(self, name: str) -> SubscriptionSettings:
        """The settings of a subscription."""
        return random_settings(self.rng, name)

    def make_oracle(self) -> Oracle:
        """The books."""
        return Oracle(self.settings)

    def write(self, partition: TopicPartition, offset: int, key: bytes | None) -> FakeRecord:
        """A record of the log."""
        return FakeRecord(partition, offset, key)

    def receive(self, written: FakeRecord, size: int) -> FakeRecord:
        """What the member receives of it."""
        return FakeRecord(partition_of(written), written.offset(), written.key(), size=size)

    # --- the log and the broker ---

    def _write(self, records: int) -> dict[TopicPartition, list[FakeRecord]]:
        rng = self.rng
        keys = rng.choice([1, 2, 4, 12])
        nulls = rng.choice([0.0, 0.0, 0.2, 0.9])
        log: dict[TopicPartition, list[FakeRecord]] = {each: [] for each in self.partitions}
        at = dict.fromkeys(self.partitions, 0)
        for _ in range(records):
            partition = rng.choice(self.partitions)
            at[partition] += 1 if rng.random() < 0.9 else rng.randint(2, 9)
            key = None if rng.random() < nulls else b"key-%d" % rng.randrange(keys)
            key = MATE if key == b"key-1" and self.few_shards else key
            log[partition].append(self.write(partition, at[partition], key))
        self.oracle.log.update({p: [each.offset() for each in log[p]] for p in log})
        return log

    def store(self, commit: cmd.Commit, only: set[TopicPartition] | None = None) -> None:
        """Store a commit at the broker, all of it unless told."""
        for partition, entry in commit.entries.items():
            if only is None or partition in only:
                before = self.stored.get(partition)
                assert before is None or entry.position >= before.position, "the broker's fell"
                self.stored[partition] = entry

    def answer(self, commit: cmd.Commit, *, kindly: bool = False) -> None:
        """Answer one commit in some way the broker has."""
        rng = self.rng
        result = CommitResult.ACCEPTED
        if not kindly and rng.random() < 0.3:
            result = rng.choice([CommitResult.RETRY, CommitResult.TOO_LARGE])
            if not self.takes_less:
                result = CommitResult.RETRY
        large = [p for p, entry in commit.entries.items() if entry.metadata]
        if result is CommitResult.TOO_LARGE and not large:
            result = CommitResult.ACCEPTED
        if result is CommitResult.ACCEPTED:
            self.store(commit)
        elif result is CommitResult.TOO_LARGE:
            self.store(commit, set(commit.entries) - {rng.choice(large)})
            self.refused.update(commit.entries)
            self.bare.update(self.partitions)
            self.reached["commit too large"] += 1
        else:
            self.store(commit, {p for p in commit.entries if rng.random() < 0.5})
            self.reached["commit failed"] += 1
            self.refused.update(commit.entries)
        if result is CommitResult.ACCEPTED:
            self.refused.difference_update(commit.entries)
        self.member.mailbox.append(ev.CommitAnswer(commit, result, result.value))

    def answer_commits(self, *, kindly: bool = False) -> None:
        """Answer all commits, in order."""
        while self.member.commits:
            self.answer(self.member.commits.pop(0), kindly=kindly)

    # --- the member's world, one small thing at a time ---

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Give partitions to the member, from what the broker has."""
        starts = {}
        for partition in partitions:
            entry = self.stored.get(partition)
            end = max((each.offset() for each in self.queue[partition]), default=0) + 1
            starts[partition] = (
                ev.StartPoint(None)
                if entry is None
                else ev.StartPoint(entry.position, entry.metadata, 0, end)
            )
        self.refused.difference_update(partitions)
        self.member.tell(ev.Assigned(starts))
        for partition in partitions:
            stored = self.stored.get(partition)
            entry = None if stored is None else self._started_at(partition)
            self.received[partition] = 0 if entry is None else entry.position
            self.reached["regained"] += self.oracle.assigned(partition, stored, entry)

    def _started_at(self, partition: TopicPartition) -> CommitEntry:
        """Return what the member goes by, as an entry: what the broker has, or what it left."""
        state = self.member.core.partitions[partition]
        assert state.received_end is not None
        text = encode(here(state.received_end), state.restored, {}, state.notes).text
        return CommitEntry(state.received_end, text)

    def remake(self, partition: TopicPartition, records: int) -> None:
        """Delete a partition's topic and make it anew; the member that reads it finds out.

        The broker forgets what the group has committed for it. The member begins it anew as the
        loop does, in the place of an assignment.
        """
        owned = partition in self.oracle.owned
        self.answer_commits()
        self.stored.pop(partition, None)
        log = [self.write(partition, at, b"key-%d" % (at % 3)) for at in range(records)]
        self.queue[partition] = log
        self.oracle.remade(partition, [each.offset() for each in log])
        if not owned:
            return
        self.member.tell(ev.Revoking([partition]))
        self.member.tell(ev.Forget([partition]))
        self.oracle.assigned(partition, None, None)
        self.received[partition] = 0
        self.member.tell(ev.Assigned({partition: ev.StartPoint(0, None, 0, records, stored=False)}))
        self.reached["made anew"] += 1

    def fetch(self) -> None:
        """Deliver a chunk over some partitions, within the room there is."""
        rng, oracle = self.rng, self.oracle
        paused = self.member.paused
        owned = [p for p in sorted(oracle.owned) if p not in paused]
        room = self.member.core.room()
        if not owned or not room:
            self.reached["window full"] += not room
            return
        chunk: list[FakeRecord] = []
        for partition in rng.sample(owned, rng.randint(1, len(owned))):
            log = self.queue[partition]
            ahead = log[bisect_left(log, self.received[partition], key=FakeRecord.offset) :]
            taken = ahead[: rng.randint(0, min(room - len(chunk), 30))]
            for each in taken:
                fresh = self.receive(each, rng.randint(0, self.size_most))
                fresh.epoch = oracle.epochs[partition]
                chunk.append(fresh)
            if taken:
                self.received[partition] = taken[-1].offset() + 1
            elif rng.random() < 0.2 and ahead:
                self.received[partition] = ahead[0].offset()
            if len(chunk) >= room:
                break
        oracle.delivered(chunk)
        ends = {p: self.received[p] for p in owned if self.received[p] > 0 or rng.random() < 0.5}
        self.member.tell(ev.Fetched(chunk, ends))

    def verdict(self) -> Ending:
        """How a handler ends."""
        rng = self.rng
        if rng.random() >= self.fail_share:
            return Drop() if rng.random() < 0.03 else None
        outcome = rng.choices(ATTEMPTS, [6, 2, 1])[0]
        after = rng.choice([None, 0.0, 0.5]) if outcome is Disposition.RETRY else None
        return failure(outcome, jitter=rng.uniform(-1, 1), after=after)

    def write_into(self, item: Record) -> None:
        """Do to a record what a handler can."""
        assert isinstance(item, FakeRecord)
        pen = self.pen
        if pen.random() < 0.5:
            item.set_key(pen.choice([None, "text", {"id": 1}, b"key-1", 7]))
        if pen.random() < 0.5:
            item.set_value(pen.choice([None, 7, {"n": 1}, "text"]))
        if pen.random() < 0.3:
            item.set_topic(pen.choice([None, {}, "topic-0", "topic-1", "elsewhere"]))
        self.reached["written into while running"] += 1

    def step(self, worker: SteppedWorker) -> None:
        """Let a worker do one thing."""
        if not worker.alive:
            return
        if worker.running is not None:
            worker.finish(self.verdict())
        else:
            worker.step()

    def steps(self, most: int = 8) -> None:
        """Let random workers do some things."""
        workers = list(self.member.pool.workers.values())
        for _ in range(self.rng.randint(0, most)):
            self.step(self.rng.choice(workers))

    def dead_letters(self, *, kindly: bool = False) -> None:
        """Answer one dead letter."""
        publishes = self.member.publishes
        if not publishes:
            return
        publish = publishes.pop(self.rng.randrange(len(publishes)))
        error = None if kindly or self.rng.random() < 0.7 else "leader not available"
        self._archive(publish, error)
        self.member.mailbox.append(ev.DeadLetterAnswer(publish, error))

    def _archive(self, publish: cmd.Publish, error: str | None) -> None:
        item = publish.record
        assert isinstance(item, FakeRecord)
        assert (item.topic(), item.key()) == item.came_as
        if error is not None:
            self.reached["dead letter failed"] += 1
        elif self.oracle.current(item):
            self.oracle.archived(publish.subscription, item)
            self.reached["dead letter written"] += 1
        else:
            self.reached["dead letter of an old epoch written"] += 1

    def commit(
        self, partitions: Sequence[TopicPartition] | None = None, *, final: bool = False
    ) -> Progress:
        """Commit as the loop does, with everybody busy in between; return the progress read."""
        return self.member.actor.commit(partitions, final=final)

    def progress(self) -> Progress:
        """Read progress as the loop does, and the mail after it, with everybody busy in between."""
        return self.member.actor.progress()

    def pass_time(self) -> None:
        """Let some time pass."""
        self.member.later(self.rng.choice([0.0, 0.01, 0.1, 0.4, 1.1, 5.0]))

    def beat(self) -> None:
        """A heartbeat; mostly a dead thread can be replaced, sometimes not for long."""
        member = self.member
        member.deliver()
        member.pool.replaceable = self.rng.random() < 0.5
        member.beat(self.rng.choice([1, 1, 1, 7]))

    def kill_worker(self) -> None:
        """End a thread in the middle of what it does."""
        worker = self.rng.choice(list(self.member.pool.workers.values()))
        left = [w for w in self.member.pool.workers.values() if w.sub == worker.sub and w.alive]
        if len(left) > 1 and worker.alive:
            worker.die()
            self.reached["worker died running"] += worker.running is not None

    # --- partitions come and go, members too ---

    def drain(self, partitions: Sequence[TopicPartition] | None) -> bool:
        """Wait for what runs, until a random deadline; say whether all of it ended."""
        member = self.member
        patience = self.rng.choice([0, 5, 60, 60])
        for _ in range(patience):
            progress = self.progress()
            running, dead_letters = member.core.under_way(partitions, progress)
            if not running and not dead_letters:
                return True
            self.steps()
            self.dead_letters()
        return False

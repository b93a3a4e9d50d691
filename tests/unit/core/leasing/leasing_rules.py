"""The ways in which records are leased, and the rules that hold for each of them.

A worker may hold many leases of a key, in the order in which it will run them, and fences tell when
those behind a failure have come back; or one lease of a key at a time; or it is a member, that gets
one record after the other and settles each for itself. A history does not know which of them it is
told of, and the books judge all by the same rules.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract.commands import CommitEntry
from kafka_keyshared.core.contract.events import Forget, Revoking
from kafka_keyshared.core.contract.outcomes import Failure
from kafka_keyshared.core.contract.retry_policy import PoisonPolicy, RetryPolicy
from kafka_keyshared.core.contract.slices import Slice
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.executors.mailbox import Mailbox
from kafka_keyshared.executors.pull.pool import PullPool
from kafka_keyshared.lab.simulator.commit_text import read_commit
from kafka_keyshared.model import TopicPartition
from tests.support.core_harness import Harness
from tests.support.records import P0, P1, FakeRecord, failure

LEASES = 4


class Mode(NamedTuple):
    """A way of leasing. With ``several`` a worker may have more than one of a lane in hand."""

    one_in_flight_per_key: bool
    individually: bool

    @property
    def several(self) -> bool:
        return self.individually and not self.one_in_flight_per_key


MODES = {
    "fences": Mode(one_in_flight_per_key=False, individually=False),
    "one lease of a key": Mode(one_in_flight_per_key=True, individually=False),
    "one by one": Mode(one_in_flight_per_key=True, individually=True),
    "one by one, many leases of a key": Mode(one_in_flight_per_key=False, individually=True),
}


@dataclass(eq=False)
class InHand:
    """A record that its worker runs, or that its member has received."""

    worker: int
    record: FakeRecord
    slice: Slice | None = None
    over: bool = False
    """Its partition has gone: whatever is said of it settles nothing."""

    @property
    def at(self) -> tuple[TopicPartition, int]:
        return TopicPartition(self.record.topic(), self.record.partition()), self.record.offset()


class Books:
    """What must hold, whichever way records are leased."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self.delivered: dict[TopicPartition, dict[int, bytes | None]] = defaultdict(dict)
        self.settled: dict[TopicPartition, set[int]] = defaultdict(set)
        self.blocked: set[tuple[TopicPartition, int]] = set()
        self.starts: Counter[tuple[TopicPartition, int]] = Counter()
        self.in_hand: list[InHand] = []
        # By worker what has ended and may still look as if it ran: until the worker goes on.
        self.last: dict[int, tuple[TopicPartition, int]] = {}
        self.order: dict[bytes, list[int]] = defaultdict(list)
        """Of each key, the offsets in the order in which they settled."""

    def started(self, it: InHand) -> None:
        """Hold a start to the rules."""
        (partition, offset), key = it.at, it.record.key()
        assert offset in self.delivered[partition], f"{it.record} starts and was not delivered"
        assert offset not in self.settled[partition], f"{it.record} has settled and starts again"
        assert it.at not in self.blocked, f"{it.record} is blocked and starts"
        self.starts[it.at] += 1
        if key is None:
            return
        same = [each for each in self.in_hand if each.record.key() == key]
        assert self.mode.several or not same, f"{it.record} starts beside {same[0].record}"
        assert all(each.worker == it.worker for each in same), f"{key!r} is at two workers"
        mine = {each.at[1] for each in same if not each.over}
        for earlier, other in self.delivered[partition].items():
            if earlier < offset and other == key and earlier not in self.settled[partition]:
                assert earlier in mine, f"{it.record} starts before {partition}@{earlier}"

    def ended(self, it: InHand, *, settled: bool) -> None:
        """Take note of an end in time."""
        self.in_hand.remove(it)
        partition, offset = it.at
        if settled and not it.over:
            self.settled[partition].add(offset)
            if it.record.key() is not None:
                self.order[it.record.key()].append(offset)

    def committed(self, partition: TopicPartition, entry: CommitEntry) -> None:
        """A commit says what has settled: all of it, and nothing else."""
        said = read_commit(entry.metadata, entry.position).get("default", ())
        known = {*range(entry.position), *said} & self.delivered[partition].keys()
        settled = self.settled[partition]
        assert known <= settled, f"{partition}: committed, not settled: {sorted(known - settled)}"
        unclear = {offset for at, offset in self.last.values() if at == partition}
        missing = settled - known - unclear
        assert not missing, f"{partition}: settled, not committed: {sorted(missing)}"

    def holds(self, worker: int, leases: int) -> None:
        """No worker has more in hand than it may."""
        count = sum(each.worker == worker for each in self.in_hand)
        assert count <= leases, f"worker {worker} has {count} records in hand"


class Leasing:
    """A member that leases in one of the ways, its workers stepped by hand."""

    def __init__(
        self,
        mode: Mode,
        *,
        workers: int = 3,
        attempts: int = 1_000,
        on_exhausted: PoisonPolicy = "block",
    ) -> None:
        self.mode = mode
        self.books = Books(mode)
        settings = SubscriptionSettings(
            workers=worker_names(workers),
            retry=RetryPolicy(attempts=attempts, backoff=0.2, jitter=0.0),
            on_exhausted=on_exhausted,
            dlq=on_exhausted == "dead_letter",
            prefetch_records=LEASES,
            one_in_flight_per_key=mode.one_in_flight_per_key,
            individually=mode.individually,
        )
        self.harness = Harness(settings)
        self.workers = range(workers)
        self._stored: dict[TopicPartition, CommitEntry] = {}
        self._mailbox: Mailbox[Any] = Mailbox()
        if mode.individually:
            self.pool = PullPool(
                self._mailbox,
                Clock(lambda: self.harness.now),
                ascending=mode.several,
            )
            for name in settings.workers:
                self.pool.join(name)
            self.harness.pool = self.pool  # type: ignore[assignment]
            self.harness.serve = self.mail  # type: ignore[method-assign,assignment]

    # --- the owner's side ---

    def assign(self, *partitions: TopicPartition) -> None:
        """Assign partitions where they were committed."""
        for each in partitions:
            entry = self._stored.get(each, CommitEntry(0, ""))
            self.harness.assign(
                each, position=entry.position, metadata=entry.metadata, log=(0, 1_000)
            )

    def fetch(self, *records: FakeRecord) -> None:
        """Deliver records."""
        for each in records:
            at = TopicPartition(each.topic(), each.partition())
            self.books.delivered[at][each.offset()] = each.key()
        self.harness.fetch(*records)

    def mail(self, count: int | None = None) -> bool:
        """Deliver what workers have reported; say whether there was anything."""
        while not self._mailbox.empty():
            self.harness.mailbox.append(self._mailbox.get_nowait())
        there = bool(self.harness.mailbox)
        self.harness.deliver(count)
        return there

    def commit(self, only: Iterable[TopicPartition] | None = None) -> None:
        """Commit, and hold what that says to the rules."""
        for commit in self.harness.commit(only, final=only is not None):
            for partition, entry in commit.entries.items():
                self.books.committed(partition, entry)
                self._stored[partition] = entry
            self.harness.answer(commit)
        self.harness.commits.clear()

    def position(self, partition: TopicPartition = P0) -> int:
        """Commit, and return the position that the broker has."""
        self.mail()
        self.commit()
        return self.position_stored(partition)

    def position_stored(self, partition: TopicPartition) -> int:
        """Return the position that the broker has."""
        return self._stored[partition].position if partition in self._stored else 0

    def revoke(self, *partitions: TopicPartition) -> None:
        """Give partitions up, waiting for nothing that runs."""
        self.harness.tell(Revoking(partitions))
        for worker in self.workers:
            if not any(each.worker == worker for each in self.books.in_hand):
                self.start(worker)
        self.commit(partitions)
        self.harness.tell(Forget(partitions, False, self.harness.progress))
        for each in partitions:
            self.books.delivered[each] = {
                offset: key
                for offset, key in self.books.delivered[each].items()
                if offset in self.books.settled[each]
            }
        gone = [each for each in self.books.in_hand if each.at[0] in partitions]
        for it in gone:
            it.over = True
            if self.mode.individually:  # a member's lease is over with its partition
                self.end(it)

    def recall(self, worker: int) -> None:
        """Take back what a worker has not started; it is leased again at once."""
        self.harness.recall(worker)
        self.mail()

    def later(self, seconds: float) -> None:
        """Let time pass."""
        self.harness.later(seconds)
        self.mail()

    # --- the workers' side ---

    def start(self, worker: int) -> InHand | None:
        """Let a worker go on until a record starts, or a member receive one; None: nothing may."""
        it: InHand | None = None
        if self.mode.individually:
            for slice_ in self.pool.cells["default", worker].take(1, 0):
                it = InHand(worker, slice_.records[0], slice_)  # type: ignore[arg-type]
        elif self.harness.worker(worker).running is None:
            self.books.last.pop(worker, None)
            if (record := self.harness.worker(worker).start()) is not None:
                it = InHand(worker, record)  # type: ignore[arg-type]
        if it is not None:
            self.books.started(it)
            self.books.in_hand.append(it)
            self.books.holds(worker, LEASES)
        return it

    def end(self, it: InHand, ending: Failure | None = None) -> None:
        """End a record, well unless told."""
        if it.slice is None:
            self.harness.worker(it.worker).finish(ending)
            self.books.last[it.worker] = it.at
            self.books.ended(it, settled=ending is None)
            return
        cell = self.pool.cells["default", it.worker]
        in_time = cell.fail(it.slice, ending) if ending else not cell.settle([it.slice])
        assert in_time is not it.over, f"{it.record}: its lease is over, or is not"
        self.books.ended(it, settled=ending is None)
        # What its member has behind a failure is handed back unrun.
        kept = cell.held()
        for other in [*self.books.in_hand]:
            if other.worker == it.worker and other.slice not in kept:
                self.books.in_hand.remove(other)

    def endable(self) -> list[InHand]:
        """What may end next: of a lane the first that is in hand."""
        seen: set[bytes] = set()
        found = []
        for each in self.books.in_hand:
            key = each.record.key()
            if key is None or key not in seen:
                found.append(each)
            if key is not None:
                seen.add(key)
        return found

    def start_all(self) -> list[int]:
        """Let every worker start all that it may now; return the offsets."""
        found = []
        for worker in self.workers:
            while (it := self.start(worker)) is not None:
                found.append(it.record.offset())
        return found

    def work(self, failing: dict[int, list[Failure]] | None = None) -> list[int]:
        """Run until nothing more can; return the offsets in the order of their starts."""
        script = {offset: [*each] for offset, each in (failing or {}).items()}
        found: list[int] = []
        for _ in range(1_000):
            started = self.start_all()
            found += started
            ends = self.endable()
            for it in ends:
                planned = script.get(it.record.offset())
                self.end(it, planned.pop(0) if planned else None)
            if not self.mail() and not started and not ends:
                return found
        raise AssertionError(f"the work never ended; started so far: {found[:50]}")


# --- histories ---

Step = tuple[str, int]


def history(seed: int, steps: int = 250) -> list[Step]:
    """What happens, without a word of how records are leased."""
    chance = random.Random(seed)
    does = ["start"] * 8 + ["end"] * 7 + ["fetch"] * 3 + ["mail"] * 5
    does += ["later", "later", "commit", "beat", "recall", "rebalance"]
    return [(chance.choice(does), chance.randrange(1 << 30)) for _ in range(steps)]


class Telling:
    """One history as it is told to a member: it is the same log and the same failures for each."""

    def __init__(self, mode: Mode, seed: int) -> None:
        self.leasing = Leasing(mode)
        self.chance = random.Random(f"log-{seed}")
        self.log = {at: [*self._write(at)] for at in (P0, P1)}
        self.next = {P0: 0, P1: 0}
        self.away: list[TopicPartition] = []
        self.failed: Counter[tuple[TopicPartition, int]] = Counter()
        self.in_vain: Counter[tuple[TopicPartition, int]] = Counter()
        self.plan = {
            (at, each.offset()): self.chance.choice([0, 0, 0, 1, 2])
            for at, log in self.log.items()
            for each in log
        }
        self.leasing.assign(P0, P1)

    def _write(self, at: TopicPartition) -> Iterator[FakeRecord]:
        for offset in range(60):
            keys: Sequence[bytes | None] = [b"%d-%d" % (at.partition, n) for n in range(4)]
            yield FakeRecord(at, offset, self.chance.choice([*keys, None]))

    def go(self, steps: Iterable[Step]) -> None:
        """Do all of it, then let everything come to its end."""
        for what, number in steps:
            getattr(self, what)(number)
        if self.away:
            self.rebalance(0)
        for _ in range(400):
            for at in (P0, P1):
                self._deliver(at, 60)
            for worker in self.leasing.workers:
                self.start(worker)
            for _ in range(len(self.leasing.endable())):
                self.end(0)
            self.leasing.later(0.5)
            if all(len(self.leasing.books.settled[at]) == 60 for at in (P0, P1)):
                break
        self.leasing.work()
        self.leasing.commit()

    def fetch(self, number: int) -> None:
        self._deliver((P0, P1)[number % 2], number % 9)

    def _deliver(self, at: TopicPartition, count: int) -> None:
        records = self.log[at][self.next[at] : self.next[at] + count]
        if at not in self.away and records:
            self.next[at] += len(records)
            self.leasing.fetch(*[FakeRecord(at, each.offset(), each.key()) for each in records])

    def start(self, number: int) -> None:
        self.leasing.start(number % len(self.leasing.workers))

    def end(self, number: int) -> None:
        ends = self.leasing.endable()
        if ends:
            it = ends[number % len(ends)]
            fails = self.failed[it.at] < self.plan[it.at]
            if it.over:
                self.in_vain[it.at] += 1
            elif fails:
                self.failed[it.at] += 1
            before = [*self.leasing.books.in_hand]
            self.leasing.end(it, failure() if fails else None)
            self._handed_back(before, it)

    def _handed_back(self, before: list[InHand], ended: InHand | None = None) -> None:
        for each in before:
            if each is not ended and each not in self.leasing.books.in_hand:
                self.in_vain[each.at] += 1

    def mail(self, number: int) -> None:
        self.leasing.mail(1 + number % 4)

    def later(self, number: int) -> None:
        self.leasing.later(number % 5 / 10)

    def commit(self, number: int) -> None:
        del number
        self.leasing.commit()

    def beat(self, number: int) -> None:
        del number
        self.leasing.mail()
        self.leasing.harness.beat()

    def recall(self, number: int) -> None:
        self.leasing.recall(number % len(self.leasing.workers))

    def rebalance(self, number: int) -> None:
        if self.away:
            self.leasing.assign(*self.away)
            self.next.update({at: self.leasing.position_stored(at) for at in self.away})
            self.away = []
            return
        self.away = [(P0, P1)[number % 2]]
        before = [*self.leasing.books.in_hand]
        self.leasing.revoke(*self.away)
        self._handed_back(before)

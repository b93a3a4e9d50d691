"""However many records fail in a burst, and whenever that is looked at, the settled set fits.

Hundreds of thousands of records come in a second, and fail in patterns that make sets large. No
commit is waited for: after every few events it is asked which set a commit would take now. It may
never be larger than its budget, and nothing that has ended may be missing in it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from random import Random

import pytest

from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.outcomes import Disposition
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.offsets.commit_metadata import encode
from kafka_keyshared.core.offsets.positions import collect, derive
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.lab.simulator.handlers import Ending
from kafka_keyshared.model import TopicPartition, partition_of
from tests.support.commit_texts import here
from tests.support.core_harness import Harness
from tests.support.records import ERROR, FakeRecord, failure
from tests.support.seeds import enough, seeds

SEEDS = seeds(8)
BUDGETS = (60, 150, 400)
PARTITIONS = [TopicPartition("orders", number) for number in range(3)]
LATER = failure(Disposition.RETRY, after=3_600.0)
SOON = failure(Disposition.RETRY, after=0.01)


class Burst:
    """One seed of it."""

    def __init__(self, seed: int, budget: int) -> None:
        self.chance = chance = Random(f"burst-{seed}")
        self.budget = budget
        self.largest = 0
        self.unfetched = 0
        self.done = 0
        settings = SubscriptionSettings(
            workers=worker_names(chance.choice((1, 3, 8))),
            window_records=chance.choice((500, 20_000)),
            retry=RetryPolicy(attempts=chance.choice((1, 3, 1_000, 1_000)), backoff=0.01),
            one_in_flight_per_key=chance.choice((False, False, True)),
        )
        self.harness = Harness(settings, set_budget=budget)
        self.harness.checks = False  # what each holds is walked over often enough as it is
        self.rate = chance.choice((100_000, 400_000))
        self.fails = chance.choice((0.02, 0.1, 0.3, 0.5))
        self.again = chance.choice((0.0, 0.0, 0.1, 0.9))
        self.lags = chance.choice((0.0, 0.001, 0.02))
        self.ended: dict[TopicPartition, set[int]] = {each: set() for each in PARTITIONS}
        self.tried: set[int] = set()
        self.every = chance.choice((None, 2, 3, 64))
        self.keys = chance.choice((7, 500, 1 << 30))
        self.next = dict.fromkeys(PARTITIONS[: chance.randint(1, 3)], 0)
        self.harness.assign(*self.next)

    def run(self, records: int) -> None:
        """Let so many records come, then stop without another look at anything."""
        while sum(self.next.values()) < records and self.unfetched < 60:
            roll = self.chance.random()
            if roll < 0.35:
                self._fetch()
            elif roll < 0.9:
                self._work()
            elif roll < 0.95:
                self.harness.later(self.chance.choice((0.0, 0.001, 0.05, 1.0)))
            elif roll < 0.97:
                self.harness.beat()
            else:
                self._commit()
            if self.chance.random() < 0.4:
                self._look()
        self.harness.commit(final=True)
        assert not self.harness.said("does not fit")

    def _fetch(self) -> None:
        harness, chance = self.harness, self.chance
        free = [each for each in self.next if each not in harness.paused]
        count = min(chance.choice((1, 20, 300)), harness.core.room())
        if not (free and count):
            self.unfetched += 1
            return
        self.unfetched = 0
        partition, chunk = chance.choice(free), []
        for _ in range(count):
            # A log has gaps.
            self.next[partition] += 1 + (chance.random() < 0.01) * chance.randint(1, 50)
            at = self.next[partition]
            chunk.append(FakeRecord(partition, at, b"key-%d" % (at % self.keys)))
        harness.now += count / self.rate
        harness.tell(ev.Fetched(chunk, {partition: self.next[partition] + 1}))

    def _work(self) -> None:
        """Some workers get on, others lag behind."""
        for worker in self.harness.pool.workers.values():
            for _ in range(self.chance.choice((0, 1, 30, 300))):
                if (item := worker.start()) is None:
                    break
                ending = self._ending(item.offset() or 0)
                if ending is None:
                    self.done += 1
                    self.ended[partition_of(item)].add(item.offset() or 0)
                worker.finish(ending)
        self.harness.deliver(self.chance.choice((None, 3)))

    def _ending(self, offset: int) -> Ending:
        fails = self.chance.random() < self.fails if self.every is None else offset % self.every
        if offset in self.tried:  # most come through in the end
            fails = self.chance.random() < self.again
        elif self.chance.random() < self.lags:
            self.tried.add(offset)
            return LATER  # for good: the position stays before it
        self.tried.add(offset)
        return self.chance.choice((ERROR, SOON, SOON)) if fails else None

    def _commit(self) -> None:
        for commit in self.harness.commit():
            result = self.chance.choice((ev.CommitResult.ACCEPTED, ev.CommitResult.RETRY))
            self.harness.answer(commit, result)

    def _look(self) -> None:
        """See how large the sets are now; nothing is raised, or looked at, for that."""
        core, sub = self.harness.core, self.harness.sub()
        held = collect(sub.unsettled.records(self.harness.pool.progress()))
        for partition, state in core.partitions.items():
            if state.received_end is None:
                continue
            of = {sub.name: held.get(partition, {})}
            found = derive(state.received_end, of, state.restored, core.ceilings.of(partition))
            text = encode(here(found.position), found.runs, {}, set_budget=self.budget)
            assert not text.truncated, f"{partition}: {len(found.runs[sub.name])} runs"
            self.largest = max(self.largest, len(text.text))
            ended = self.ended[partition]
            ended -= {offset for offset in ended if offset < found.position}
            runs = found.runs.get(sub.name, ())
            # Until its worker has taken the next one, nobody knows of the last one's end.
            known = ended - held.get(partition, {}).keys()
            starts, ends = [0, *(start for start, _ in runs)], [0, *(end for _, end in runs)]
            left = [o for o in known if o >= ends[bisect_right(starts, o) - 1]]
            assert not left, f"{partition}: {sorted(left)[:5]} have ended and are in no set"


@pytest.fixture(scope="module")
def reached() -> Iterator[dict[int, list[int]]]:
    """The largest sets that there were, by budget; they must have come near it."""
    found: dict[int, list[int]] = {budget: [] for budget in BUDGETS}
    yield found
    for budget, sizes in found.items():
        full = not sizes or max(sizes) > budget * 0.8
        assert full or not enough(), f"{budget}: never more than {max(sizes)}"


@pytest.mark.parametrize("budget", BUDGETS)
def test_no_burst_of_failures_makes_a_set_that_does_not_fit(
    budget: int, reached: dict[int, list[int]]
) -> None:
    done = 0
    for seed in SEEDS:
        burst = Burst(seed, budget)
        try:
            burst.run(2_000)
        except Exception as error:
            error.add_note(f"Burst({seed}, {budget}).run(2_000)")
            raise
        reached[budget].append(burst.largest)
        done += burst.done
    assert done > 50 * len(SEEDS) or not enough(), "what is done makes the sets"

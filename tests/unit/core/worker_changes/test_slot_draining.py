"""Draining: a slot that moves waits for the leases of it that its old owner has, and for no others.

Slots are given away by ranges here, so that each test says which slot goes where.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.keys.extraction import OwnKeys
from kafka_keyshared.core.routing.ranges import StickyRanges
from kafka_keyshared.core.subscription.drain_counters import DrainingSlots
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.core.worker_changes import slot_draining
from kafka_keyshared.core.worker_changes.worker_lifecycle import EVICT_AFTER
from kafka_keyshared.core.workers.worker import Worker, WorkerState
from kafka_keyshared.errors import ConfigError, InvariantError
from kafka_keyshared.hashing import SLOTS, slot_of
from kafka_keyshared.lab.simulator.handlers import Ending
from kafka_keyshared.lab.simulator.stepped import SteppedWorker
from kafka_keyshared.model import Record, Retry
from kafka_keyshared.status import DrainingSlot
from tests.support.core_harness import Harness
from tests.support.core_status import status_of
from tests.support.records import ERROR, P0, P1, FakeRecord, colliding_keys, record

HALF = SLOTS // 2


def keys(low: int, high: int) -> list[bytes]:
    """Keys of different slots in that range."""
    found = {slot_of(key): key for key in (b"%d" % number for number in range(2_000))}
    return [found[slot] for slot in sorted(found) if low <= slot <= high]


LOW, HIGH = keys(0, HALF - 1), keys(HALF, SLOTS - 1)


SPREAD = LOW[::40][:20]
"""Keys that are not all in one arc of a ring."""


class Ranges(Harness):
    """Workers A, B and C. The low slots are somebody's, the high ones B's."""

    def __init__(self, settings: SubscriptionSettings | None = None) -> None:
        super().__init__(settings or SubscriptionSettings(workers=("A", "B", "C")))
        self.move(A="low")
        self.assign()

    def move(self, **ranges: str) -> None:
        """Give the low slots to somebody ("low"), the high ones to B, and act on it."""
        (low,) = ranges
        owned = {low: [(0, HALF - 1)]}
        owned.setdefault("B", []).append((HALF, SLOTS - 1))
        names = [worker.name for worker in self.sub().workers.values()]
        routing = StickyRanges(owned, names)
        commands = slot_draining.change(self.sub(), routing)
        self.core.check()
        self.seen += commands
        self.actor.act(commands)
        self.tell(ev.LeaseDue())

    def of(self, name: str) -> SteppedWorker:
        """The worker of that name."""
        return next(each for each in self.pool.workers.values() if each.name == name)

    def state_of(self, name: str) -> Worker:
        """The core's state of it."""
        return next(each for each in self.sub().workers.values() if each.name == name)

    def has(self, name: str) -> list[int]:
        """The offsets that a worker was given and has neither ended nor given back."""
        slices = self.state_of(name).slices.values()
        return [each.offset() for leased in slices for each in leased.records()]


def one_each(key_list: list[bytes], start: int = 0) -> list[FakeRecord]:
    return [record(start + at, key) for at, key in enumerate(key_list)]


def offsets(records: Iterable[Record]) -> list[int]:
    return [each.offset() for each in records]


# --- the rule ---


@pytest.mark.parametrize("last", [None, ERROR], ids=["acknowledged", "failed or expired"])
def test_of_a_range_with_three_leases_the_new_owner_gets_nothing_until_the_last_has_ended(
    last: Ending,
) -> None:
    """Celeriant's own example: A holds three leases of a range, and the range goes to B."""
    harness = Ranges()
    harness.fetch(*[record(offset, LOW[0]) for offset in range(3)])
    # A starts all of them before it says what it gives back: nothing.
    harness.pool.answers_later = harness.pool.hesitates = lambda: True
    harness.move(B="low")
    harness.fetch(record(3, LOW[0]), record(4, LOW[0]))
    a = harness.of("A")
    for ending in (None, None, last):
        assert harness.has("B") == []
        assert a.start() is not None
        a.finish(ending)
        harness.deliver()
    a.step()
    harness.pool.answers_later = harness.pool.hesitates = lambda: False
    a.start()
    harness.deliver()
    harness.later(1.0)
    assert harness.has("B") == ([3, 4] if last is None else [2])
    assert harness.work() == ([3, 4] if last is None else [2, 3, 4])
    assert harness.committed() == (5, [])


def test_slots_that_nobody_holds_open_at_once_and_only_what_runs_is_waited_for() -> None:
    harness = Ranges()
    harness.fetch(*one_each(LOW[:10]))
    running = harness.of("A").start()
    assert running is not None
    harness.move(B="low")
    assert harness.sub().draining.count == 1
    assert harness.sub().draining.pending(slot_of(LOW[0])) == 1
    assert harness.has("A") == [0]
    assert harness.has("B") == [*range(1, 10)]
    harness.fetch(*one_each(LOW[:10], 10))
    assert offsets(harness.sub().draining.waiting()) == [10]
    assert harness.has("B") == [*range(1, 10), *range(11, 20)]


def test_what_has_waited_goes_before_what_its_new_owner_has_waiting_oldest_first() -> None:
    harness = Ranges(SubscriptionSettings(workers=("A", "B", "C"), prefetch_records=4))
    harness.fetch(record(0, LOW[0]), record(1, LOW[0]), record(2, LOW[0]))
    harness.of("A").start()
    harness.move(B="low")
    harness.fetch(record(3, LOW[0]), record(4, LOW[0]))
    harness.fetch(*[record(offset, HIGH[0]) for offset in range(5, 20)])
    assert harness.has("B") == [5, 6, 7, 8]
    harness.of("A").finish()
    assert harness.work() == [5, 6, 7, 8, 1, 2, 3, 4, *range(9, 20)]


def test_a_slot_that_comes_back_to_its_old_owner_drains_no_more() -> None:
    harness = Ranges()
    harness.fetch(record(0, LOW[0]))
    harness.of("A").start()
    harness.move(B="low")
    harness.fetch(record(1, LOW[0]))
    assert harness.has("A") == [0]
    harness.move(A="low")
    assert harness.sub().draining.count == 0
    assert harness.has("A") == [0, 1], "the old owner gets it while it still runs another of it"
    harness.of("A").finish()
    assert harness.work() == [1]


def test_a_slot_that_moves_on_while_it_drains_goes_to_its_newest_owner() -> None:
    harness = Ranges()
    harness.fetch(record(0, LOW[0]))
    harness.of("A").start()
    harness.move(B="low")
    harness.fetch(record(1, LOW[0]))
    harness.move(C="low")
    harness.fetch(record(2, LOW[0]))
    assert harness.sub().draining.pending(slot_of(LOW[0])) == 1
    harness.of("A").finish()
    harness.of("A").start()
    harness.deliver()
    assert (harness.has("B"), harness.has("C")) == ([], [1, 2])


def test_a_slot_does_not_wait_for_another_that_runs_in_the_same_slice() -> None:
    """What of a slice has ended is known at the next commit, while the rest still runs."""
    harness = Ranges()
    harness.fetch(record(0, LOW[0]), record(1, LOW[1]))
    a = harness.of("A")
    a.start()
    a.finish()
    assert a.start() is not None  # the second runs for long
    harness.move(B="low")
    harness.fetch(record(2, LOW[0]), record(3, LOW[1]))
    assert harness.has("B") == []
    harness.commit()
    assert harness.has("B") == [2]
    a.finish()
    assert harness.work() == [2, 3]


def test_a_lane_may_fail_at_its_new_worker_while_the_slice_that_it_was_in_goes_on() -> None:
    """Found by the simulation: what had ended there was taken for a lease of the closed lane."""
    harness = Ranges()
    harness.fetch(record(0, LOW[0]), record(1, LOW[1]))
    a, b = harness.of("A"), harness.of("B")
    a.start()
    a.finish()
    a.start()
    harness.move(B="low")
    harness.fetch(record(2, LOW[0]))
    harness.commit()
    b.start()
    b.finish(ERROR)
    b.start()
    harness.deliver()
    b.start()
    harness.deliver()
    harness.later(1.0)
    assert b.start() is not None, "and runs again, with every rule checked"
    b.finish()
    a.finish()
    assert harness.work() == []
    assert harness.committed() == (3, [])


def drained_before_the_tick() -> Ranges:
    """A slot that went from A to B has drained, a record waits in it, and the tick is 0.2 s off."""
    names = ("A", "B", "C")
    harness = Ranges(SubscriptionSettings(workers=names, unblocking_interval=0.2))
    harness.fetch(record(0, LOW[0]))
    harness.of("A").start()
    harness.move(B="low")
    harness.fetch(record(1, LOW[0]))
    harness.of("A").finish()
    harness.of("A").start()
    harness.deliver()
    return harness


def test_with_an_interval_slots_open_together_at_the_tick_and_what_waited_goes_first() -> None:
    harness = drained_before_the_tick()
    assert harness.sub().draining.count == 0
    assert harness.has("B") == []
    harness.fetch(record(2, LOW[0]))
    harness.later(0.1)
    assert harness.has("B") == []
    harness.later(0.11)
    assert harness.has("B") == [1, 2]
    assert harness.core.next_due() is None


def test_a_slot_that_has_drained_opens_at_once_when_the_table_changes_before_the_tick() -> None:
    harness = drained_before_the_tick()
    assert harness.has("B") == []
    harness.move(B="low")
    assert harness.sub().table.slots_to(harness.sub().draining.row.routed) == set()
    assert harness.has("B") == [1]


def test_a_slot_for_which_nobody_waits_opens_without_the_tick() -> None:
    harness = Ranges(SubscriptionSettings(workers=("A", "B", "C"), unblocking_interval=0.2))
    harness.fetch(record(0, LOW[0]))
    harness.of("A").start()
    harness.move(B="low")
    harness.of("A").finish()
    harness.of("A").start()
    harness.deliver()
    assert harness.core.next_due() is None, "nobody is woken"
    harness.fetch(record(1, LOW[0]))
    assert harness.has("B") == [1]


# --- failures ---


def test_a_fresh_record_never_overtakes_one_of_its_key_that_waits_for_its_next_attempt() -> None:
    harness = Ranges()
    harness.fetch(record(0, LOW[0]), record(1, LOW[0]))
    a = harness.of("A")
    a.start()
    harness.move(B="low")
    a.finish(ERROR)
    a.start()
    harness.deliver()
    a.start()
    harness.deliver()
    harness.fetch(record(2, LOW[0]))
    assert harness.sub().draining.count == 0
    assert harness.has("B") == []
    harness.later(0.2)
    assert harness.has("B") == [0]
    assert harness.work() == [0, 1, 2]


def test_a_retry_that_is_due_waits_for_its_slot_to_drain() -> None:
    """Another key of the slot runs there still."""
    one, other = colliding_keys()
    harness = Harness(SubscriptionSettings(workers=("A", "B")))
    harness.assign()
    harness.fetch(record(0, one))
    old = harness.owner_of(record(0, one))
    old.start()
    old.finish(ERROR)
    old.start()
    harness.deliver()
    old.start()  # the fence
    harness.deliver()
    harness.fetch(record(1, other))
    assert old.start() is not None  # the other key, for long
    harness.tell(ev.Resize("default", ["B" if old.name == "A" else "A"]))
    harness.later(1.0)
    assert harness.sub().draining.count == 1
    assert [closed.head for closed in harness.sub().draining.row.retries] != []
    assert harness.worker(1 - old.index).given == {}
    old.finish()
    assert harness.work() == [0]
    assert harness.committed() == (2, [])


# --- workers that go ---


def test_a_worker_that_leaves_admits_nothing_and_is_gone_when_its_last_lease_has_ended() -> None:
    harness = Harness(SubscriptionSettings(workers=("A", "B")))
    harness.assign()
    harness.fetch(*one_each(SPREAD))
    left = harness.owner_of(record(0, LOW[0]))
    stays = "B" if left.name == "A" else "A"
    running = left.start()
    assert running is not None
    harness.tell(ev.Resize("default", [stays]))
    leaving = harness.sub().workers[left.index]
    assert (leaving.state, leaving.leased) == (WorkerState.LEAVING, 1)
    harness.fetch(*one_each(SPREAD, 20))
    assert leaving.leased == 1
    assert cmd.EndWorker("default", left.index) not in harness.seen
    left.finish()
    done = [running.offset(), *harness.work()]
    assert sorted(done) == [*range(40)]
    assert cmd.EndWorker("default", left.index) in harness.seen
    assert [each.name for each in harness.sub().workers.values()] == [stays]
    assert harness.committed() == (40, [])


def test_of_a_worker_that_died_the_slots_open_when_it_is_gone_and_its_records_go_first() -> None:
    harness = Harness(SubscriptionSettings(workers=("A", "B")))
    harness.assign()
    harness.fetch(record(0, LOW[0]), record(1, LOW[0]))
    dead = harness.owner_of(record(0, LOW[0]))
    dead.start()
    dead.die()
    harness.pool.replaceable = False
    harness.beat(EVICT_AFTER)
    harness.fetch(record(2, LOW[0]))
    assert harness.sub().draining.count == 1
    harness.deliver()
    assert harness.sub().draining.count == 0
    harness.later(0.2)
    assert harness.work() == [0, 1, 2]


def test_a_worker_that_was_dismissed_and_dies_for_good_is_given_up() -> None:
    harness = Harness(SubscriptionSettings(workers=("A", "B")))
    harness.assign()
    harness.fetch(record(0, LOW[0]))
    old = harness.owner_of(record(0, LOW[0]))
    old.start()
    harness.tell(ev.Resize("default", ["B" if old.name == "A" else "A"]))
    old.die()
    harness.pool.replaceable = False
    harness.beat(EVICT_AFTER)
    harness.deliver()
    harness.later(0.2)
    assert harness.work() == [0]
    assert len(harness.sub().workers) == 1


def test_a_name_that_comes_back_while_its_worker_still_leaves_is_another_worker() -> None:
    """Leases go by the numbers of workers: those of the old one drain to the new one."""
    harness = Harness(SubscriptionSettings(workers=("A", "B")))
    harness.assign()
    harness.fetch(record(0, LOW[0]))
    old = harness.owner_of(record(0, LOW[0]))
    old.start()
    harness.tell(ev.Resize("default", ["B" if old.name == "A" else "A"]))
    harness.tell(ev.Resize("default", ["A", "B"]))
    new = harness.owner_of(record(0, LOW[0]))
    assert (new.name, new.index) == (old.name, 2)
    harness.fetch(record(1, LOW[0]))
    assert harness.sub().draining.count == 1
    assert new.given == {}
    old.finish()
    assert harness.work() == [1]
    assert harness.committed() == (2, [])


@pytest.mark.parametrize("names", [[], [""], ["A", "A"]])
def test_workers_that_cannot_be_are_refused_and_nothing_changes(names: list[str]) -> None:
    harness = Harness(SubscriptionSettings(workers=("A", "B")))
    with pytest.raises(ConfigError, match="give at least one name, none of them empty or twice"):
        harness.tell(ev.Resize("default", names))
    assert [each.name for each in harness.sub().workers.values()] == ["A", "B"]


# --- the rule of Pulsar 3.x ---


def test_who_joins_recently_gets_nothing_new_until_all_that_came_before_is_settled() -> None:
    settings = SubscriptionSettings(workers=("A",), new_workers_wait=True)
    harness = Harness(settings)
    harness.assign()
    harness.fetch(*one_each(SPREAD))
    running = harness.worker(0).start()
    assert running is not None
    harness.tell(ev.Resize("default", ["A", "B"]))
    joined = next(each for each in harness.sub().workers.values() if each.name == "B")
    before = joined.leased
    assert joined.state is WorkerState.JOINING
    assert before, "it takes part in what came before"
    harness.fetch(*one_each(SPREAD, 20))
    b = harness.worker(joined.id)
    while (found := b.start()) is not None:
        assert found.offset() < 20
        b.finish()
        harness.deliver()
    harness.beat()
    assert joined in harness.sub().changing, "one of before still runs"
    assert not joined.later.empty()
    harness.worker(0).finish()
    rest = harness.work()
    assert max(rest) >= 20
    harness.beat()
    assert harness.sub().changing == []
    assert {each.state for each in harness.sub().workers.values()} == {WorkerState.ACTIVE}
    assert sorted([*rest, *harness.work()])[-1] == 39
    assert harness.committed() == (40, [])


def test_who_joins_recently_gets_no_record_without_a_key_either() -> None:
    harness = Harness(SubscriptionSettings(workers=("A",), new_workers_wait=True))
    harness.assign()
    harness.fetch(record(0, SPREAD[0]))
    assert harness.worker(0).start() is not None
    harness.tell(ev.Resize("default", ["A", "B"]))
    joined = next(each for each in harness.sub().workers.values() if each.name == "B")
    harness.fetch(record(1, None), record(2, None), record(3, None))
    assert joined.leased == 0
    harness.worker(0).finish()
    assert sorted(harness.work()) == [1, 2, 3]
    harness.beat()
    harness.fetch(record(4, None), record(5, None))
    assert joined.leased == 1


def test_who_joins_where_nothing_is_held_waits_for_nobody() -> None:
    harness = Harness(SubscriptionSettings(workers=("A",), new_workers_wait=True))
    harness.assign()
    harness.tell(ev.Resize("default", ["A", "B"]))
    assert harness.sub().workers[1].state is WorkerState.ACTIVE


def test_who_joins_and_is_all_that_is_left_waits_for_nobody() -> None:
    harness = Harness(SubscriptionSettings(workers=("A",), new_workers_wait=True))
    harness.assign()
    harness.fetch(record(0, LOW[0]))
    harness.tell(ev.Resize("default", ["B"]))
    harness.beat()
    harness.fetch(*one_each(SPREAD[:5], 1))
    assert sorted(harness.work()) == [*range(6)]


@pytest.mark.parametrize("meanwhile", ["it has caught up", "slots move"])
def test_a_key_that_is_read_late_stays_behind_what_has_waited_for_who_joins(meanwhile: str) -> None:
    """The key is read in the same beat in which what has waited waits no longer, or is B's anew."""
    moves, there = meanwhile == "slots move", ("A", "C", "B")
    ring = Harness(SubscriptionSettings(workers=there))
    own = {ring.owner_of(record(0, key)).name: key for key in SPREAD}
    asked: list[int] = []

    def key_of(each: Record) -> bytes:
        asked.append(each.offset())
        if asked == [0, 1, 2]:
            raise Retry(EVICT_AFTER * 0.5)
        return own["B" if each.offset() else "A"]

    harness = Harness(SubscriptionSettings(workers=there[:2], new_workers_wait=True, key_of=key_of))
    harness.assign()
    harness.fetch(record(0))
    running = harness.worker(0)
    running.start()
    if moves:
        harness.worker(1).die()
        harness.pool.replaceable = False
    harness.tell(ev.Resize("default", there))
    harness.fetch(record(1), record(2))
    waits_at(harness, "B")
    harness.beat(EVICT_AFTER - 1)
    if moves:
        harness.beat()
    running.finish()
    assert harness.work() == []
    harness.beat()
    assert asked == [0, 1, 2, 2]
    assert harness.work() == [1, 2]


def test_who_joins_does_not_wait_for_what_comes_with_a_partition_that_was_given_up() -> None:
    """B and C would wait for each other: each has what the other takes for older than itself."""
    harness = Harness(SubscriptionSettings(workers=("A",), new_workers_wait=True))
    harness.assign(P0)
    harness.fetch(*one_each(SPREAD))
    harness.tell(ev.Join("default", "B"))
    harness.revoke(P0)
    harness.assign(P1)
    harness.fetch(*[record(offset, key, P1) for offset, key in enumerate(SPREAD)])
    harness.tell(ev.Join("default", "C"))
    harness.assign(P0)
    harness.fetch(*one_each(SPREAD))
    waits_at(harness, "B")
    waits_at(harness, "C")
    harness.work()
    for _ in range(3):
        harness.beat()
        harness.work()
    assert harness.core.unsettled_count() == 0
    (commit,) = harness.commit()
    assert {each: entry.position for each, entry in commit.entries.items()} == {P0: 20, P1: 20}


def test_who_joined_earlier_is_there_for_who_joins_now_as_soon_as_it_has_caught_up() -> None:
    """B has all that it waited for when A goes, and no beat has said so: C is not alone with it."""
    harness = Harness(SubscriptionSettings(workers=("A",), new_workers_wait=True))
    harness.assign()
    harness.fetch(record(0, LOW[0]))
    harness.tell(ev.Resize("default", ["A", "B"]))
    assert harness.work() == [0]
    harness.fetch(record(1, None))
    assert harness.worker(0).start() is not None
    harness.tell(ev.Resize("default", ["B", "C"]))
    harness.beat()
    states = {each.name: each.state for each in harness.sub().workers.values() if each.present}
    assert states == {"B": WorkerState.ACTIVE, "C": WorkerState.JOINING}


def waits_at(harness: Harness, name: str) -> Worker:
    """One that joins, while records wait for it that have come since."""
    found = next(each for each in harness.sub().workers.values() if each.name == name)
    assert found.state is WorkerState.JOINING
    assert not found.later.empty()
    return found


@pytest.mark.parametrize("stays", ["A", "B"])
def test_what_came_since_stays_behind_what_came_before_whoever_gets_it(stays: str) -> None:
    """Who joins leaves again, or is all that is left, while both wait for it."""
    settings = SubscriptionSettings(workers=("A",), new_workers_wait=True, prefetch_records=2)
    harness = Harness(settings)
    harness.assign()
    some = SPREAD[:10]
    harness.fetch(*one_each(some), *one_each(some, 10), *one_each(some, 20))
    harness.worker(0).start()
    harness.tell(ev.Resize("default", ["A", "B"]))
    harness.fetch(*one_each(some, 30))
    joined = waits_at(harness, "B")
    assert not joined.row.empty()
    harness.worker(0).finish()
    harness.tell(ev.Resize("default", [stays]))
    harness.beat()
    ran = [0, *harness.work()]
    for key in range(10):
        assert [offset for offset in ran if offset % 10 == key] == [
            key,
            key + 10,
            key + 20,
            key + 30,
        ]


def test_what_waited_behind_a_failure_goes_before_what_came_since() -> None:
    """A lane fails at C, whose slots go to B; and B has joined since a record that still runs."""
    retry = RetryPolicy(backoff=5.0, jitter=0.0)
    settings = SubscriptionSettings(workers=("A", "C"), new_workers_wait=True, retry=retry)
    harness, then = Harness(settings), Harness(replace(settings, workers=("A", "B")))
    harness.assign()
    ones = [record(0, key) for key in keys(0, SLOTS - 1)]
    harness.fetch(next(each for each in ones if harness.owner_of(each).name == "A"))
    running = harness.worker(0).start()
    assert running is not None
    harness.tell(ev.Resize("default", ["A", "C", "B"]))
    moves = [each for each in ones if harness.owner_of(each).name == "C"]
    key = next(each.key() for each in moves if then.owner_of(each).name == "B")
    harness.fetch(record(1, key), record(2, key))
    harness.worker(1).start()
    harness.worker(1).finish(ERROR)
    while harness.worker(1).busy:
        harness.worker(1).step()
    harness.deliver()
    harness.tell(ev.Resize("default", ["A", "B"]))
    harness.fetch(record(3, key))
    waits_at(harness, "B")
    harness.later(5.0)
    b = harness.worker(2)
    assert offsets([b.start() or running]) == [1]
    b.finish()
    harness.worker(0).finish()
    assert harness.work() == []
    harness.beat()
    assert harness.work() == [2, 3]


# --- counts ---


def test_a_lease_that_nobody_waits_for_is_refused_before_anything_is_counted() -> None:
    harness = Ranges()
    with pytest.raises(InvariantError, match="slot 7 has drained, and one more"):
        harness.sub().draining.one_less(7)
    assert (harness.sub().draining.count, harness.sub().draining.cleared_total) == (0, 0)


def test_each_slot_that_has_drained_is_counted_once() -> None:
    harness = Ranges()
    harness.fetch(record(0, LOW[0]), record(1, HIGH[0]))
    harness.of("A").start()
    harness.move(B="low")
    harness.move(C="low")
    assert (harness.sub().draining.count, harness.sub().draining.cleared_total) == (1, 0)
    harness.of("A").finish()
    harness.work()
    assert (harness.sub().draining.count, harness.sub().draining.cleared_total) == (0, 1)


# --- what waits ---


def test_what_waits_is_found_by_its_slot_also_when_a_partition_has_gone() -> None:
    slots = DrainingSlots(OwnKeys("topic", "any"))
    one, other = record(0, LOW[0], at=P1), record(0, LOW[1])
    slots.row.backlog.extend([one, other])
    assert slots.blocks(slot_of(LOW[0]))
    slots.forget({P1})
    assert not slots.blocks(slot_of(LOW[0]))
    assert slots.take(lambda slot: slot == slot_of(LOW[1]))[0] == [other]
    assert slots.empty()


def test_what_waits_is_found_by_its_slot_also_when_more_has_come_back() -> None:
    slots = DrainingSlots(OwnKeys("topic", "any"))
    one, other, third = record(0, LOW[0]), record(1, LOW[1]), record(2, LOW[0])
    slots.row.backlog.extend([third])
    assert slots.blocks(slot_of(LOW[0]))
    slots.row.front += [other, one]
    slots.merge()
    assert slots.blocked() == {slot_of(LOW[0]): 2, slot_of(LOW[1]): 1}
    assert slots.take(lambda slot: slot == slot_of(LOW[0]))[0] == [one, third]
    assert [*slots.waiting()] == [other]


# --- what onlookers are told ---


def test_the_status_names_what_drains_where_and_what_waits_for_it() -> None:
    harness = Ranges()
    harness.fetch(record(0, LOW[0]))
    harness.of("A").start()
    harness.move(B="low")
    harness.fetch(record(1, LOW[0]), record(2, LOW[0]), record(3, LOW[1]))
    (sub,) = status_of(harness).subscriptions
    assert [sub.draining_slots, sub.draining_pending_records] == [1, 1]
    assert [sub.draining_blocked_records, sub.drained_slots] == [2, 0]
    at_a, *others = sub.workers
    assert at_a.draining == (DrainingSlot(slot=slot_of(LOW[0]), pending=1, blocked=2, owner="B"),)
    assert [each.draining for each in others] == [(), ()]
    harness.of("A").finish()
    harness.work()
    (sub,) = status_of(harness).subscriptions
    assert [sub.draining_slots, sub.draining_pending_records] == [0, 0]
    assert [sub.draining_blocked_records, sub.drained_slots] == [0, 1]
    assert {each.draining for each in sub.workers} == {()}


def test_what_every_worker_has_is_listed_when_it_is_asked_for() -> None:
    harness = Ranges()
    harness.fetch(record(0, LOW[0]), record(1, LOW[1]), record(2, None))
    harness.of("A").start()
    harness.move(B="low")
    found = status_of(harness, pending=True).subscriptions[0].pending
    assert found is not None
    assert [(each.offset, each.worker, each.slot) for each in found if each.running] == [
        (0, "A", slot_of(LOW[0]))
    ]
    assert sorted((each.offset, each.worker, each.slot) for each in found if not each.running) == [
        (1, "B", slot_of(LOW[1])),
        (2, next(each.worker for each in found if each.offset == 2), None),
    ]
    assert [each.draining for each in found if each.running] == [True]
    assert not any(each.draining for each in found if not each.running)
    assert status_of(harness).subscriptions[0].pending is None

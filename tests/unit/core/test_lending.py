"""Lending: what waits for a worker that one record holds up goes to the others, and comes back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_keyshared.core import events as ev
from kafka_keyshared.core.lanes import LaneState, lane_of
from kafka_keyshared.core.lending import LOOK_EVERY, RETURNS_AFTER, UNHURRIED
from kafka_keyshared.core.retry_policy import RetryPolicy
from kafka_keyshared.core.routing.modes import RoutingSettings
from kafka_keyshared.core.settings import SubscriptionSettings
from kafka_keyshared.core.workers import Worker
from kafka_keyshared.hashing import slot_of
from kafka_keyshared.sim.stepped import SteppedWorker
from tests.support.harness import Harness
from tests.support.observed import status_of
from tests.support.records import ERROR, FakeRecord, record

AFTER = 0.05
LONG = 4 * AFTER
"""So long it takes for a worker to be seen, to lend, and to get its slots back."""

THREE = ("a", "b", "c")

PLAIN = SubscriptionSettings(
    workers=THREE,
    lend_after=AFTER,
    retry=RetryPolicy(attempts=5, backoff=0.0, jitter=0.0),
)


class Held(Harness):
    """Three workers. Keys of one of them are ``mine``, and it runs a record of the first."""

    def __init__(self, settings: SubscriptionSettings = PLAIN, *, behind: int = 3) -> None:
        super().__init__(settings)
        self.assign()
        keys: dict[int, list[bytes]] = {}
        for key in (b"%d" % number for number in range(60)):
            keys.setdefault(self.owner_of(record(0, key)).index, []).append(key)
        self.mine, self.others = keys[0], keys[1]
        self.offset = 0
        self.first = self.write(self.mine[0])
        self.behind = [self.write(key) for key in self.mine[1 : behind + 1]]
        self.fetch(self.first, *self.behind)
        self.held_up = self.worker(0)
        assert self.held_up.start() is self.first

    def write(self, key: bytes | None) -> FakeRecord:
        """A record of the key, the next one."""
        self.offset += 1
        return record(self.offset - 1, key)

    def come(self, *keys: bytes | None) -> list[FakeRecord]:
        """Fetch a record of each key."""
        new = [self.write(key) for key in keys]
        self.fetch(*new)
        return new

    def at(self, item: FakeRecord) -> int | None:
        """The worker that was given the record, and has not ended it."""
        for worker in self.sub().workers.values():
            for leased in worker.slices.values():
                if any(leased.slice.records[index] is item for index in leased.indices()):
                    return worker.id
        return None

    def owner(self, item: FakeRecord) -> int:
        """Whose the record's slot is just now."""
        return self.owner_of(item).index

    def state(self, index: int = 0) -> Worker:
        """The core's state of a worker."""
        return self.sub().workers[index]

    def lends(self, index: int = 0) -> bool:
        """Whether a worker lends its slots."""
        return self.state(index).loan is not None

    def run_all(self, worker: SteppedWorker) -> list[int]:
        """Let a worker do what it has; return the offsets in the order of their ends."""
        ended = []
        while worker.busy:
            if worker.running is not None:
                ended.append(worker.running.offset())
                worker.finish()
            worker.step()
        self.deliver()
        return ended

    def beside(self) -> list[int]:
        """Let all but the one that is held up do what there is; return the offsets, sorted."""
        ended: list[int] = []
        while True:
            before = len(ended)
            for worker in [*self.pool.workers.values()]:
                if worker is not self.held_up:
                    ended += self.run_all(worker)
            if len(ended) == before:
                return sorted(ended)


def test_what_a_held_up_worker_has_not_started_goes_to_those_who_idle() -> None:
    held = Held()
    assert [held.at(each) for each in held.behind] == [0, 0, 0]
    held.look(AFTER)
    assert not held.lends(), "nobody has seen it for so long yet"
    held.look(AFTER)
    assert held.lends()
    assert {held.at(each) for each in held.behind} <= {1, 2}
    assert held.at(held.first) == 0
    assert held.beside() == [1, 2, 3]


def test_what_comes_for_it_goes_to_the_others_too_and_the_key_that_holds_it_waits() -> None:
    held = Held()
    held.look(LONG)
    same, other, keyless = held.come(held.mine[0], held.mine[5], None)
    assert held.at(same) == 0
    assert held.at(other) in (1, 2)
    assert held.at(keyless) in (1, 2)
    assert held.beside() == [1, 2, 3, other.offset(), keyless.offset()]
    held.held_up.finish()
    assert held.work() == [same.offset()]


def test_its_slots_come_back_when_it_gets_on_and_each_waits_for_what_runs_of_it() -> None:
    held = Held()
    held.look(LONG)
    runs = next(each for each in (held.worker(1), held.worker(2)) if each.start() is not None)
    item = runs.running
    assert isinstance(item, FakeRecord)
    held.run_all(held.held_up)
    held.look(AFTER)
    assert held.lends(), "not at once, or a key that is always slow would have it lend for ever"
    held.look(LONG)
    assert not held.lends()
    (later,) = held.come(item.key())
    assert held.at(later) is None, "the one ahead of it still runs where it was lent to"
    (free,) = held.come(held.mine[5])
    assert held.at(free) == 0
    runs.finish()
    held.run_all(runs)
    assert held.owner(later) == 0
    held.run_all(held.held_up)
    assert later.offset() in held.run_all(held.held_up)
    lending = held.sub().lending
    assert lending is not None
    assert (lending.lent_total, lending.returned_total) == (1, 1)


def test_a_key_that_is_always_slow_keeps_its_worker_and_the_rest_stays_lent() -> None:
    held = Held()
    held.look(LONG)
    held.beside()
    for _ in range(10):
        held.come(held.mine[0], held.mine[1])
        held.held_up.finish()
        held.deliver()
        assert held.held_up.start() is not None
        held.beside()
        held.look(AFTER + LOOK_EVERY)
        assert held.lends()
    lending = held.sub().lending
    assert lending is not None
    assert (lending.lent_total, lending.returned_total) == (1, 0)


def test_where_nobody_idles_it_takes_ten_times_as_long() -> None:
    held = Held()
    busy = [held.worker(1), held.worker(2)]
    for _ in range(3):
        held.come(*(b"more-%d" % number for number in range(60)))
    # They have more than they can do, and get on.
    for _ in range(round((UNHURRIED - 2) * AFTER / LOOK_EVERY)):
        for each in busy:
            each.start()
            each.finish()
        held.look()
        assert not held.lends()
    for _ in range(round(UNHURRIED * AFTER / LOOK_EVERY) + UNHURRIED):
        for each in busy:
            each.start()
            each.finish()
        held.look()
    assert held.lends()
    assert held.state().row.empty()


def test_a_worker_with_nothing_behind_its_record_lends_nothing() -> None:
    held = Held(behind=0)
    held.look(2.0)
    assert not held.lends()
    held.come(held.mine[1])
    held.look(LOOK_EVERY)
    assert not held.lends(), "how long it has run is known from looks, and there were none"
    held.look(LONG)
    assert held.lends()


def test_while_nothing_waits_nobody_is_looked_at() -> None:
    held = Held(behind=0)
    held.now += 1.0
    assert not held.core.look_wanted(held.now)
    held.come(held.mine[1])
    assert not held.core.look_wanted(held.now), "it was asked just now"
    held.now += LOOK_EVERY
    assert held.core.look_wanted(held.now)
    assert not held.core.look_wanted(held.now + LOOK_EVERY / 2)


def test_who_has_lent_slots_and_is_held_up_too_lends_them_on() -> None:
    held = Held(behind=8)
    held.look(LONG)
    borrower = held.worker(1)
    assert borrower.start() is not None
    second = borrower.running
    assert isinstance(second, FakeRecord)
    held.run_all(held.worker(2))
    held.come(held.others[0])
    held.look(1.0)
    assert held.lends(0)
    assert held.lends(1)
    assert held.state(0).loan is not None
    assert set(held.state(0).loan.takers) == {2}  # type: ignore[union-attr]
    held.run_all(held.worker(2))
    assert held.sub().leased == 2
    # What it runs is a slot that it has only borrowed: it stays there until it ends.
    assert held.owner(second) == 1


def test_where_all_are_held_up_nothing_moves() -> None:
    held = Held()
    held.come(*held.others)
    held.come(*(b"all-%d" % number for number in range(60)))
    for index in (1, 2):
        held.worker(index).start()
    held.look(2.0)
    assert not any(map(held.lends, range(3)))


def test_a_lane_whose_fence_stands_behind_the_record_goes_on() -> None:
    """F fails, the owner sends a fence, and the worker begins what never ends before that comes."""
    held = Held(behind=0)
    key = held.mine[1]
    fails, again, hangs = held.come(key, key, held.mine[3])
    held.held_up.finish()
    assert held.held_up.start() is fails
    held.held_up.finish(ERROR)
    assert held.held_up.start() is hangs, "what followed was set aside"
    held.deliver()
    closed = held.sub().closed.lanes[lane_of(fails)]
    assert closed.fence_at == 0
    held.come(held.mine[4])
    held.look(LONG)
    assert held.lends()
    assert closed.fence_at is None
    assert held.beside() == [fails.offset(), again.offset(), hangs.offset() + 1]
    held.held_up.finish()
    held.work()
    assert held.committed() == (held.offset, [])


def test_a_lane_that_went_on_so_keeps_to_one_lease_when_the_slice_ends_in_which_it_failed() -> None:
    held = Held(replace(PLAIN, max_leases_per_key=1), behind=0)
    key = held.mine[1]
    fails, hangs = held.come(key, held.mine[3])
    held.run_all(held.worker(1))
    held.held_up.finish()
    assert held.held_up.start() is fails
    held.held_up.finish(ERROR)
    assert held.held_up.start() is hangs
    held.deliver()
    _, second, third = held.come(held.mine[4], key, key)
    held.look(LONG)
    assert held.beside() == [fails.offset(), hangs.offset() + 1, second.offset(), third.offset()]
    again, behind = held.come(key, key)
    runs = held.at(again)
    assert runs in (1, 2)
    held.held_up.finish()
    held.held_up.start()
    held.deliver()
    assert held.at(behind) is None, "the one ahead of it still has the lease of the key"
    held.work()
    assert held.committed() == (held.offset, [])


@pytest.mark.parametrize(
    "stays",
    [
        {"lend_after": None},
        {"hands_over": True},
        {"instances": True},
        {
            "routing": RoutingSettings(
                "sticky",
                {
                    name: [(at * 21_845, at * 21_845 + 21_844 + (at == 2))]
                    for at, name in enumerate(THREE)
                },
            )
        },
        {"routing": RoutingSettings(filters={"a": ["1*"]})},
    ],
    ids=["not wanted", "state", "instances", "ranges", "filters"],
)
def test_what_somebody_has_declared_and_what_has_state_stays(stays: dict[str, object]) -> None:
    held = Held(replace(PLAIN, **stays))  # type: ignore[arg-type]
    held.look(2.0)
    assert not held.lends()
    assert not held.core.look_wanted(held.now + 1.0)


def test_who_leaves_or_joins_meanwhile_changes_what_is_lent_and_to_whom() -> None:
    held = Held(behind=8)
    held.look(LONG)
    assert {held.at(each) for each in held.behind} == {1, 2}
    held.tell(ev.Resize("default", ["a", "b"]))
    assert held.state(0).loan is not None
    assert set(held.state(0).loan.takers) == {1}  # type: ignore[union-attr]
    assert {held.at(each) for each in held.behind} == {1}
    held.tell(ev.Resize("default", ["a"]))
    assert not held.lends()
    # As if nobody had ever lent anything: all of it waits for the one that is left.
    assert len(held.state(0).row) + held.state(0).leased == 9
    held.tell(ev.Resize("default", THREE))
    held.look(LONG)
    assert held.lends()
    held.tell(ev.Resize("default", ["b", "c"]))
    assert not held.lends()
    held.beside()
    held.held_up.finish()
    held.work()
    assert held.committed() == (9, [])


def test_a_stuck_record_ends_the_loan_because_its_worker_goes_on() -> None:
    held = Held(replace(PLAIN, ack_timeout=1.0))
    held.look(LONG)
    assert held.lends()
    held.beat(5)
    held.deliver()
    assert held.sub().closed.lanes[lane_of(held.first)].state is LaneState.STUCK
    held.look(LONG)
    assert not held.lends()
    assert held.owner(record(0, held.mine[5])) == 0


def test_a_full_window_is_not_looked_through_more_often_than_it_may_cost() -> None:
    """A change looks at all that is held; so the next one waits the longer the more that is."""
    held = Held(replace(PLAIN, window_records=20_000))
    held.checks = False
    held.come(*(held.mine[0] for _ in range(10_000)))
    held.look(LONG)
    assert held.lends()
    held.beside()
    held.state().loan = None  # as if it had got on
    held.look(0.3)
    assert not held.lends()
    held.look(0.2)
    assert held.lends()


def test_one_lease_per_key_goes_along() -> None:
    held = Held(replace(PLAIN, max_leases_per_key=1), behind=2)
    again = held.come(held.mine[1])[0]
    held.look(LONG)
    assert held.lends()
    assert held.beside() == [1, 2, again.offset()]
    held.held_up.finish()
    held.work()
    assert held.committed() == (4, [])


@pytest.mark.parametrize("most", [None, 1])
def test_what_has_ended_in_the_slice_of_the_record_keeps_nobody_waiting(most: int | None) -> None:
    """The worker has done a, and b holds it up: nothing of a is out, although its slice is."""
    held = Held(replace(PLAIN, max_leases_per_key=most), behind=0)
    held.held_up.finish()
    done, hangs, behind = held.come(held.mine[1], held.mine[2], held.mine[3])
    assert held.held_up.start() is done
    held.held_up.finish()
    assert held.held_up.start() is hangs
    held.look(LONG)
    assert held.at(behind) in (1, 2)
    assert not held.sub().draining.pending(slot_of(held.mine[1]))
    (later,) = held.come(held.mine[1])
    assert held.at(later) in (1, 2)
    assert held.beside() == [behind.offset(), later.offset()]
    held.held_up.finish()
    held.work()
    assert held.committed() == (5, [])


def test_it_returns_after_twice_the_time_in_which_it_got_on() -> None:
    held = Held()
    held.look(LONG)
    held.run_all(held.held_up)
    held.look(RETURNS_AFTER * AFTER - LOOK_EVERY)
    assert held.lends()
    held.look(2 * LOOK_EVERY)
    assert not held.lends()


# --- what is told of it ---


def test_a_status_says_who_lends_to_whom_and_how_often_that_was() -> None:
    held = Held()
    held.look(LONG)
    (sub,) = status_of(held).subscriptions
    assert [each.lends_to for each in sub.workers] == [("b", "c"), (), ()]
    assert (sub.loans, sub.returned) == (1, 0)
    held.run_all(held.held_up)
    held.look(LONG)
    (sub,) = status_of(held).subscriptions
    assert [each.lends_to for each in sub.workers] == [(), (), ()]
    assert (sub.loans, sub.returned) == (1, 1)


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (AFTER, "its key waits; the others of that worker are with other workers"),
        (None, "its key and the others of that worker wait"),
    ],
)
def test_the_warning_says_who_waits_for_a_record_that_runs_for_long(
    after: float | None, said: str
) -> None:
    held = Held(replace(PLAIN, warn_after=1.0, lend_after=after))
    held.look(LONG)
    held.beat(4)
    assert held.said(f"has been running on a for 1 s; {said}")

"""The settled set never outgrows the commit metadata: ceilings, and what is parked beyond."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.events import Fetched
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.offsets.commit_metadata import decode, encode
from kafka_keyshared.core.offsets.positions import collect, derive
from kafka_keyshared.core.partitions.offset_ceilings import Ceilings, lease_end
from kafka_keyshared.core.routing.modes import RoutingSettings
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.model import TopicPartition
from tests.support.commit_texts import here
from tests.support.core_harness import Harness
from tests.support.records import ERROR, P0, P1, FakeRecord, record

SPAN = 17_000
"""Offsets of which any pattern fits in the metadata as a bitmap; a little more do."""


def workers(count: int) -> tuple[str, ...]:
    return tuple(f"worker-{index}" for index in range(count))


def covered(harness: Harness) -> set[int]:
    """Commit, and return the offsets of P0 that the broker then calls settled."""
    (commit,) = harness.commit(final=True)
    entry = commit.entries[P0]
    assert not harness.said("does not fit")
    found = decode(entry.metadata, here(entry.position))
    runs = found.sections.get("default", ())
    return {*range(entry.position), *(o for start, end in runs for o in range(start, end))}


# --- what a clean stop must not forget ---


def test_with_a_tenth_of_the_keys_failing_at_full_speed_nothing_settled_is_forgotten() -> None:
    settings = SubscriptionSettings(workers=workers(8), retry=RetryPolicy(attempts=1))
    harness = Harness(settings)
    harness.checks = False
    harness.assign(P0)
    done: list[int] = []
    bad = {offset: [ERROR] for offset in range(0, 40_000, 10)}
    at = 0
    for _ in range(80):
        room = min(2_000, harness.core.room())
        if room and P0 not in harness.paused:
            harness.fetch(*[record(each, str(each)) for each in range(at, at + room)])
            at += room
        done += [each for each in harness.work(bad) if each not in bad]
        harness.later(0.02)
    assert len(done) > 10_000
    assert set(done) <= covered(harness)


@pytest.mark.parametrize("attempts", [1, 1_000], ids=["blocked at once", "tried again"])
def test_no_burst_of_failures_between_two_commits_makes_a_set_that_does_not_fit(
    attempts: int,
) -> None:
    """Judged after each event, not when the next commit finds it: no time passes here at all."""
    budget = 300
    settings = SubscriptionSettings(
        workers=workers(4), retry=RetryPolicy(attempts=attempts), window_records=100_000
    )
    harness = Harness(settings, set_budget=budget)
    harness.checks = False
    harness.assign(P0)
    chance = random.Random(7)
    bad = {offset: [ERROR] * 9 for offset in range(8_000) if chance.random() < 0.3}
    settled = largest = 0
    for at in range(0, 8_000, 500):
        harness.fetch(*[record(each, str(each)) for each in range(at, at + 500)])
        settled += sum(offset not in bad for offset in harness.work(bad, rounds=10_000))
        largest = max(largest, size_of_set(harness, budget))
    assert settled > 200
    assert largest > budget / 2, "and it is made use of"


def size_of_set(harness: Harness, budget: int) -> int:
    """What a commit of P0 would take now; nothing is looked at, or raised, for it."""
    sub, state = harness.sub(), harness.core.partitions[P0]
    assert state.received_end is not None
    held = {sub.name: collect(sub.unsettled.records(harness.pool.progress())).get(P0, {})}
    found = derive(state.received_end, held, state.restored, harness.core.ceilings.of(P0))
    text = encode(here(found.position), found.runs, {}, set_budget=budget)
    assert not text.truncated, f"a set that does not fit, of {len(found.runs[sub.name])} runs"
    return len(text.text)


def test_behind_one_slow_record_nothing_settled_is_forgotten_and_others_go_on() -> None:
    harness = Harness(SubscriptionSettings(workers=workers(4)))
    harness.checks = False
    harness.assign(P0)
    slow = record(0, "slow")
    harness.fetch(slow)
    stuck = harness.owner_of(slow)
    stuck.start()
    done: list[int] = []
    at = 1
    for _ in range(60):
        room = min(2_000, harness.core.room())
        if room and P0 not in harness.paused:
            harness.fetch(*[record(each, str(each)) for each in range(at, at + room)])
            at += room
        for worker in harness.pool.workers.values():
            while worker is not stuck and (item := worker.start()) is not None:
                worker.finish()
                done.append(item.offset())
        harness.deliver()
        harness.later(0.05)
    assert len(done) > SPAN / 2
    assert set(done) <= covered(harness)
    stuck.finish()
    left = harness.work(rounds=50_000)
    for _ in range(50):
        harness.later(0.1)
        left += harness.work(rounds=50_000)
    assert sorted([*done, *left]) == list(range(1, at))


def test_a_partition_of_which_no_start_is_known_begins_at_its_own_first_record() -> None:
    """Not at what the client says of it, nor at one of another topic, and far behind its start."""
    other = TopicPartition("bills", P0.partition)
    harness = Harness(set_budget=60)
    harness.assign(P0, P1, other, position=None)
    event = FakeRecord(P0, 7, None, error="an event")
    chunk = [record(9, "a", other), event, record(5_000, "b", P1), record(70_000, "c")]
    harness.fetch(*chunk, record(70_001, "c"), record(10, "a", other), record(5_001, "b", P1))
    begin = {P0: 70_000, P1: 5_000, other: 9}
    ceilings = harness.sub().parking.ceilings
    assert {each: at < ceilings[each] < at + 1_000 for each, at in begin.items()} == dict.fromkeys(
        begin, True
    )
    harness.fetch(*[record(70_002 + at, str(at)) for at in range(2_000)])
    assert harness.sub().parking.parked.keys() == {P0}


def test_gaps_beyond_the_ceiling_do_not_fill_the_set() -> None:
    harness = Harness(set_budget=60)
    harness.assign(P0)
    harness.fetch(record(0, "stuck"))
    harness.worker().start()
    # A compacted topic: each gap looks settled, and none of these records may start yet.
    harness.fetch(*[record(offset, str(offset)) for offset in range(1_000, 4_000, 3)])
    assert harness.sub().parking
    assert covered(harness).isdisjoint(range(1_000, 4_000, 3))


def test_a_restored_set_is_kept_until_its_offsets_are_below_the_ceiling() -> None:
    runs = ((1, 2), (900, 1_800))
    harness = Harness(set_budget=60)
    harness.assign(P0, metadata=encode(here(0), {"default": runs}).text, log=(0, 5_000))
    harness.fetch(*[record(offset, str(offset)) for offset in range(4_000)])
    held = {each.offset() for each in harness.sub().unsettled.held()}
    assert held == {0, *range(2, 900), *range(1_800, 4_000)}
    assert harness.sub().parking.ceilings[P0] < 900
    assert not harness.commit(final=True)  # there is nothing new to say
    assert harness.worker().start() is not None
    harness.worker().finish()
    assert harness.worker().start() is not None
    assert covered(harness) == {0, 1, *range(900, 1_800)}


# --- what it costs ---


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The times at which all that is held was walked over."""
    times: list[float] = []
    look = Ceilings.look

    def counted(self: Ceilings, progress: object, now: float) -> object:
        times.append(now)
        return look(self, progress, now)  # type: ignore[arg-type]

    monkeypatch.setattr(Ceilings, "look", counted)
    yield times


@pytest.mark.parametrize("key", ["keys", "null keys"])
def test_at_full_speed_the_ceiling_follows_without_a_walk_over_what_is_held(
    looks: list[float], key: str
) -> None:
    harness = Harness(SubscriptionSettings(workers=workers(4)))
    harness.checks = False
    harness.assign(P0, P1)
    harness.fetch(record(0, "first"), record(0, "first", P1))
    harness.work()
    harness.commit()
    before = len(looks)
    started = 0
    for chunk in range(100):
        first = 1 + chunk * 1_000
        offsets = range(first, first + 1_000)
        name = None if key == "null keys" else "k"
        harness.fetch(
            *[record(o, name and f"{name}{o % 97}") for o in offsets],
            *[record(o, name and f"{name}{o % 89}", P1) for o in offsets],
        )
        started += len(harness.work(rounds=50_000))
        assert not harness.sub().parking
    assert started == 200_000
    assert len(looks) == before


def test_while_nothing_ends_nobody_looks_again(looks: list[float]) -> None:
    harness = Harness(set_budget=60)
    harness.assign(P0)
    harness.fetch(record(0, "stuck"))
    harness.worker().start()
    harness.fetch(*[record(offset, str(offset)) for offset in range(1, 1_000)])
    before = len(looks)
    for _ in range(50):
        harness.later(1.0)
        harness.tell(Fetched([], {P0: 1_000}))
    assert len(looks) <= before + 1
    assert harness.core.next_due() is None


def test_a_record_beyond_a_gap_in_the_log_waits_for_no_commit() -> None:
    """Nothing is held that would have to end first; it ran only when the next commit had looked."""
    harness = Harness()
    harness.assign(P0, P1, position=0)
    harness.commit()
    harness.fetch(record(2 * SPAN, b"a"))
    harness.later(0.01)
    assert harness.work() == [2 * SPAN], "the first record of a compacted partition"
    harness.commit()
    harness.fetch(record(4 * SPAN, b"a"), record(4 * SPAN + 1, b"b"))
    harness.later(0.01)
    assert harness.work() == [4 * SPAN, 4 * SPAN + 1]


def test_what_is_parked_is_looked_for_again_once_something_has_ended() -> None:
    harness = Harness(set_budget=60)
    harness.assign(P0)
    harness.fetch(record(0, "stuck"))
    harness.worker().start()
    harness.fetch(*[record(offset, str(offset)) for offset in range(1, 1_000)])
    harness.later(0.1)  # it looks once for what is parked
    assert harness.core.next_due() is None
    harness.worker().finish()
    harness.worker().start()
    harness.deliver()
    due = harness.core.next_due()
    assert due is None or due <= harness.now + 0.1


# --- the bound itself ---


@pytest.mark.parametrize("room", [0, 1, 5])
def test_the_record_at_the_position_may_always_be_leased(room: int) -> None:
    runs = tuple((offset, offset + 1) for offset in range(2, 400, 2))
    assert lease_end(0, 0, [], runs, room) == 1


def test_unsettled_records_one_by_one_take_no_room_when_they_settle() -> None:
    held = list(range(0, 1_000, 2))
    size = 2 * 500 + 10
    assert lease_end(0, 1_000, held, (), size) >= 1_000


def test_a_record_is_routed_in_order_behind_what_was_parked_before_it() -> None:
    harness = Harness(SubscriptionSettings(window_records=40_000), set_budget=60)
    harness.assign(P0)
    harness.fetch(record(0, "stuck"))
    worker = harness.worker()
    worker.start()
    first: list[FakeRecord] = [record(offset, "same") for offset in range(1, 600)]
    harness.fetch(*first)
    harness.fetch(*[record(offset, "same") for offset in range(600, 1_200)])
    worker.finish()
    started: list[int] = []
    for _ in range(50):
        started += harness.work()
        harness.later(0.1)
    assert started == list(range(1, 1_200))


def test_marks_are_not_believed_where_a_dead_worker_left_newer_records_before_older_ones() -> None:
    settings = SubscriptionSettings(workers=workers(2), prefetch_records=2)
    harness = Harness(settings, set_budget=44)
    harness.assign(P0)
    first, second = harness.worker(0), harness.worker(1)
    keys = {
        harness.owner_of(record(0, name)).index: name
        for name in (f"key-{number}" for number in range(50))
    }
    harness.fetch(record(0, keys[1]))
    harness.work()
    harness.commit()
    before = harness.sub().parking.ceilings[P0]
    harness.fetch(*[record(offset, keys[1]) for offset in range(1, 5)])
    harness.fetch(*[record(offset, keys[0]) for offset in range(5, before - 2)])
    first.die()
    harness.pool.replaceable = False
    harness.beat(7)
    while (item := second.start()) is None or item.offset() < 6:
        if item is not None:
            second.finish()
        harness.deliver()
    held = {each.offset() for each in harness.sub().unsettled.waiting()} | {
        each.offset()
        for leased in harness.sub().unsettled.leases()
        for each in leased.slice.records
    }
    harness.fetch(*[record(offset, keys[1]) for offset in range(before - 2, before + 8)])
    assert min(held) < 5
    assert harness.sub().parking.ceilings[P0] <= before + min(held) - 1


def test_where_nothing_is_left_to_run_a_look_is_not_put_off_for_long() -> None:
    """With one lease per key only looks raise ceilings; the owner once stood still for them."""
    member = Harness(SubscriptionSettings(one_in_flight_per_key=True, window_records=20_000))
    member.checks = False
    member.assign()
    waited = 0.0
    for start in range(0, 100_000, 20_000):
        chunk = range(start, start + 20_000)
        member.fetch(*(record(offset, b"key-%d" % (offset % 1_000)) for offset in chunk))
        while member.core.unsettled_count():
            member.work(rounds=1_000_000)
            due = member.core.next_due()
            if due is not None and due > member.now:
                waited += due - member.now
                member.now = due
            member.tell(ev.LeaseDue())
    assert waited < 0.1, f"the owner had nothing to do for {waited:.2f} s"


def test_the_end_of_one_partition_is_no_mark_for_what_is_held_of_others() -> None:
    """That one is at its end is told alone: of the others no received end comes with it."""
    harness = Harness(SubscriptionSettings(workers=workers(2)), set_budget=60)
    harness.assign(P0, P1)
    slow, quick = (
        next(key for key in map(str, range(99)) if harness.owner_of(record(0, key)).index == index)
        for index in range(2)
    )
    harness.fetch(record(0, slow), record(0, slow, P1))
    harness.work()
    harness.commit()
    # Each other record of P1 waits in a slice whose first record is one of P0, and runs for long.
    noise = [record(at, slow if at % 2 else quick, P1) for at in range(1, 120)]
    others = [record(at, quick, P1) for at in range(120, 500)]
    for chunk in ([record(1, slow), *noise], others):
        harness.fetch(*chunk, ends={P0: 2})
        harness.worker(0).start()
        while harness.worker(1).busy:
            if harness.worker(1).start() is not None:
                harness.worker(1).finish()
            harness.deliver()
        harness.tell(Fetched([], {P1: chunk[-1].offset() + 1}))
    harness.commit(final=True)
    assert not harness.said("does not fit")


def test_what_came_back_for_a_worker_that_is_away_is_older_than_any_mark() -> None:
    """It waits apart from what has come for that worker since, and for nobody to merge the two."""
    names = workers(2)
    ranges = {names[0]: [(0, 32_767)], names[1]: [(32_768, 65_535)]}
    routing = RoutingSettings("sticky", ranges=ranges, on_unmatched="hold")
    harness = Harness(SubscriptionSettings(workers=names, routing=routing), set_budget=60)
    harness.assign(P0)
    stays, leaves = (
        next(key for key in map(str, range(99)) if harness.owner_of(record(0, key)).index == index)
        for index in range(2)
    )
    harness.fetch(*[record(at, leaves if at % 2 else stays) for at in range(60)])
    harness.tell(ev.Resize("default", names[:1]))
    harness.work()
    harness.commit()
    for first in range(60, 500, 100):
        harness.fetch(*[record(at, stays) for at in range(first, first + 100)])
        harness.work()
    harness.commit(final=True)
    assert len(harness.sub().unowned.away) == 30
    assert not harness.said("does not fit")


# --- one question for each chunk ---


def test_a_chunk_below_its_ceiling_is_admitted_and_sets_the_first_one_of_its_partition() -> None:
    harness = Harness()
    ceilings = harness.core.ceilings
    harness.assign(P0, position=None)
    assert ceilings.of(P0) == {}
    assert ceilings.admit({P0: 101}, [record(100)], harness.now)
    assert ceilings.of(P0)["default"] > SPAN


def test_a_chunk_beyond_its_ceiling_is_admitted_once_older_records_have_settled() -> None:
    harness = Harness(SubscriptionSettings(workers=workers(1)), set_budget=30)
    harness.assign(P0)
    ceiling = harness.core.ceilings.of(P0)["default"]
    harness.fetch(*[record(each, str(each)) for each in range(ceiling)])
    beyond = {P0: ceiling + 1}
    assert not harness.core.ceilings.admit(beyond, [record(ceiling)], harness.now)
    harness.work()
    assert harness.core.ceilings.admit(beyond, [record(ceiling)], harness.now + 1.0)
    assert harness.core.ceilings.of(P0)["default"] > ceiling

"""Each routing as a subscription runs by it: who gets what, what waits, what is settled unrun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.routing import ROUTING_VNODES, VnodeRing
from kafka_keyshared.core.routing.modes import RoutingMode, RoutingSettings
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.core.worker_changes.worker_lifecycle import EVICT_AFTER
from kafka_keyshared.core.workers.worker import Worker, WorkerState
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import SLOTS, slot_of
from tests.support.core_harness import Harness
from tests.support.records import P0, P1, FakeRecord, failure, record

HALF = SLOTS // 2
HALVES = {"worker-0": [(0, HALF - 1)], "worker-1": [(HALF, SLOTS - 1)]}
LOW = next(b"low-%d" % n for n in range(99) if slot_of(b"low-%d" % n) < HALF)
HIGH = next(b"high-%d" % n for n in range(99) if slot_of(b"high-%d" % n) >= HALF)
KEYS = [b"key-%d" % number for number in range(40)]


def settings(
    mode: RoutingMode = "ring",
    workers: int = 2,
    given: Mapping[str, Any] | None = None,
    **rest: Any,
) -> SubscriptionSettings:
    return SubscriptionSettings(
        workers=worker_names(workers), routing=RoutingSettings(mode, **(given or {})), **rest
    )


def started(*args: Any, **rest: Any) -> Harness:
    member = Harness(settings(*args, **rest))
    member.assign(P0, P1)
    return member


def one_of_each(start: int = 0) -> list[FakeRecord]:
    return [record(start + number, key) for number, key in enumerate(KEYS)]


def got(member: Harness) -> dict[str, list[int]]:
    """What each worker was given, by its name, in order."""
    sub = member.sub()
    names = {each.id: each.name for each in (*sub.workers.values(), *sub.gone.values())}
    found: dict[str, list[int]] = {}
    for command in member.seen:
        if isinstance(command, cmd.LeaseSlice):
            slice_ = command.slice
            found.setdefault(names[slice_.worker], []).extend(r.offset() for r in slice_.records)
    return found


def named(member: Harness, name: str) -> Worker:
    return next(each for each in member.sub().workers.values() if each.name == name)


def goes(member: Harness, name: str) -> None:
    """Let a worker die for good."""
    member.worker(named(member, name).id).die()
    member.pool.replaceable = False
    member.beat(EVICT_AFTER)
    member.deliver()
    assert name in member.sub().gone


# --- ranges ---


def test_a_key_goes_to_the_worker_that_its_slot_was_assigned_to() -> None:
    member = started("sticky", given={"ranges": HALVES})
    member.fetch(record(0, LOW), record(1, HIGH), record(2, LOW))
    member.work()
    assert got(member) == {"worker-0": [0, 2], "worker-1": [1]}


def test_weights_give_a_worker_so_much_more_of_the_ring() -> None:
    sub = started(given={"weights": {"worker-0": 3.0}}).sub()
    assert sub.table.shares[0] == pytest.approx(0.75, abs=0.08)


def test_a_worker_that_leaves_and_comes_back_has_the_weight_that_was_given_to_it() -> None:
    member = started(given={"weights": {"worker-1": 3.0}})
    before = member.sub().table.routing
    member.tell(ev.Resize("default", ["worker-0"]))
    member.tell(ev.Resize("default", ["worker-0", "worker-1"]))
    assert member.sub().table.routing == before
    assert member.sub().table.shares[named(member, "worker-1").id] > 0.6
    goes(member, "worker-1")
    member.tell(ev.Join("default", "worker-1"))
    assert member.sub().table.routing == before


def test_auto_split_gives_each_worker_half_of_the_largest_range() -> None:
    shares = started("auto-split", 4).sub().table.shares
    assert shares == pytest.approx(dict.fromkeys(range(4), 0.25), abs=1e-4)


def test_what_is_in_no_range_is_settled_unrun_and_counted_where_it_is_to_be_skipped() -> None:
    member = started("sticky", 1, {"ranges": {"worker-0": [(0, HALF - 1)]}, "on_unmatched": "skip"})
    member.fetch(record(0, HIGH), record(1, LOW), record(2, HIGH))
    assert member.work() == [1]
    assert member.committed() == (3, [])
    counts = member.sub().counts
    assert (counts.ok, counts.unmatched) == (1, 2)
    assert counts.processed.counts == {"orders": {"unmatched": 2, "ok": 1}}
    assert member.core.unsettled_count() == 0


def test_what_is_in_no_range_is_held_and_not_committed_where_it_is_to_be_held() -> None:
    member = started("sticky", 1, {"ranges": {"worker-0": [(0, HALF - 1)]}, "on_unmatched": "hold"})
    member.fetch(record(0, HIGH), record(1, LOW), record(2, HIGH))
    assert member.work() == [1]
    assert member.committed() == (0, [(1, 2)])
    assert member.said(f"orders-0@2 (key {HIGH!r}) is held: no worker that takes it is there")
    assert member.core.unsettled_count() == 2


def test_what_is_in_no_range_ends_the_instance_where_it_is_an_error() -> None:
    member = started(
        "sticky", 1, {"ranges": {"worker-0": [(0, HALF - 1)]}, "on_unmatched": "error"}
    )
    member.fetch(record(0, LOW), record(1, HIGH))
    assert len(member.halted) == 1
    assert f"orders-0@1 (key {HIGH!r}) is for none of the workers" in member.halted[0]
    member.work()
    assert member.committed() == (1, [])


def test_the_range_of_a_worker_that_left_waits_for_it_and_no_other_runs_it() -> None:
    member = started("sticky", given={"ranges": HALVES, "on_unmatched": "skip"})
    goes(member, "worker-1")
    member.fetch(record(0, HIGH), record(1, LOW), record(2, HIGH))
    assert member.work() == [1], "it was declared, so it is not skipped"
    assert member.committed() == (0, [(1, 2)])
    member.tell(ev.Join("default", "worker-1"))
    assert member.work() == [0, 2]
    assert member.committed() == (3, [])


@pytest.mark.parametrize("one_lease", [False, True])
def test_what_a_worker_had_when_it_left_waits_in_order_for_its_return(
    one_lease: bool,
) -> None:
    member = started("sticky", given={"ranges": HALVES}, one_in_flight_per_key=one_lease)
    member.fetch(*(record(offset, HIGH) for offset in range(5)))
    assert member.worker(1).start() is not None
    goes(member, "worker-1")
    member.fetch(*(record(offset, HIGH) for offset in range(5, 8)))
    member.later(60.0)
    assert member.work() == []
    member.tell(ev.Join("default", "worker-1"))
    member.later(60.0)
    assert member.work() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert member.committed() == (8, [])


def test_what_is_held_stops_its_partition_when_it_fills_a_quarter_of_the_window() -> None:
    member = started(
        "sticky",
        1,
        {"ranges": {"worker-0": [(0, HALF - 1)], "away": [(HALF, SLOTS - 1)]}},
        window_records=40,
    )
    member.fetch(*(record(offset, HIGH, P1) for offset in range(10)), record(0, LOW))
    assert member.paused == {P1}
    assert member.said("10 records of it are of slots that have no worker; other partitions go on")
    member.work()
    member.tell(ev.Join("default", "away"))
    member.work()
    member.beat()
    assert member.paused == set()


def test_what_is_held_goes_with_its_partition_and_settles_nothing() -> None:
    member = started("sticky", 1, {"ranges": {"away": [(0, SLOTS - 1)]}})
    member.fetch(record(0, "a"), record(0, "a", P1))
    sent = member.revoke(P1)
    assert [entry.position for commit in sent for entry in commit.entries.values()] in ([], [0])
    assert member.core.unsettled_count() == 1


# --- exclusive ---


def test_exclusive_gives_everything_in_one_order_to_the_first_in_name_order() -> None:
    member = started("exclusive", 3)
    member.fetch(record(0, "a"), record(0, None, P1), record(1, "b"), record(1, "c", P1))
    assert member.work() == [0, 0, 1, 1]
    assert [*got(member)] == ["worker-0"]


def test_the_next_in_name_order_takes_over_when_the_active_ones_leases_have_ended() -> None:
    member = started("exclusive", 3)
    member.fetch(*one_of_each())
    assert member.worker().start() is not None
    member.tell(ev.Tick(member.pool.progress(), departed=[("default", 0)]))
    assert [each.name for each in member.sub().workers.values() if each.leased] == ["worker-0"]
    member.deliver()
    member.later(60.0)
    assert member.work() == list(range(40)), "the one that ran has failed and goes first"
    assert set(got(member)) == {"worker-0", "worker-1"}
    assert member.committed() == (40, [])


def test_at_most_one_worker_of_an_exclusive_subscription_has_leases() -> None:
    member = started("exclusive", 1, individually=True, prefetch_records=4)
    sub = member.sub()
    for round_ in range(6):
        member.fetch(*one_of_each(40 * round_))
        ran = [member.worker(id_) for id_ in sub.workers if member.worker(id_).start()]
        assert len(ran) == 1
        member.tell(ev.Join("default", f"worker--{9 - round_}"))  # an earlier name each time
        assert sum(bool(worker.leased) for worker in sub.workers.values()) == 1
        ran[0].finish()
        member.deliver()
    member.work()
    assert member.committed() == (240, [])


def test_a_record_that_fails_holds_the_whole_subscription_until_it_has_succeeded() -> None:
    member = started("exclusive")
    member.fetch(record(0, "a"), record(1, "b"), record(2, None))
    assert member.work({0: [failure()]}) == [0]
    member.later(60.0)
    assert member.work() == [0, 1, 2]


def test_block_stops_the_whole_subscription() -> None:
    member = started("exclusive", retry=RetryPolicy(attempts=1))
    member.fetch(record(0, "a"), record(1, "b"))
    assert member.work({0: [failure()]}) == [0]
    member.fetch(record(0, "c", P1))
    member.later(600.0)
    assert member.work() == []
    assert member.committed() == (0, [])
    assert member.said("everything is blocked at orders-0@0: it failed (1 attempt")


def test_filters_and_state_by_slot_are_refused_together() -> None:
    routing = RoutingSettings(filters={"worker-0": ("a*",)}, on_unmatched="skip")
    with pytest.raises(ConfigError, match=r"filters, and a handler with release\(\) and adopt\(\)"):
        SubscriptionSettings(workers=("worker-0",), routing=routing, hands_over=True).check()


@pytest.mark.parametrize("on_exhausted", ["drop", "dead_letter", "divert"])
def test_exclusive_refuses_to_go_on_without_a_record(on_exhausted: str) -> None:
    with pytest.raises(ConfigError, match=f"on_exhausted='{on_exhausted}' goes on behind a record"):
        started("exclusive", on_exhausted=on_exhausted, dlq=True)


# --- unordered ---


def test_unordered_gives_each_record_to_whoever_has_least_whatever_its_key() -> None:
    member = started("unordered", 4)
    member.fetch(*(record(offset, "the same") for offset in range(8)))
    assert sorted(map(len, got(member).values())) == [2, 2, 2, 2]
    member.work()
    assert member.committed() == (8, [])


def test_without_order_a_record_that_waits_for_its_retry_keeps_no_other() -> None:
    member = started("unordered", 1)
    member.fetch(*(record(offset, "the same") for offset in range(3)))
    assert member.work({0: [failure()]}) == [0, 1, 2]
    assert member.committed() == (0, [(1, 3)])
    member.later(60.0)
    assert member.work() == [0]


def test_client_events_are_told_apart_where_no_key_is_looked_at() -> None:
    for mode in ("exclusive", "unordered"):
        member = started(mode)
        member.fetch(record(0), FakeRecord(P0, 7, None, error="an event"), record(1))
        assert len(member.client_events) == 1
        assert sorted(member.work()) == [0, 1]


@pytest.mark.parametrize("mode", ["exclusive", "unordered"])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"null_keys": "reject"}, "null_keys and routing="),
        ({"slot_function": "pulsar"}, "slot_function and routing="),
        ({"key_of": lambda _: b"x"}, "key and routing="),
    ],
)
def test_what_is_said_of_keys_is_refused_where_none_is_looked_at(
    mode: RoutingMode, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        started(mode, **given)


# --- filters ---

FILTERS = {"worker-0": ["eu-*"], "worker-1": ["us-*"]}


def test_a_worker_gets_the_keys_that_its_filters_take_and_no_others() -> None:
    member = started(given={"filters": FILTERS, "on_unmatched": "skip"})
    member.fetch(record(0, "eu-1"), record(1, "us-1"), record(2, "jp-1"), record(3, "eu-2"))
    assert sorted(member.work()) == [0, 1, 3]
    assert got(member) == {"worker-0": [0, 3], "worker-1": [1]}
    assert member.committed() == (4, [])
    assert member.sub().counts.unmatched == 1


def test_whom_a_key_is_for_is_decided_by_the_declared_filters_not_by_who_is_there() -> None:
    member = started(given={"filters": FILTERS, "on_unmatched": "skip"})
    goes(member, "worker-1")
    member.fetch(record(0, "us-1"), record(1, "eu-1"), record(2, "jp-1"))
    assert member.work() == [1]
    assert member.committed() == (0, [(1, 3)]), "us-1 is held, jp-1 is nobody's"
    member.tell(ev.Join("default", "worker-1"))
    assert member.work() == [0]


def test_a_catch_all_takes_the_keys_of_one_that_is_away_and_hands_them_over() -> None:
    member = started(given={"filters": {"worker-1": ["us-*"], "pay": ["pay"]}})
    member.fetch(record(0, "pay"), record(1, "pay"))
    assert member.worker(0).start() is not None, "worker-0 takes every key"
    member.tell(ev.Join("default", "pay"))
    joined = named(member, "pay")
    member.fetch(record(2, "pay"))
    both = [each.name for each in member.sub().workers.values() if each.leased]
    assert both == ["worker-0"], "its keys drain first"
    member.worker(0).finish()
    member.work()
    assert joined.state is WorkerState.ACTIVE
    assert member.committed() == (3, [])
    member.fetch(*(record(offset, "pay") for offset in range(3, 6)))
    member.work()
    assert member.committed() == (6, [])


def test_records_without_a_key_go_to_those_without_filters() -> None:
    member = started(given={"filters": {"worker-0": ["x"]}})
    member.fetch(*(record(offset, None) for offset in range(4)))
    member.work({1: [failure()]})
    member.later(60.0)
    member.work()
    assert [*got(member)] == ["worker-1"]
    assert member.committed() == (4, [])


def test_records_without_a_key_are_nobodys_where_everybody_filters_unless_they_are_a_key() -> None:
    given = {"filters": {"worker-0": ["x"], "worker-1": [b""]}, "on_unmatched": "skip"}
    member = started(given=given)
    member.fetch(record(0, None), record(1, "x"), record(2, b""))
    assert sorted(member.work()) == [1, 2]
    assert member.committed() == (3, [])
    member = started(given=given, null_keys="one-lane")
    member.fetch(record(0, None))
    assert member.work() == [0]
    assert [*got(member)] == ["worker-1"]


def test_records_without_a_key_wait_for_the_one_without_filters_that_is_away() -> None:
    member = started(given={"filters": {"worker-0": ["x"]}})
    goes(member, "worker-1")
    member.fetch(record(0, None), record(1, "x"))
    assert member.work() == [1]
    assert member.committed() == (0, [(1, 2)])
    member.tell(ev.Join("default", "worker-1"))
    assert member.work() == [0]


def test_a_worker_may_join_with_filters_of_its_own() -> None:
    member = started(given={"filters": {"worker-1": ["us-*"]}})
    member.tell(ev.Join("default", "jp", ["jp-*"]))
    member.fetch(*(record(offset, f"jp-{offset}") for offset in range(40)))
    member.work()
    assert set(got(member)) == {"worker-0", "jp"}
    member.tell(ev.Join("default", "any"))
    member.fetch(*(record(offset, f"us-{offset}") for offset in range(40, 80)))
    member.work()
    assert {"worker-1", "any"} <= set(got(member))
    assert member.committed() == (80, [])


def test_what_waits_for_a_slot_to_drain_stays_in_order_when_others_come_with_filters() -> None:
    member = started(workers=1, given={"filters": {"worker-0": ["k*"]}, "on_unmatched": "skip"})
    key = next(key for n in range(99) if _goes_to_b(key := b"k%d" % n))
    member.fetch(record(0, key))
    running = member.worker(0)
    assert running.start() is not None
    member.tell(ev.Join("default", "b", ["k*"]))
    member.fetch(record(1, key), record(2, key))
    member.tell(ev.Join("default", "z", ["z"]))
    member.fetch(record(3, key))
    member.tell(ev.Join("default", "c", ["k*"]))
    running.finish()
    assert member.work() == [1, 2, 3]
    assert member.committed() == (4, [])


def test_the_first_filters_may_come_with_a_worker_that_joins() -> None:
    member = started(workers=2)
    sub = member.sub()
    pay, other = _in_one_slot("worker-0", "pay")
    member.fetch(record(0, pay), record(1, other), record(2, pay), record(3, other))
    running = member.worker(0)
    assert running.start() is not None
    member.tell(ev.Join("default", "pay", [pay]))
    assert sub.routing.has_gaps
    assert sub.draining.count == 1
    assert sub.draining.pending(sub.keys.slot(pay)) == 1, "the slot of whoever takes that key"
    assert not sub.draining.pending(sub.keys.slot(other)), "another one than of the other key"
    member.fetch(record(4, pay), record(5, other))
    assert [each.offset() for each in sub.draining.waiting()] == [2, 4]
    running.finish()
    assert sorted(member.work()) == [1, 2, 3, 4, 5]
    had = got(member)
    assert had["pay"] == [2, 4]
    assert member.committed() == (6, [])
    member.fetch(*(record(offset, None) for offset in range(6, 12)))
    member.work()
    assert got(member)["pay"] == [2, 4], "and no record without a key"
    assert member.committed() == (12, [])


def test_the_first_filters_come_while_slots_drain_and_what_waits_stays_in_order() -> None:
    member = started(workers=1, unblocking_interval=0.3)
    pay, other = _in_one_slot("worker-0", "b", ["worker-0"])
    member.fetch(record(0, pay))
    running = member.worker(0)
    assert running.start() is not None
    member.tell(ev.Join("default", "b"))
    member.fetch(record(1, pay), record(2, other), record(3, pay))
    member.tell(ev.Join("default", "z", ["z"]))
    member.fetch(record(4, pay), record(5, other))
    running.finish()
    started_first = member.work()
    member.later(0.4)
    ran = started_first + member.work()
    assert [offset for offset in ran if offset in {1, 3, 4}] == [1, 3, 4]
    assert [offset for offset in ran if offset in {2, 5}] == [2, 5]
    assert member.committed() == (6, [])
    assert member.sub().draining.count == 0


def _in_one_slot(
    before: str, after: str, names: Sequence[str] = ("worker-0", "worker-1")
) -> tuple[bytes, bytes]:
    """Two keys of one slot, which is one worker's and another's when that has joined."""
    ring = VnodeRing(names, ROUTING_VNODES)
    joined = ring.with_worker(after)
    met: dict[int, bytes] = {}
    for number in range(20_000):
        slot = slot_of(key := b"pay-%d" % number)
        if ring.owner(slot) == before and joined.owner(slot) == after:
            if slot in met:
                return met[slot], key
            met[slot] = key
    raise AssertionError(f"no two keys of a slot that goes from {before} to {after}")


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ({"hands_over": True}, r"filters, and a handler with release\(\) and adopt\(\)"),
        ({"delivery": "at-most-once"}, "delivery='at-most-once' and routing='ring' with filters"),
    ],
)
def test_first_filters_that_could_not_have_been_given_at_the_start_are_refused(
    rest: dict[str, Any], said: str
) -> None:
    member = started(**rest)
    with pytest.raises(ConfigError, match=said):
        member.tell(ev.Join("default", "late", ["x"]))
    assert len(member.sub().workers) == 2
    member.tell(ev.Join("default", "late", ["*"]))
    assert not member.sub().routing.has_gaps, "whoever takes every key does not filter"


def test_first_filters_by_which_a_record_may_be_nobodys_are_refused_unless_it_is_said() -> None:
    ranges = {"worker-0": [(0, SLOTS - 1)]}
    member = started("sticky", given={"ranges": ranges})
    member.tell(ev.AssignRange("default", 0, 9, "worker-1", take_over=True))
    member.tell(ev.Resize("default", ["worker-0"]))
    with pytest.raises(ConfigError, match=r"no worker without filters has the slots 0\.\.9"):
        member.tell(ev.Join("default", "worker-1", ["x"]))
    assert [each.name for each in member.sub().workers.values()] == ["worker-0"]


def _goes_to_b(key: bytes) -> bool:
    return VnodeRing(["worker-0", "b"], ROUTING_VNODES).owner(slot_of(key)) == "b"


@pytest.mark.parametrize(
    ("mode", "given", "join", "said"),
    [
        ("exclusive", {}, ["x"], "Exclusive takes no filters: it looks at no key"),
        ("unordered", {}, ["x"], "Unordered takes no filters: it looks at no key"),
        ("ring", {"filters": {"worker-0": ["x"]}}, "x*", "give a list of patterns"),
    ],
)
def test_a_join_that_is_refused_changes_nothing(
    mode: RoutingMode, given: dict[str, Any], join: Sequence[str], said: str
) -> None:
    member = started(mode, given=given)
    sub = member.sub()
    before = (sub.table.version, sub.table.routing, [*sub.workers], [*sub.routing.places])
    with pytest.raises(ConfigError, match=said):
        member.tell(ev.Join("default", "late", join))
    assert (sub.table.version, sub.table.routing, [*sub.workers], [*sub.routing.places]) == before
    member.fetch(*one_of_each())
    assert sorted(member.work()) == list(range(40))


def test_where_nobody_filters_there_is_no_wide_slot_and_nothing_to_look_for() -> None:
    for given in ({}, {"filters": {"worker-0": ["*"], "worker-1": []}}):
        sub = started(given=given).sub()
        assert sub.keys.slot is slot_of
        assert not sub.routing.has_gaps
        assert isinstance(sub.table.rows, list)


# --- what does not go together ---


@pytest.mark.parametrize(
    ("mode", "given", "said"),
    [
        ("hash", {}, "routing='hash': give one of 'ring', 'sticky', 'auto-split', 'exclusive', 'u"),
        ("ring", {"ranges": HALVES}, "ranges are given and routing='ring' takes none"),
        ("exclusive", {"ranges": HALVES}, "ranges are given and routing='exclusive' takes none"),
        ("exclusive", {"filters": FILTERS}, "filters are given for worker-0, worker-1 and rout"),
        ("unordered", {"filters": FILTERS}, "because it looks at no key"),
        ("sticky", {}, "the sticky ranges are empty: give at least one worker a range"),
        ("sticky", {"ranges": {"worker-0": [(9, 0)]}}, "worker 'worker-0': range 9..0 is inverted"),
        (
            "sticky",
            {"ranges": {"worker-0": [(0, 9)], "worker-1": [(9, 20)]}},
            "range 0..9 of worker 'worker-0' and 9..20 of worker 'worker-1' overlap in 9..9",
        ),
        (
            "sticky",
            {"ranges": {"worker-0": [(0, 9)]}},
            "no worker has the slots 10..65535: give on",
        ),
        ("ring", {"weights": {"worker-0": 0}}, "worker 'worker-0' of the ring has the weight 0"),
        ("ring", {"weights": {"w": 1}}, "has a weight for 'w' and no such worker"),
        (
            "sticky",
            {"weights": {"worker-0": 2}},
            "weights are given and routing='sticky' takes non",
        ),
        ("ring", {"filters": FILTERS}, "no worker takes every key, each of worker-0, worker-1 has"),
        ("ring", {"filters": FILTERS, "on_unmatched": "drop"}, "on_unmatched='drop': give one of"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name_at_the_start(
    mode: RoutingMode, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=rf"subscription 'default': .*{said.replace('.', '[.]')}"):
        started(mode, given=given)


@pytest.mark.parametrize(
    ("mode", "given", "said"),
    [
        (
            "exclusive",
            {},
            "delivery='at-most-once' and routing='exclusive': records would have to wait",
        ),
        ("sticky", {"ranges": HALVES}, "delivery='at-most-once' and routing='sticky': records"),
        ("ring", {"filters": {"worker-0": ["x"]}}, "routing='ring' with filters: records"),
    ],
)
def test_without_reliability_no_record_waits_for_a_worker(
    mode: RoutingMode, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        started(mode, given=given, delivery="at-most-once")


def test_two_workers_of_one_name_are_refused() -> None:
    for mode in ("ring", "sticky", "auto-split", "exclusive", "unordered"):
        routing = RoutingSettings(mode, HALVES if mode == "sticky" else {})
        with pytest.raises(ConfigError, match="two workers named 'a'"):
            Harness(SubscriptionSettings(workers=("a", "b", "a"), routing=routing))

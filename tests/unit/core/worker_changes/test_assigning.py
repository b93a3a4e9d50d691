"""Ranges that are assigned while records run: who gets what, what waits, what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.routing.filters import OnUnmatched
from kafka_keyshared.core.routing.modes import RoutingMode, RoutingSettings
from kafka_keyshared.core.routing.ranges import StickyRanges
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import SLOTS, slot_of
from kafka_keyshared.lab.simulator.handlers import Ending
from kafka_keyshared.lab.simulator.stepped import TIMED_OUT
from kafka_keyshared.model import Record
from tests.support.core_harness import Harness
from tests.support.records import ERROR, record

HALF = SLOTS // 2
LAST = SLOTS - 1
LOW = next(b"low-%d" % n for n in range(99) if slot_of(b"low-%d" % n) < HALF)
ALSO_LOW = next(b"also-%d" % n for n in range(99) if slot_of(b"also-%d" % n) < HALF)
HIGH = next(b"high-%d" % n for n in range(99) if slot_of(b"high-%d" % n) >= HALF)
IN_HALVES = {"A": [(0, HALF - 1)], "B": [(HALF, LAST)]}

Ranges = Mapping[str, Sequence[tuple[int, int]]]


class Assigned(Harness):
    """Workers A and B, who have the low slots and the high ones, unless it is said otherwise."""

    def __init__(
        self,
        ranges: Ranges = IN_HALVES,
        *,
        workers: Sequence[str] = ("A", "B"),
        on_unmatched: OnUnmatched | None = None,
        filters: Mapping[str, Sequence[str]] | None = None,
        **rest: Any,
    ) -> None:
        chosen = RoutingSettings("sticky", ranges, {}, filters or {}, on_unmatched)
        super().__init__(SubscriptionSettings(workers=tuple(workers), routing=chosen, **rest))
        self.assign()

    def give(self, first: int, last: int, worker: str | None, *, take_over: bool = True) -> None:
        self.tell(ev.AssignRange("default", first, last, worker, take_over))

    @property
    def ranges(self) -> list[str]:
        """Who has what just now."""
        routing = self.sub().table.routing
        assert isinstance(routing, StickyRanges)
        return [f"{each.worker} {each}" for each in routing.ranges]

    def has(self, name: str) -> list[int]:
        """The offsets that a worker holds."""
        worker = next(each for each in self.sub().workers.values() if each.name == name)
        return [each.offset() for leased in worker.slices.values() for each in leased.records()]


# --- the mandatory drain ---


@pytest.mark.parametrize("last", [None, ERROR, TIMED_OUT], ids=["acked", "nacked", "expired"])
def test_a_holds_three_leases_the_range_goes_to_b_and_b_gets_nothing_until_as_last(
    last: Ending,
) -> None:
    """Celeriant's own example, with members: each lease is acknowledged by itself."""
    member = Assigned(individually=True)
    member.pool.answers_later = lambda: True  # what A holds it may start: nothing comes back
    member.fetch(*[record(offset, LOW) for offset in range(3)])
    assert member.has("A") == [0, 1, 2]
    member.give(0, HALF - 1, "B")
    assert member.ranges == [f"B 0..{LAST}"]
    member.fetch(record(3, LOW), record(4, LOW), record(5, HIGH))
    assert member.has("B") == [5], "what was its own all along is not kept from it"
    a = member.worker(0)
    member.pool.hesitates = lambda: True
    for ending in (None, None, last):
        assert not {0, 1, 2, 3, 4} & {*member.has("B")}
        assert member.sub().draining.pending(slot_of(LOW)) > 0
        started = a.start()
        assert started is not None
        a.finish(ending)
        member.deliver()
    a.step()
    member.pool.answers_later = member.pool.hesitates = lambda: False
    a.start()
    member.deliver()
    member.later(1.0)
    assert sorted(member.work()) == ([3, 4, 5] if last is None else [2, 3, 4, 5])
    assert member.has("A") == [] == member.has("B")
    assert member.committed() == (6, [])


def test_what_has_not_started_goes_with_its_range_at_once() -> None:
    member = Assigned()
    member.fetch(record(0, LOW), record(1, ALSO_LOW), record(2, LOW))
    assert member.worker(0).start() is not None
    member.give(0, HALF - 1, "B")
    assert member.has("A") == [0]
    assert member.has("B") == [1]
    member.worker(0).finish()
    assert member.work() == [1, 2]
    assert member.committed() == (3, [])


def test_a_part_of_a_range_may_be_moved_and_moved_back() -> None:
    member = Assigned()
    slot = slot_of(LOW)
    member.give(slot, slot, "B")
    assert member.ranges == [
        f"A 0..{slot - 1}",
        f"B {slot}..{slot}",
        f"A {slot + 1}..{HALF - 1}",
        f"B {HALF}..{LAST}",
    ]
    member.fetch(record(0, LOW))
    assert member.has("B") == [0]
    member.give(slot, slot, "A")
    assert member.has("A") == [0]
    assert member.ranges == [f"A 0..{HALF - 1}", f"B {HALF}..{LAST}"]


def test_slots_that_are_nobodys_are_assigned_and_what_was_held_for_them_runs() -> None:
    member = Assigned({"A": [(0, HALF - 1)]}, on_unmatched="hold")
    member.fetch(record(0, HIGH), record(1, LOW), record(2, HIGH))
    assert member.work() == [1]
    member.give(HALF, LAST, "B", take_over=False)
    assert member.has("B") == [0, 2]
    assert member.work() == [0, 2]
    assert member.committed() == (3, [])


def test_a_range_stays_assigned_while_workers_come_and_go() -> None:
    member = Assigned()
    member.give(0, HALF - 1, "B")
    member.tell(ev.Resize("default", ["B"]))
    member.tell(ev.Resize("default", ["A", "B", "C"]))
    assert member.ranges == [f"B 0..{LAST}"]
    member.give(0, 9, "C")
    assert member.ranges == ["C 0..9", f"B 10..{LAST}"]


def test_what_goes_to_a_worker_that_is_away_is_held_until_it_is_back() -> None:
    member = Assigned()
    member.tell(ev.Resize("default", ["A"]))
    member.fetch(record(0, LOW), record(1, LOW))
    member.worker(0).start()
    member.give(0, HALF - 1, "B")
    member.worker(0).finish()
    assert member.work() == []
    member.tell(ev.Resize("default", ["A", "B"]))
    assert member.work() == [1]


def test_an_assignment_that_changes_nothing_recalls_nothing() -> None:
    member = Assigned()
    member.fetch(record(0, LOW))
    before = member.sub().table.version
    member.give(3, 7, "A")
    assert member.sub().table.version == before
    assert member.has("A") == [0]


def test_state_goes_with_its_range() -> None:
    member = Assigned(hands_over=True)
    states: dict[int, dict[int, list[int]]] = {0: {}, 1: {}}

    def ended(_sub: str, worker: int, item: Record, _verdict: Ending) -> None:
        states[worker].setdefault(slot_of(item.key()), []).append(item.offset())

    def release(_sub: str, worker: int, slots: Sequence[int]) -> object:
        return {slot: states[worker].pop(slot) for slot in slots if slot in states[worker]}

    def adopt(_sub: str, worker: int, _slots: Sequence[int], state: Any) -> None:
        assert not states[worker].keys() & state.keys()
        states[worker].update(state)

    pool = member.pool
    pool.on_end, pool.on_release, pool.on_adopt = ended, release, adopt
    member.fetch(record(0, LOW))
    assert member.worker(0).start() is not None
    member.give(0, HALF - 1, "B")
    member.fetch(record(1, LOW))
    member.worker(0).finish()
    assert member.work() == [1]
    assert states == {0: {}, 1: {slot_of(LOW): [0, 1]}}


# --- nobody's ---


def test_slots_that_are_given_to_nobody_are_held_and_run_at_whoever_gets_them_next() -> None:
    member = Assigned(on_unmatched="hold")
    member.fetch(record(0, LOW), record(1, LOW), record(2, ALSO_LOW), record(3, HIGH))
    assert member.worker(0).start() is not None
    member.give(0, HALF - 1, None)
    assert member.ranges == [f"B {HALF}..{LAST}"]
    assert (member.has("A"), member.has("B")) == ([0], [3]), "what runs ends where it is"
    member.fetch(record(4, LOW))
    assert member.has("B") == [3]
    member.give(0, HALF - 1, "B", take_over=False)
    assert member.has("B") == [3, 2], "A still runs a record of the other key"
    assert member.sub().draining.pending(slot_of(LOW)) == 1
    member.worker(0).finish()
    assert [each for each in member.work() if each in {1, 4}] == [1, 4]
    assert member.committed() == (5, [])


def test_slots_that_are_given_to_nobody_are_skipped_what_had_not_started_included() -> None:
    member = Assigned(on_unmatched="skip")
    member.fetch(record(0, LOW), record(1, LOW), record(2, ALSO_LOW), record(3, HIGH))
    assert member.worker(0).start() is not None
    member.give(0, HALF - 1, None)
    assert member.sub().counts.unmatched == 2
    member.worker(0).finish()
    assert member.work() == [3]
    assert member.committed() == (4, [])
    assert member.core.unsettled_count() == 0


def test_what_is_skipped_by_an_order_is_committed_though_nothing_else_happens() -> None:
    member = Assigned(on_unmatched="skip", prefetch_records=1)
    member.fetch(record(0, LOW), record(1, ALSO_LOW))
    assert member.worker(0).start() is not None
    assert member.committed() == (0, [])
    assert not member.core.commit_wanted(member.now)
    member.give(slot_of(ALSO_LOW), slot_of(ALSO_LOW), None)
    member.later(60.0)
    assert member.core.commit_wanted(member.now)
    assert member.committed() == (0, [(1, 2)])


def test_slots_that_are_given_to_nobody_end_the_instance_where_that_is_an_error() -> None:
    member = Assigned(on_unmatched="error")
    member.fetch(record(0, HIGH))
    member.give(0, HALF - 1, None)
    assert not member.halted, "no record of them is here"
    member.fetch(record(1, LOW))
    (said,) = member.halted
    assert f"orders-0@1 (key {LOW!r}) is for none of the workers" in said


@pytest.mark.parametrize("last", [ERROR, TIMED_OUT], ids=["failed", "timed out"])
def test_a_failed_record_whose_slot_is_nobodys_by_then_goes_the_way_of_what_is_nobodys(
    last: Ending,
) -> None:
    member = Assigned(on_unmatched="skip", individually=True)
    member.fetch(record(0, LOW), record(1, LOW))
    assert member.worker(0).start() is not None
    member.give(0, HALF - 1, None)
    member.worker(0).finish(last)
    member.deliver()
    member.later(60.0)
    assert member.work() == []
    assert member.committed() == (2, [])
    assert member.core.unsettled_count() == 0


def test_what_comes_back_late_from_its_worker_is_skipped_as_soon_as_it_is_back() -> None:
    member = Assigned(on_unmatched="skip", individually=True)
    member.pool.answers_later = lambda: True
    member.fetch(record(0, LOW), record(1, LOW))
    member.give(0, HALF - 1, None)
    assert (member.has("A"), member.sub().counts.unmatched) == ([0, 1], 0)
    member.worker(0).step()
    member.deliver()
    assert (member.has("A"), member.sub().counts.unmatched) == ([], 2)


def test_the_last_range_may_be_given_to_nobody_too() -> None:
    member = Assigned({"A": [(0, LAST)]}, on_unmatched="hold")
    member.fetch(record(0, LOW))
    member.give(0, LAST, None)
    assert (member.ranges, member.work()) == ([], [])
    member.give(5, 9, "B")
    assert member.ranges == ["B 5..9"]
    member.give(0, LAST, "A")
    assert member.work() == [0]


def test_state_of_slots_that_are_nobodys_is_kept_for_whoever_gets_them_next() -> None:
    member = Assigned(hands_over=True, on_unmatched="hold")
    adopted: list[tuple[int, object]] = []
    member.pool.on_release = lambda _sub, worker, _slots: f"state of {worker}"
    member.pool.on_adopt = lambda _sub, worker, _slots, state: adopted.append((worker, state))
    member.fetch(record(0, LOW))
    assert member.work() == [0]
    member.give(0, HALF - 1, None)
    member.work()
    assert not adopted
    member.give(0, HALF - 1, "B")
    member.work()
    assert adopted == [(1, "state of 0")]


# --- what is refused ---


def assert_refused(member: Harness, event: ev.AssignRange, said: str) -> None:
    sub = member.sub()
    before = sub.table.version, sub.table.routing
    with pytest.raises(ConfigError, match=said):
        member.tell(event)
    assert (sub.table.version, sub.table.routing) == before


@pytest.mark.parametrize("take_over", [False, True])
@pytest.mark.parametrize(
    ("first", "last", "worker", "said"),
    [
        (9, 3, "B", "worker 'B': range 9..3 is inverted"),
        (0, SLOTS, "B", f"worker 'B': range 0..{SLOTS} is out of bounds: slots are 0..65535"),
        (-1, 3, "B", r"worker 'B': range -1..3 is out of bounds"),
        (0, 3, "Z", "range 0..3 is for worker 'Z', and there is none; give one of A, B"),
        (0, 1.5, "B", "worker 'B': range 0..1.5: slots are whole numbers"),
    ],
    ids=["inverted", "beyond", "below", "nobody's", "no number"],
)
def test_a_range_that_cannot_be_is_refused_by_name(
    first: int, last: int, worker: str, said: str, take_over: bool
) -> None:
    assert_refused(Assigned(), ev.AssignRange("default", first, last, worker, take_over), said)


@pytest.mark.parametrize(
    ("worker", "said"),
    [
        ("B", "range 0..32767 of worker 'A' and 5..9 of worker 'B' overlap in 5..9"),
        ("A", "range 0..32767 of worker 'A' and 5..9 of worker 'A' overlap in 5..9"),
    ],
)
def test_slots_that_somebody_has_are_refused_with_both_parties_unless_taken_over(
    worker: str, said: str
) -> None:
    assert_refused(Assigned(), ev.AssignRange("default", 5, 9, worker), said)


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        (9, 3, "unassigned: range 9..3 is inverted"),
        (0, SLOTS, f"unassigned: range 0..{SLOTS} is out of bounds"),
        (0, 9, r"no worker has the slots 0\.\.9: give on_unmatched='skip'"),
    ],
    ids=["inverted", "beyond", "nothing said of what is nobody's"],
)
def test_what_cannot_be_given_to_nobody_is_refused(first: int, last: int, said: str) -> None:
    assert_refused(Assigned(), ev.AssignRange("default", first, last, None), said)


@pytest.mark.parametrize("mode", ["ring", "auto-split", "exclusive", "unordered"])
def test_only_sticky_ranges_are_assigned(mode: RoutingMode) -> None:
    member = Harness(SubscriptionSettings(routing=RoutingSettings(mode)))
    said = f"subscription 'default' has routing='{mode}': ranges are assigned with routing='sticky'"
    assert_refused(member, ev.AssignRange("default", 0, 9, "worker-0"), said)


def test_a_take_over_by_which_a_record_may_be_nobodys_is_refused_unless_it_is_said_what_then() -> (
    None
):
    ranges = {"A": [(0, LAST)]}
    event = ev.AssignRange("default", 0, 9, "B", take_over=True)
    member = Assigned(ranges, filters={"B": ["b*"]})
    assert_refused(member, event, r"no worker without filters has the slots 0\.\.9")
    held = Assigned(ranges, filters={"B": ["b*"]}, on_unmatched="hold")
    held.tell(event)
    assert held.ranges == ["B 0..9", f"A 10..{LAST}"]

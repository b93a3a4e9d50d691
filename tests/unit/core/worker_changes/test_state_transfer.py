"""State follows its keys: released where they were, adopted before they run where they go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.lanes.closed import LaneState
from kafka_keyshared.core.routing.modes import RoutingSettings
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.core.worker_changes.worker_lifecycle import EVICT_AFTER
from kafka_keyshared.hashing import SLOTS, slot_of
from kafka_keyshared.lab.simulator.handlers import Ending
from kafka_keyshared.model import Record
from tests.support.core_harness import Harness
from tests.support.records import ERROR, FakeRecord, record

KEYS = [b"key-%d" % number for number in range(60)]

State = dict[int, list[int]]


class Stateful(Harness):
    """Workers that remember, by slot, the offsets that they have run, and hand that over."""

    def __init__(
        self,
        workers: Sequence[str] = ("A", "B"),
        ranges: Mapping[str, Sequence[tuple[int, int]]] | None = None,
        routing: RoutingSettings = RoutingSettings(),  # noqa: B008 - an immutable value
        **chosen: Any,
    ) -> None:
        routing = RoutingSettings("sticky", ranges) if ranges else routing
        super().__init__(
            SubscriptionSettings(workers=tuple(workers), hands_over=True, routing=routing, **chosen)
        )
        self.states: dict[int, State] = {}
        self.pool.on_end = self._ended
        self.pool.on_release = self._release
        self.pool.on_adopt = self._adopt
        self.assign()

    def _ended(self, _sub: str, worker: int, item: Record, verdict: Ending) -> None:
        if verdict is None:
            state = self.states.setdefault(worker, {})
            state.setdefault(slot_of(item.key()), []).append(item.offset())

    def _release(self, _sub: str, worker: int, slots: Sequence[int]) -> State:
        state = self.states.setdefault(worker, {})
        return {slot: state.pop(slot) for slot in slots if slot in state}

    def _adopt(self, _sub: str, worker: int, slots: Sequence[int], state: object) -> None:
        assert isinstance(state, dict)
        assert set(state) <= set(slots)
        mine = self.states.setdefault(worker, {})
        assert not mine.keys() & state.keys(), "a slot's state is at two workers"
        mine.update(state)

    def resize(self, *names: str) -> None:
        self.tell(ev.Resize("default", names))

    def everywhere(self) -> State:
        """What is remembered, and only by whoever has the slot."""
        owners = self.sub().table.owners
        found: State = {}
        for worker, state in self.states.items():
            for slot, offsets in state.items():
                assert owners[slot] == worker, f"slot {slot} is at {owners[slot]}, not {worker}"
                found[slot] = offsets
        return found


def one_each(start: int) -> list[FakeRecord]:
    return [record(start + at, key) for at, key in enumerate(KEYS)]


def expected(rounds: int) -> State:
    found: State = {}
    for number in range(rounds):
        for at, key in enumerate(KEYS):
            found.setdefault(slot_of(key), []).append(number * len(KEYS) + at)
    return found


def test_the_state_of_every_key_is_where_the_key_is_after_every_resize() -> None:
    harness = Stateful()
    sizes = [("A", "B", "C", "D", "E", "F", "G", "H"), ("A", "C", "E"), ("E",), ("A", "E")]
    for number, names in enumerate(sizes):
        harness.fetch(*one_each(number * len(KEYS)))
        first = harness.worker(min(id_ for id_ in harness.sub().workers)).start()
        harness.resize(*names)
        assert first is not None
        harness.worker(min(id_ for id_ in harness.sub().workers)).finish()
        harness.work()
        assert harness.everywhere() == expected(number + 1)
    assert [each.name for each in harness.sub().workers.values()] == ["E", "A"]
    assert harness.committed() == (len(sizes) * len(KEYS), [])


def test_a_slot_that_runs_is_released_when_its_last_record_has_ended() -> None:
    harness = Stateful(["A"])
    harness.fetch(record(0, KEYS[0]))
    old = harness.worker(0)
    old.start()
    harness.resize("B")
    harness.fetch(record(1, KEYS[0]))
    running = slot_of(KEYS[0])
    asked = [each for each in harness.seen if isinstance(each, cmd.Release)]
    assert len([slot for each in asked for slot in each.slots]) == 65_535
    assert not any(running in each.slots for each in asked)
    harness.deliver()
    new = harness.worker(1)
    assert new.start() is None
    old.finish()
    assert harness.work() == [1]
    assert harness.states == {0: {}, 1: {running: [0, 1]}}
    assert cmd.EndWorker("default", 0) in harness.seen, "and who leaves ends behind that"


@pytest.mark.parametrize("taker", ["B", "C"], ids=["another", "one that is away"])
def test_a_lane_that_opens_as_its_worker_goes_is_before_what_waited_for_its_slot(
    taker: str,
) -> None:
    """What it was to release is lost with it, so the slot opens in the same event."""
    chosen: dict[str, Any] = {"dlq": True, "on_exhausted": "dead_letter"}
    chosen["retry"] = RetryPolicy(attempts=1)
    chosen["one_in_flight_per_key"] = True  # so that they wait in the lane
    last_two = {"B": [(SLOTS - 2,) * 2], "C": [(SLOTS - 1,) * 2]}
    harness = Stateful(("A", "B"), {"A": [(0, SLOTS - 3)], **last_two}, **chosen)
    harness.fetch(*(record(offset, KEYS[0]) for offset in range(3)))
    old = harness.worker(0)
    old.start()
    harness.tell(ev.AssignRange("default", 0, SLOTS - 3, taker, take_over=True))
    harness.fetch(record(3, KEYS[0]))
    old.finish(ERROR)
    assert old.start() is None
    harness.deliver()
    harness.dead_letter()
    assert [lane.state for lane in harness.sub().closed.lanes.values()] == [LaneState.OPENING]
    harness.tell(ev.Tick({}, [], wall=0.0, departed=[("default", 0)]))
    harness.resize("B", "C")
    assert harness.work() == [1, 2, 3]


def test_nothing_of_a_slot_runs_before_its_state_has_come() -> None:
    harness = Stateful(["A"])
    harness.fetch(record(0, KEYS[0]))
    harness.work()
    harness.resize("B")
    harness.fetch(record(1, KEYS[0]))
    assert harness.sub().workers[1].leased == 0
    assert [each.offset() for each in harness.sub().draining.waiting()] == [1]
    harness.worker(0).start()  # releases
    harness.deliver()
    assert harness.sub().workers[1].leased == 1
    assert harness.work() == [1]
    assert harness.everywhere() == {slot_of(KEYS[0]): [0, 1]}


def test_a_slot_that_moves_on_while_its_state_is_on_the_way_takes_it_along() -> None:
    harness = Stateful(["A"])
    harness.fetch(*one_each(0))
    harness.work()
    harness.resize("B")
    harness.resize("B", "C")
    harness.fetch(*one_each(len(KEYS)))
    assert len(harness.work()) == len(KEYS)
    assert harness.everywhere() == expected(2)
    assert {1, 2} == {worker for worker, state in harness.states.items() if state}


def test_a_slot_that_comes_back_while_its_state_is_on_the_way_gets_it_back() -> None:
    harness = Stateful(["A", "B"])
    harness.fetch(*one_each(0))
    harness.work()
    harness.resize("A")
    harness.resize("A", "B")
    harness.fetch(*one_each(len(KEYS)))
    assert len(harness.work()) == len(KEYS)
    assert harness.everywhere() == expected(2)


def test_state_that_could_not_be_released_is_told_and_its_keys_begin_without() -> None:
    harness = Stateful(["A"])
    harness.fetch(record(0, KEYS[0]))
    harness.work()
    harness.resize("B")
    (asked,) = [each for each in harness.seen if isinstance(each, cmd.Release)]
    harness.worker(0).inbox.clear()
    harness.tell(ev.Reported([ev.Released("default", 0, asked.number, None, "KeyError: 7")]))
    assert harness.said("A: the state of 65536 slots is lost") or harness.said("65,536 slots")
    assert harness.said("release() failed: KeyError: 7")
    harness.fetch(record(1, KEYS[0]))
    assert harness.work() == [1]
    assert harness.states[1] == {slot_of(KEYS[0]): [1]}


@pytest.mark.parametrize("asked", [False, True])
def test_state_whose_worker_is_gone_for_good_is_not_waited_for(asked: bool) -> None:
    harness = Stateful(["A", "B"])
    harness.fetch(*one_each(0))
    harness.work()
    dead = harness.worker(0)
    lost = sum(owner == 0 for owner in harness.sub().table.owners)
    if asked:
        harness.resize("B")
    dead.die()
    harness.pool.replaceable = False
    harness.beat(EVICT_AFTER)
    harness.fetch(*one_each(len(KEYS)))
    assert len(harness.work()) == len(KEYS)
    assert len(harness.sub().workers) == 1
    text = (
        f"A: the state of {lost:,} slots is lost, so their keys start without state: "
        "its thread is gone"
    )
    assert [each.text for each in harness.notices if "is lost" in each.text] == [f"{text} for good"]


def test_state_of_a_member_that_leaves_before_it_has_released_it_is_not_waited_for() -> None:
    """It was dismissed and was asked for it; it will not answer any more."""
    harness = Stateful(["A", "B"])
    harness.fetch(*one_each(0))
    harness.work()
    harness.resize("B")
    harness.fetch(*one_each(len(KEYS)))
    for _ in range(2):  # it is told again until it has ended
        harness.tell(ev.Tick({}, [], departed=[("default", 0)]))
    assert len(harness.work()) == len(KEYS)
    assert [each.name for each in harness.sub().workers.values()] == ["B"]
    assert harness.said("is lost, so their keys start without state: its thread is gone for good")


# --- slots that are nobody's meanwhile ---

HALF = SLOTS // 2
HALVES = {"A": [(0, HALF - 1)], "B": [(HALF, SLOTS - 1)]}
ALL_OF_B = {"A": [(0, 9)], "B": [(10, SLOTS - 1)]}


def test_the_state_of_a_range_waits_for_its_worker_to_come_back() -> None:
    """Nobody has the slots meanwhile, and who had them ends: so it is kept in between."""
    harness = Stateful(ranges=HALVES)
    harness.fetch(*one_each(0))
    harness.work()
    harness.resize("A")
    harness.work()
    assert [each.name for each in harness.sub().workers.values()] == ["A"]
    assert not harness.states[1]
    harness.fetch(*one_each(len(KEYS)))
    harness.work()
    harness.resize("A", "B")
    harness.work()
    assert harness.everywhere() == expected(2)
    assert harness.committed() == (2 * len(KEYS), [])


def test_kept_state_goes_to_whoever_is_given_the_range_and_in_parts_where_several_are() -> None:
    harness = Stateful(("A", "B", "C"), ranges=ALL_OF_B)
    harness.fetch(*one_each(0))
    harness.work()
    harness.resize("A", "C")
    harness.work()
    harness.fetch(*one_each(len(KEYS)))
    harness.tell(ev.AssignRange("default", HALF, SLOTS - 1, "C", take_over=True))
    harness.tell(ev.AssignRange("default", HALF // 2, HALF - 1, "A", take_over=True))
    harness.work()
    harness.resize("A", "B", "C")
    harness.work()
    assert harness.everywhere() == expected(2)
    assert harness.committed() == (2 * len(KEYS), [])


@pytest.mark.parametrize("ends_first", [True, False])
def test_a_worker_that_leaves_in_a_record_gives_up_the_state_behind_it(ends_first: bool) -> None:
    """Its slots have no worker meanwhile; they have one again before it has ended, or after."""
    harness = Stateful(("A", "B"), ranges={"A": [(0, 9)], "B": [(10, SLOTS - 1)]})
    harness.fetch(*one_each(0))
    leaving = harness.worker(1)
    running = leaving.start()
    assert running is not None
    harness.resize("A")
    harness.fetch(*one_each(len(KEYS)))
    if ends_first:
        leaving.finish()
        harness.work()
    harness.resize("A", "B")
    slot = slot_of(running.key())
    assert not any(slot in state for worker, state in harness.states.items() if worker == 2)
    if not ends_first:
        assert harness.sub().draining.pending(slot) == 1
        leaving.finish()
    harness.work()
    assert harness.everywhere() == expected(2)
    assert harness.committed() == (2 * len(KEYS), [])


@pytest.mark.parametrize("names", [["B"], ["B", "C"], ["A", "B"]], ids=" ".join)
def test_where_all_keys_are_one_lane_their_state_stays_until_the_lane_has_drained(
    names: list[str],
) -> None:
    """What runs is of another key than the lane's slot, and is remembered when it ends."""
    harness = Stateful(["A"], routing=RoutingSettings("exclusive"))
    harness.fetch(*one_each(0))
    old = harness.worker(0)
    old.start()
    for each in (["B"], names):  # on to another, or back again
        harness.resize(*each)
    assert not [each for each in harness.seen if isinstance(each, cmd.Release)]
    old.finish()
    harness.fetch(*one_each(len(KEYS)))
    harness.work()
    assert harness.everywhere() == expected(2)
    assert harness.committed() == (2 * len(KEYS), [])

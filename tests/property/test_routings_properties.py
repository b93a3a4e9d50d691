"""Ranges, auto-split, weights and filters beside oracles that know every slot by itself."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafka_keyshared.core.routing import (
    AutoSplit,
    Filters,
    StickyRanges,
    Unowned,
    VnodeRing,
    moved,
)
from kafka_keyshared.core.routing.filters import matches
from kafka_keyshared.core.routing.port import Owner, Routing
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import SLOTS, fnv1a_32, murmur3_mix32
from tests.support.filtered_keys import owner_by
from tests.support.seeds import examples

RULES = settings(derandomize=True, deadline=None, max_examples=examples(40))
STEPS = settings(derandomize=True, deadline=None, max_examples=examples(15), stateful_step_count=15)

NAMES = ("a", "b", "c", "d")
slots = st.integers(0, SLOTS - 1)
# Around few bounds, so that ranges touch and overlap.
bounds = st.sampled_from([0, 1, 99, 100, 101, 200, 30_000, 30_001, SLOTS - 2, SLOTS - 1]) | slots


def by_partition(routing: Routing) -> list[Owner]:
    return [owner for first, last, owner in routing.spans() for _ in range(first, last + 1)]


# --- ranges ---


class Ranges(RuleBasedStateMachine):
    """Ranges assigned, taken over, left and taken up again; the oracle has a name for each slot."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str | None] = [None] * SLOTS
        self.there = ["a", "b"]
        self.ranges: StickyRanges

    @initialize(first=bounds, last=bounds)
    def begin(self, first: int, last: int) -> None:
        first, last = sorted((first, last))
        self.ranges = StickyRanges({"a": [(first, last)]}, workers=self.there)
        self.names[first : last + 1] = ["a"] * (last + 1 - first)

    @rule(first=bounds, last=bounds, worker=st.sampled_from(NAMES), over=st.booleans())
    def assign(self, first: int, last: int, worker: str, over: bool) -> None:
        before, old = by_partition(self.ranges), self.ranges
        known = worker in self.there or worker in self.names
        taken = first <= last and any(name is not None for name in self.names[first : last + 1])
        change = self.ranges.taken_over if over else self.ranges.assigned
        if not known or first > last or (taken and not over):
            with pytest.raises(ConfigError) as refused:
                change(first, last, worker)
            assert repr(worker) in str(refused.value)
            assert f"{first}..{last}" in str(refused.value)
            assert by_partition(self.ranges) == before
            return
        self.ranges = change(first, last, worker)
        self.names[first : last + 1] = [worker] * (last + 1 - first)
        after = by_partition(self.ranges)
        expected = [slot for slot in range(SLOTS) if before[slot] != after[slot]]
        assert moved(old, self.ranges) == expected
        assert all(first <= slot <= last for slot in expected)

    @rule(worker=st.sampled_from(NAMES))
    def come_or_go(self, worker: str) -> None:
        if worker not in self.there:
            self.ranges = self.ranges.with_worker(worker)
            self.there.append(worker)
        elif len(self.there) > 1:
            self.ranges = self.ranges.without_worker(worker)
            self.there.remove(worker)

    @invariant()
    def each_slot_is_whose_the_oracle_says(self) -> None:
        expected: dict[str | None, Owner] = dict.fromkeys(NAMES, Unowned.AWAY)
        expected[None] = Unowned.UNASSIGNED
        expected.update((name, name) for name in self.there)
        owners = [expected[name] for name in self.names]
        assert by_partition(self.ranges) == owners
        assert self.ranges.workers == tuple(self.there)
        nobodys = [slot for slot, name in enumerate(self.names) if name is None]
        gaps = self.ranges.uncovered()
        assert [slot for gap in gaps for slot in range(gap.first, gap.last + 1)] == nobodys
        for slot in range(0, SLOTS, 6_553):
            assert self.ranges.owner(slot) == owners[slot]
            own = self.names[slot] if self.names[slot] in {"a", "b"} else None
            assert self.ranges.owner_among(slot, frozenset("ab")) == expected[own]


TestRanges = Ranges.TestCase
TestRanges.settings = STEPS


# --- auto-split ---


class Split(RuleBasedStateMachine):
    """Workers come and go; the oracle has the upper bounds in a dict, and looks at all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.routing = AutoSplit(["first"])
        self.bounds = {SLOTS: "first"}
        self.made = 0

    def below(self, bound: int) -> int:
        return max((other for other in self.bounds if other < bound), default=0)

    @rule()
    def join(self) -> None:
        self.made += 1
        name = f"worker-{self.made}"
        widest = max(bound - self.below(bound) for bound in self.bounds)
        bound = min(each for each in self.bounds if each - self.below(each) == widest)
        before = self.routing
        self.routing = before.with_worker(name)
        self.bounds[bound - widest // 2] = name
        new = by_partition(self.routing)
        assert {before.owner(slot) for slot in moved(before, self.routing)} == {self.bounds[bound]}
        assert moved(before, self.routing) == [at for at, each in enumerate(new) if each == name]

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        assume(len(self.bounds) > 1)
        bound = data.draw(st.sampled_from(sorted(self.bounds)))
        before, name = self.routing, self.bounds.pop(bound)
        if bound == SLOTS:
            self.bounds[SLOTS] = self.bounds.pop(max(self.bounds))
        self.routing = before.without_worker(name)
        gave = moved(before, self.routing)
        assert {before.owner(slot) for slot in gave} == {name}
        assert len({self.routing.owner(slot) for slot in gave}) == 1

    @invariant()
    def each_slot_is_of_the_first_bound_at_or_after_it(self) -> None:
        owners = by_partition(self.routing)
        for slot in [*range(0, SLOTS, 811), *(min(each, SLOTS - 1) for each in self.bounds)]:
            bound = min(each for each in self.bounds if each >= slot)
            assert owners[slot] == self.routing.owner(slot) == self.bounds[bound]
        assert len(list(self.routing.spans())) == len(self.routing.workers)


TestSplit = Split.TestCase
TestSplit.settings = STEPS


# --- weights ---


@RULES
@given(
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from([0.1, 0.5, 1, 1.5, 3]), min_size=1),
    st.sampled_from([1, 2, 7, 20]),
)
def test_a_weighted_ring_is_the_rule_applied_to_each_slot(
    weights: dict[str, float], vnodes: int
) -> None:
    ring = VnodeRing(list(weights), vnodes, weights)
    points = [
        (murmur3_mix32(fnv1a_32(f"{name}-{number}".encode())), name)
        for name, weight in weights.items()
        for number in range(max(1, round(vnodes * weight)))
    ]
    some = frozenset(sorted(weights)[::2])
    for slot in range(0, SLOTS, 2_003):
        for names in (frozenset(weights), some):
            theirs = [vnode for vnode in points if vnode[1] in names]
            after = [vnode for vnode in theirs if vnode[0] >= slot << 16]
            assert ring.owner_among(slot, names) == min(after or theirs)[1]
        assert ring.owner(slot) == ring.owner_among(slot, frozenset(weights))


# --- filters ---

letters = st.sampled_from([b"a", b"b", b"\xff", b"*", b"?"])
patterns = st.lists(letters, max_size=7).map(b"".join)
keys = st.lists(letters, max_size=9).map(b"".join)


def plainly(pattern: bytes, key: bytes) -> bool:
    """Try everything."""
    if not pattern:
        return not key
    rest = pattern[1:]
    if pattern[:1] == b"*":
        return any(plainly(rest, key[at:]) for at in range(len(key) + 1))
    return bool(key) and pattern[:1] in (b"?", key[:1]) and plainly(rest, key[1:])


@settings(RULES, max_examples=examples(1_000))
@given(patterns, keys)
def test_a_pattern_takes_what_trying_everything_takes(pattern: bytes, key: bytes) -> None:
    assert matches(pattern, key) == plainly(pattern, key)


@settings(RULES, max_examples=examples(150))
@given(
    st.dictionaries(st.sampled_from(NAMES), st.lists(patterns, max_size=3), min_size=1),
    st.sets(st.sampled_from(NAMES), min_size=1),
    st.lists(st.tuples(keys, slots), min_size=1, max_size=20),
)
def test_a_key_goes_to_the_ring_of_those_present_that_want_it(
    wanted: dict[str, list[bytes]], present: set[str], asked: Sequence[tuple[bytes, int]]
) -> None:
    there = sorted(present & wanted.keys())
    assume(there)
    owner = owner_by(VnodeRing(there, 5), Filters(wanted))
    for key, slot in (*asked, *asked):  # the second time it is known
        takers = [
            name
            for name, own in wanted.items()
            if not own or any(plainly(pattern, key) for pattern in own)
        ]
        able = [name for name in takers if name in there]
        expected: Owner = VnodeRing(able, 5).owner(slot) if able else Unowned.AWAY
        assert owner(key, slot) == (expected if takers else Unowned.UNASSIGNED)

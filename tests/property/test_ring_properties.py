"""What holds for every ring: one table per set of workers, and changes that move the least."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kafka_keyshared.core.routing import VnodeRing, moved
from kafka_keyshared.core.routing.port import Routing
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import SLOTS, fnv1a_32, murmur3_mix32
from tests.support.seeds import examples

RULES = settings(derandomize=True, deadline=None, max_examples=examples(40))

workers = st.lists(
    st.one_of(st.integers(0, 40).map("worker-{}".format), st.text(min_size=1, max_size=8)),
    min_size=1,
    max_size=9,
    unique=True,
).filter(lambda names: all(name.isprintable() for name in names))
vnode_counts = st.sampled_from([1, 2, 7, 100])


def owners(ring: VnodeRing) -> list[str]:
    return [ring.workers[index] for index in ring.table()]


@RULES
@given(workers, vnode_counts, st.randoms(use_true_random=False))
def test_the_same_set_has_the_same_owners_in_any_order(
    names: list[str], vnodes: int, rng: Random
) -> None:
    shuffled = list(names)
    rng.shuffle(shuffled)
    ring, other = VnodeRing(names, vnodes), VnodeRing(shuffled, vnodes)
    assert owners(ring) == owners(other)
    assert moved(ring, other) == []
    assert ring.share() == other.share()


@RULES
@given(workers, vnode_counts)
def test_table_owner_and_share_say_the_same(names: list[str], vnodes: int) -> None:
    ring = VnodeRing(names, vnodes)
    table = owners(ring)
    assert len(table) == SLOTS
    assert all(ring.owner(slot) == table[slot] for slot in range(0, SLOTS, 509))
    assert ring.share() == {name: table.count(name) / SLOTS for name in names}


@RULES
@given(workers, vnode_counts)
def test_an_added_worker_only_takes_and_a_removed_one_only_gives(
    names: list[str], vnodes: int
) -> None:
    before = VnodeRing(names, vnodes)
    after = before.with_worker("the new one")
    taken = moved(before, after)
    old, new = owners(before), owners(after)
    assert taken == [slot for slot in range(SLOTS) if new[slot] == "the new one"]
    assert all(old[slot] == new[slot] for slot in set(range(SLOTS)).difference(taken))
    assert owners(after.without_worker("the new one")) == old


@RULES
@given(workers, workers, vnode_counts)
def test_moved_lists_exactly_the_slots_whose_owner_has_another_name(
    names: list[str], others: list[str], vnodes: int
) -> None:
    old, new = VnodeRing(names, vnodes), VnodeRing(others, vnodes)
    pairs = zip(owners(old), owners(new), strict=True)
    assert moved(old, new) == [slot for slot, (a, b) in enumerate(pairs) if a != b]


class Rings(RuleBasedStateMachine):
    """Workers of any weight come and go; the oracle has all their points in one list, unsorted."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: dict[str, float] = {"first": 1}
        self.ring = VnodeRing(["first"], 5)

    def owner(self, slot: int) -> str:
        points = [
            (murmur3_mix32(fnv1a_32(f"{name}-{number}".encode())), name)
            for name, weight in self.weights.items()
            for number in range(max(1, round(5 * weight)))
        ]
        behind = [point for point in points if point[0] >= slot << 16]
        return min(behind or points)[1]

    def changed(self, ring: VnodeRing, worker: str) -> None:
        """A change moves slots to or from that worker alone."""
        before, self.ring = self.ring, ring
        for slot in moved(before, ring)[::97]:
            assert worker in (before.owner(slot), ring.owner(slot))

    @rule(number=st.integers(0, 12), weight=st.sampled_from([0.2, 1, 1, 2.5]))
    def come(self, number: int, weight: float) -> None:
        name = f"worker-{number}"
        if name in self.weights:
            with pytest.raises(ConfigError, match=name):
                self.ring.with_worker(name)
            return
        self.weights[name] = weight
        self.changed(self.ring.with_worker(name, weight), name)

    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([*sorted(self.weights), "nobody"]))
        if name == "nobody" or len(self.weights) == 1:
            with pytest.raises(ConfigError):
                self.ring.without_worker(name)
            return
        del self.weights[name]
        self.changed(self.ring.without_worker(name), name)

    @rule(numbers=st.sets(st.integers(0, 12), min_size=1))
    def be(self, numbers: set[int]) -> None:
        names = [f"worker-{number}" for number in numbers]
        before, self.ring = self.ring, self.ring.brought_to(names)
        one_by_one = Routing.brought_to(before, names)
        assert self.ring == one_by_one
        # And who comes back has the weight that it had.
        assert self.ring.brought_to(before.workers) == one_by_one.brought_to(before.workers)
        self.weights = dict(zip(self.ring.workers, self.ring.weights, strict=True))

    @invariant()
    def each_slot_is_whose_the_points_say(self) -> None:
        table = owners(self.ring)
        for slot in [0, SLOTS - 1, *range(7, SLOTS, 5_003)]:
            assert table[slot] == self.ring.owner(slot) == self.owner(slot)
        assert set(self.ring.workers) == self.weights.keys()


TestRings = Rings.TestCase
TestRings.settings = settings(
    derandomize=True, deadline=None, max_examples=examples(15), stateful_step_count=15
)

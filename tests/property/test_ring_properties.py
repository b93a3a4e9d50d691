"""What holds for every ring: one table per set of workers, and changes that move the least."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_keyshared.core.routing import VnodeRing, moved
from kafka_keyshared.hashing import SLOTS

RULES = settings(derandomize=True, deadline=None, max_examples=40)

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

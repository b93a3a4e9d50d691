"""Slots as runs of neighbours, beside an oracle that knows every slot by itself."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_keyshared.core.routing.slots import Run, Slots, moved
from tests.support.seeds import examples

RULES = settings(derandomize=True, deadline=None, max_examples=examples(300))

MOST = 60
"""Few slots, so that runs and arcs touch, overlap and end together."""

Each = list[int]
"""The owner of each slot."""

some = st.sets(st.integers(0, MOST - 1))
given_runs = st.lists(st.tuples(st.integers(0, MOST), st.integers(0, MOST)))
owners = st.lists(st.integers(-2, 2), min_size=MOST, max_size=MOST) | st.builds(
    lambda lengths, whose: [
        owner for owner, n in zip(whose, lengths, strict=True) for _ in range(n)
    ],
    st.permutations([1, 1, 2, 6, 20, 30]),
    st.lists(st.integers(-2, 2), min_size=6, max_size=6),
)


def arcs_of(each: Each) -> list[tuple[int, int]]:
    """Arcs as a routing gives them: neighbours may have the same owner."""
    return [
        (at + 1, owner)
        for at, owner in enumerate(each)
        if at + 1 == len(each) or each[at + 1] != owner or at % 7 == 0
    ]


@RULES
@given(runs=given_runs)
def test_runs_in_any_order_are_the_slots_that_are_in_any_of_them(runs: list[Run]) -> None:
    slots = Slots(runs)
    expected = sorted({slot for start, end in runs for slot in range(start, end)})
    assert list(slots) == expected
    assert len(slots) == len(expected)
    assert slots == Slots.single(reversed(expected))
    assert all(slots[at] == slot for at, slot in enumerate(expected))
    gaps = zip(slots.runs, slots.runs[1:], strict=False)
    assert all(behind < start for (_, behind), (start, _) in gaps), "they touch"


@RULES
@given(some=some, others=some)
def test_what_is_in_them_and_what_is_left_without_others(some: set[int], others: set[int]) -> None:
    slots = Slots.single(some)
    assert {slot for slot in range(-1, MOST + 1) if slot in slots} == some
    assert list(slots.without(Slots.single(others))) == sorted(some - others)


@RULES
@given(some=some, each=owners)
def test_whose_they_are(some: set[int], each: Each) -> None:
    expected: dict[int, list[int]] = {}
    for slot in sorted(some):
        expected.setdefault(each[slot], []).append(slot)
    found = Slots.single(some).by_owner(arcs_of(each))
    assert {owner: list(Slots(runs)) for owner, runs in found.items()} == expected
    assert list(found) == list(expected)


@RULES
@given(before=owners, after=owners)
def test_what_has_changed_hands(before: Each, after: Each) -> None:
    found = [
        (slot, old, new)
        for (start, end), old, new in moved(arcs_of(before), arcs_of(after))
        for slot in range(start, end)
    ]
    both = zip(before, after, strict=True)
    assert found == [(slot, old, new) for slot, (old, new) in enumerate(both) if old != new]

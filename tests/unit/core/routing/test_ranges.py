"""Sticky ranges: who has which slots, what is refused, and what is taken over."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.routing import Move, SlotSpan, StickyRanges, Unowned, moves
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import SLOTS

UNASSIGNED, AWAY = Unowned.UNASSIGNED, Unowned.AWAY


def spans(ranges: StickyRanges) -> list[tuple[int, int, object]]:
    return [(first, last, owner) for first, last, owner in ranges.spans()]


def test_both_ends_of_a_range_are_in_it_and_what_is_in_none_is_nobodys() -> None:
    ranges = StickyRanges({"a": [(0, 10_000), (20_001, 30_000)], "b": [(40_000, SLOTS - 1)]})
    assert spans(ranges) == [
        (0, 10_000, "a"),
        (10_001, 20_000, UNASSIGNED),
        (20_001, 30_000, "a"),
        (30_001, 39_999, UNASSIGNED),
        (40_000, 65_535, "b"),
    ]
    assert [ranges.owner(slot) for slot in (0, 10_000, 20_001, 30_000, 65_535)] == [*"aaaab"]


def test_the_gap_between_two_ranges_of_one_worker_is_nobodys() -> None:
    # In Pulsar's broker the nearest bounds on both sides are a's there, and so the slot.
    ranges = StickyRanges({"a": [(0, 10_000), (20_001, 30_000)]})
    assert ranges.owner(15_000) is UNASSIGNED
    assert ranges.uncovered() == [
        SlotSpan(10_001, 20_000, UNASSIGNED),
        SlotSpan(30_001, 65_535, UNASSIGNED),
    ]


def test_a_range_of_one_slot_and_one_of_all_are_ranges() -> None:
    assert spans(StickyRanges({"a": [(5, 5)]}))[1] == (5, 5, "a")
    whole = StickyRanges({"a": [(0, SLOTS - 1)]})
    assert whole.share() == {"a": 1.0}
    assert whole.uncovered() == []


def test_neighbours_of_one_worker_are_one_range_however_they_were_given() -> None:
    one = StickyRanges({"a": [(0, 99)], "b": [(100, 199)]})
    assert StickyRanges({"b": [(150, 199), (100, 149)], "a": [(0, 99)]}).ranges == one.ranges
    assert StickyRanges({"a": [(50, 99), (0, 49)], "b": [(100, 199)]}) == one


@pytest.mark.parametrize(
    ("ranges", "said"),
    [
        ({"a": [(5, 4)]}, r"worker 'a': range 5\.\.4 is inverted"),
        ({"a": [(0, 65_536)]}, r"worker 'a': range 0\.\.65536 is out of bounds: .* 0\.\.65535"),
        ({"a": [(-1, 5)]}, r"worker 'a': range -1\.\.5 is out of bounds"),
        ({"a": [(0, 5)], "b": []}, "worker 'b' has an empty list of ranges"),
        ({}, "no workers"),
        ({"a": [(0.5, 5)]}, r"worker 'a': range 0\.5\.\.5: slots are whole numbers"),
        ({"a": [(False, True)]}, r"worker 'a': range False\.\.True: slots are whole"),
        ({"a": [(0, "5")]}, r"worker 'a': range 0\.\.'5': slots are whole"),
        ({"a": [5]}, r"worker 'a': range 5: give the first and the last slot"),
        ({"a": [(0, 5, 9)]}, r"worker 'a': range \(0, 5, 9\): give the first and the last"),
        (
            {"a": [(0, 100)], "b": [(50, 200)]},
            r"range 0\.\.100 of worker 'a' and 50\.\.200 of worker 'b' overlap in 50\.\.100",
        ),
        (
            {"b": [(50, 60)], "a": [(0, 100)]},
            r"range 0\.\.100 of worker 'a' and 50\.\.60 of worker 'b' overlap in 50\.\.60",
        ),
        (
            {"a": [(0, 100)], "b": [(100, 100)]},
            r"range 0\.\.100 of worker 'a' and 100\.\.100 of worker 'b' overlap in 100\.\.100",
        ),
        (
            {"a": [(0, 100), (50, 200)]},
            r"range 0\.\.100 of worker 'a' and 50\.\.200 of worker 'a' overlap in 50\.\.100",
        ),
    ],
)
def test_ranges_that_cannot_be_are_refused_with_both_parties(
    ranges: dict[str, list[tuple[int, int]]], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        StickyRanges(ranges)


def test_no_ranges_at_all_are_refused() -> None:
    with pytest.raises(ConfigError, match="are empty: give at least one worker a range"):
        StickyRanges({}, workers=["a"])


# --- assigned while it runs ---


def test_slots_that_are_nobodys_are_assigned() -> None:
    ranges = StickyRanges({"a": [(0, 99)]}, workers=["a", "b"])
    more = ranges.assigned(200, 299, "b").assigned(100, 149, "a")
    assert spans(more)[:3] == [(0, 149, "a"), (150, 199, UNASSIGNED), (200, 299, "b")]
    assert ranges.owner(200) is UNASSIGNED, "the old value stays"


def test_a_refusal_names_the_range_that_was_asked_and_not_the_one_it_would_be_joined_to() -> None:
    ranges = StickyRanges({"a": [(0, 100)], "b": [(20_000, 25_000)]}, workers=["a", "b"])
    said = r"range 101\.\.30000 of worker 'a' and 20000\.\.25000 of worker 'b' overlap"
    with pytest.raises(ConfigError, match=said):
        ranges.assigned(101, 30_000, "a")


@pytest.mark.parametrize(
    ("first", "last", "worker", "said"),
    [
        (50, 200, "b", r"0\.\.99 of worker 'a' and 50\.\.200 of worker 'b' overlap in 50\.\.99"),
        (0, 99, "a", r"0\.\.99 of worker 'a' and 0\.\.99 of worker 'a' overlap in 0\.\.99"),
        (7, 6, "b", r"worker 'b': range 7\.\.6 is inverted"),
        (7, 70_000, "b", r"worker 'b': range 7\.\.70000 is out of bounds"),
        (200, 299, "z", r"range 200\.\.299 is for worker 'z', and there is none; give .* a, b"),
    ],
)
def test_an_assignment_that_cannot_be_is_refused_and_says_who_has_it(
    first: int, last: int, worker: str, said: str
) -> None:
    ranges = StickyRanges({"a": [(0, 99)]}, workers=["a", "b"])
    with pytest.raises(ConfigError, match=said):
        ranges.assigned(first, last, worker)
    if "overlap" not in said:
        with pytest.raises(ConfigError, match=said):
            ranges.taken_over(first, last, worker)


def test_a_range_is_taken_over_whole() -> None:
    ranges = StickyRanges({"a": [(0, 99)], "b": [(100, 199)]})
    after = ranges.taken_over(0, 99, "b")
    assert spans(after)[0] == (0, 199, "b")
    assert list(moves(ranges, after)) == [Move(0, 99, "a", "b")]


def test_what_is_taken_over_of_several_leaves_each_what_lies_beside_it() -> None:
    ranges = StickyRanges({"a": [(0, 99)], "b": [(100, 199)], "c": [(300, 399)]})
    after = ranges.taken_over(50, 349, "c")
    assert spans(after)[:2] == [(0, 49, "a"), (50, 399, "c")]
    assert list(moves(ranges, after)) == [
        Move(50, 99, "a", "c"),
        Move(100, 199, "b", "c"),
        Move(200, 299, UNASSIGNED, "c"),
    ]
    assert after.share()["b"] == 0, "it is there, and has nothing"


def test_taking_out_of_the_middle_leaves_both_sides() -> None:
    ranges = StickyRanges({"a": [(0, SLOTS - 1)]}, workers=["a", "b"])
    assert spans(ranges.taken_over(100, 199, "b")) == [
        (0, 99, "a"),
        (100, 199, "b"),
        (200, 65_535, "a"),
    ]


def test_a_take_over_that_changes_nothing_moves_nothing() -> None:
    ranges = StickyRanges({"a": [(0, 99)]}, workers=["a", "b"])
    assert ranges.taken_over(10, 20, "a") == ranges


# --- workers that are not there ---


def test_the_ranges_of_a_worker_that_has_left_wait_for_it_and_are_not_nobodys() -> None:
    ranges = StickyRanges({"a": [(0, 99)], "b": [(100, 199)]})
    without = ranges.without_worker("a")
    assert without.workers == ("b",)
    assert spans(without)[:2] == [(0, 99, AWAY), (100, 199, "b")]
    assert without.uncovered() == ranges.uncovered()
    back = without.with_worker("a")
    assert (back.workers, spans(back)) == (("b", "a"), spans(ranges))


def test_the_ranges_of_a_worker_that_is_away_can_be_taken_over_and_not_assigned() -> None:
    away = StickyRanges({"a": [(0, 99)], "b": [(100, 199)]}, workers=["b"])
    assert away.owner(5) is AWAY
    with pytest.raises(ConfigError, match=r"of worker 'a' and .* of worker 'b' overlap"):
        away.assigned(0, 99, "b")
    assert away.taken_over(0, 99, "b").owner(5) == "b"
    assert away.assigned(200, 201, "a").owner(200) is AWAY, "it is known, though it is not there"


def test_among_some_workers_the_ranges_of_the_others_are_nobodys() -> None:
    ranges = StickyRanges({"a": [(0, 99)], "b": [(100, 199)]}, workers=["b"])
    both, a, b = frozenset("ab"), frozenset("a"), frozenset("b")
    found = [(ranges.owner_among(5, some), ranges.owner_among(150, some)) for some in (both, a, b)]
    assert found == [(AWAY, "b"), (AWAY, UNASSIGNED), (UNASSIGNED, "b")]
    assert ranges.owner_among(200, both) is UNASSIGNED
    assert ranges.uncovered(b) == [
        SlotSpan(0, 99, UNASSIGNED),
        SlotSpan(200, SLOTS - 1, UNASSIGNED),
    ]

"""What holds for every settled set and every text, ours or not."""

from __future__ import annotations

from itertools import accumulate, pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_keyshared.core.offsets.commit_metadata import (
    SET_BUDGET,
    TEXT_LIMIT,
    Decoded,
    Runs,
    clip,
    decode,
    encode,
    lane_rooms,
    settled_runs,
    size_bound,
)
from kafka_keyshared.core.offsets.metadata_sections import LaneNotes, Tried
from kafka_keyshared.core.offsets.settled_set_codec import pack, payload_bound, union, unpack
from kafka_keyshared.lab.simulator.commit_text import NOTHING, read_notes
from tests.support.commit_texts import here
from tests.support.seeds import examples

RULES = settings(derandomize=True, deadline=None, max_examples=examples(200))
HEAVY = settings(RULES, max_examples=examples(80))  # thousands of runs in each example

positions = st.one_of(st.integers(0, 300), st.integers(0, 2**62))
steps = st.one_of(
    st.integers(1, 3), st.integers(1, 300), st.integers(1, 100_000), st.integers(1, 2**40)
)
shapes = st.lists(st.tuples(steps, steps), max_size=60)
ids = st.text(max_size=12)


def build(position: int, at_position: bool, shape: list[tuple[int, int]]) -> Runs:
    edges = list(accumulate((step for pair in shape for step in pair), initial=position))[1:]
    low = [edge - (1 if at_position and edges[0] == position + 1 else 0) for edge in edges]
    return tuple(zip(low[::2], low[1::2], strict=True))


some_runs = st.builds(
    lambda position, at, shape: (position, build(position, at, shape)),
    positions,
    st.booleans(),
    shapes,
)


def large(seed: int) -> Runs:
    """Many runs of one random character: what does not fit is rarely found by small steps."""
    rng = Random(seed)
    gap, length = rng.choice([1, 2, 9, 130, 20_000]), rng.choice([1, 3, 40, 200, 3000])
    shape = [(rng.randint(1, gap), rng.randint(1, length)) for _ in range(rng.randint(1, 4000))]
    return build(1000, False, shape)


large_runs = st.integers(0, 2**32).map(large)


def offsets_before(runs: Runs, count: int) -> Runs:
    """Return the lowest ``count`` offsets of a set."""
    kept = []
    for start, end in runs:
        if count <= 0:
            break
        kept.append((start, min(end, start + count)))
        count -= end - start
    return tuple(kept)


def size(runs: Runs) -> int:
    return sum(end - start for start, end in runs)


@RULES
@given(some_runs)
def test_what_fits_comes_back_as_it_was(case: tuple[int, Runs]) -> None:
    position, runs = case
    encoded = encode(here(position), {"default": runs})
    assert encoded.truncated == ()
    assert encoded.text.isascii()
    decoded = decode(encoded.text, here(position))
    assert decoded == Decoded({"default": runs} if runs else {})


@RULES
@given(positions, st.dictionaries(ids, st.tuples(st.booleans(), shapes), max_size=5))
def test_several_subscriptions_come_back_each_with_its_own(
    position: int, shapes_by_id: dict[str, tuple[bool, list[tuple[int, int]]]]
) -> None:
    sections = {name: build(position, *shape) for name, shape in shapes_by_id.items()}
    encoded = encode(here(position), sections)
    decoded = decode(encoded.text, here(position))
    assert decoded.problem is None
    for name, runs in sections.items():
        got = decoded.sections.get(name, ())
        assert got == offsets_before(runs, size(got))
        assert (got == runs) is (name not in encoded.truncated)


hashes = st.binary(min_size=16, max_size=16)
some_notes = st.builds(
    LaneNotes,
    st.frozensets(hashes, max_size=16),
    st.dictionaries(
        st.integers(0, 2000), st.builds(Tried, st.integers(0, 40), st.booleans()), max_size=40
    ),
)


@RULES
@given(some_runs, some_notes, some_notes)
def test_notes_come_back_lanes_whole_and_attempts_as_far_as_they_fit(
    case: tuple[int, Runs], one: LaneNotes, other: LaneNotes
) -> None:
    position, runs = case
    notes = {
        name: LaneNotes(
            frozenset(sorted(each.diverted)[: lane_rooms(["one", "other"])[name]]),
            {position + offset: tried for offset, tried in each.tried.items()},
        )
        for name, each in {"one": one, "other": other}.items()
    }
    encoded = encode(here(position), {"one": runs}, notes=notes)
    decoded = decode(encoded.text, here(position))
    assert decoded.problem is None
    assert decoded.sections == ({"one": runs} if runs else {})
    for name, each in notes.items():
        got = decoded.notes.get(name, LaneNotes())
        assert got.diverted == each.diverted
        assert got.tried.items() <= each.tried.items()
        assert len(got.tried) >= min(len(each.tried), 8)
        checked = read_notes(encoded.text, position).get(name, NOTHING)
        assert checked.lanes == got.diverted
        assert checked.tried == got.tried


@HEAVY
@given(large_runs, some_notes, st.integers(0, TEXT_LIMIT))
def test_notes_keep_every_text_within_its_limit(runs: Runs, notes: LaneNotes, limit: int) -> None:
    moved = LaneNotes(notes.diverted, {1000 + at: tried for at, tried in notes.tried.items()})
    encoded = encode(here(1000), {"one": runs}, {"x": b"y" * 200}, {"one": moved}, limit=limit)
    assert len(encoded.text) <= limit
    assert encoded.set_chars <= SET_BUDGET
    assert decode(encoded.text, here(1000), known=["one"]).problem is None


@HEAVY
@given(large_runs, st.integers(0, SET_BUDGET + 500))
def test_a_cut_set_is_a_prefix_within_its_budget(runs: Runs, budget: int) -> None:
    encoded = encode(here(1000), {"default": runs}, set_budget=budget)
    assert encoded.set_chars <= budget
    assert len(encoded.text) <= TEXT_LIMIT
    decoded = decode(encoded.text, here(1000))
    assert decoded.problem is None
    got = decoded.sections.get("default", ())
    assert got == offsets_before(runs, size(got))
    assert (got == runs) is (encoded.truncated == ())


@HEAVY
@given(large_runs, st.integers(0, 2500))
def test_no_longer_prefix_would_have_fitted(runs: Runs, room: int) -> None:
    packed = pack(1000, runs, room)
    assert len(packed.payload) <= max(room, 0)
    got = unpack(packed.kind, packed.payload, 1000) if packed.payload else ()
    assert got == offsets_before(runs, size(got))
    assert packed.complete is (got == runs)
    if not packed.complete:
        assert not pack(1000, offsets_before(runs, size(got) + 1), room).complete


@HEAVY
@given(
    large_runs,
    large_runs,
    large_runs,
    st.dictionaries(ids, st.binary(max_size=900), max_size=5),
    st.integers(0, TEXT_LIMIT),
)
def test_no_text_is_over_its_limit(
    first: Runs, second: Runs, third: Runs, unknown: dict[str, bytes], limit: int
) -> None:
    sections = {"one": first, "two": second, "three": third}
    encoded = encode(here(1000), sections, unknown, limit=limit)
    assert encoded.text.isascii()
    assert len(encoded.text) <= limit
    assert encoded.set_chars <= SET_BUDGET
    decoded = decode(encoded.text, here(1000), known=sections)
    assert decoded.problem is None
    assert decoded.unknown.items() <= unknown.items()
    assert len(decoded.unknown) + encoded.dropped_unknown == len(unknown.keys() - sections.keys())


@RULES
@given(st.one_of(some_runs, large_runs.map(lambda runs: (1000, runs))), ids)
def test_the_bound_is_never_below_the_size(case: tuple[int, Runs], name: str) -> None:
    position, runs = case
    span = runs[-1][1] - position if runs else 0
    packed = pack(position, runs, 10**9).payload if runs else b""
    assert len(packed) <= payload_bound(span, len(runs))
    bound = size_bound(span, len(runs), name)
    encoded = encode(here(position), {name: runs})
    assert encoded.set_chars <= bound
    if bound <= SET_BUDGET:
        assert not encoded.truncated
    assert size_bound(span + 1, len(runs) + 1, name) >= bound


@RULES
@given(st.text(max_size=300), st.integers(-2000, 2**63))
def test_arbitrary_text_never_raises_and_says_nothing(text: str, position: int) -> None:
    decoded = decode(text, here(position))
    assert not decoded.sections
    assert (decoded.problem is None) is (text == "")


@RULES
@given(some_runs, st.text(max_size=50), st.integers(1, 2**41))
def test_junk_behind_changes_nothing_and_at_a_later_position_a_text_says_nothing(
    case: tuple[int, Runs], junk: str, later: int
) -> None:
    position, runs = case
    text = encode(here(position), {"default": runs}).text
    if text:
        assert decode(text + junk, here(position)).sections == {"default": runs}
        moved = decode(text + junk, here(position + later))
        assert not moved.sections
        assert moved.problem is not None


@RULES
@given(some_runs, st.data())
def test_a_mutated_text_never_raises_and_says_nothing_new(
    case: tuple[int, Runs], data: st.DataObject
) -> None:
    position, runs = case
    text = encode(here(position), {"default": runs}).text
    at = data.draw(st.integers(0, len(text)))
    changed = text[:at] + data.draw(st.text(max_size=4)) + text[at + data.draw(st.integers(0, 3)) :]
    decoded = decode(changed, here(position))
    assert decoded.sections in ({}, {"default": runs})
    assert decoded.sections or decoded.problem or not changed or not runs


@RULES
@given(
    st.integers(0, 50),
    st.integers(0, 60),
    st.sets(st.integers(0, 59)),
    st.sets(st.integers(0, 120)),
)
def test_settled_runs_are_the_complement_of_what_is_outstanding(
    position: int, length: int, outstanding: set[int], restored: set[int]
) -> None:
    end = position + length
    unsettled = sorted(position + offset for offset in outstanding if offset < length)
    restored_runs = settled_runs(0, 121, sorted(set(range(121)) - restored))
    runs = settled_runs(position, end, unsettled, restored_runs)
    expected = set(range(position, end)) - set(unsettled)
    expected |= {offset for offset in restored if offset >= end}
    assert {offset for start, stop in runs for offset in range(start, stop)} == expected
    assert all(before[1] < after[0] for before, after in pairwise(runs))
    assert (
        decode(encode(here(position), {"s": runs}).text, here(position)).sections.get("s", ())
        == runs
    )


@RULES
@given(shapes, st.integers(0, 5000), st.integers(0, 5000))
def test_clip_keeps_exactly_what_lies_between(
    shape: list[tuple[int, int]], low: int, width: int
) -> None:
    runs = build(0, True, [(min(gap, 50), min(length, 50)) for gap, length in shape])
    high = low + width
    inside = {o for start, end in runs for o in range(start, end) if low <= o < high}
    clipped = clip(runs, low, high)
    assert {offset for start, end in clipped for offset in range(start, end)} == inside
    assert all(start < end for start, end in clipped)


@RULES
@given(shapes, shapes)
def test_a_union_has_what_is_in_either_and_can_be_written(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    short = [
        build(0, True, [(min(gap, 50), min(length, 50)) for gap, length in shape])
        for shape in (one, other)
    ]
    runs = union(*short)
    either = {offset for part in short for start, end in part for offset in range(start, end)}
    assert {offset for start, end in runs for offset in range(start, end)} == either
    assert all(before[1] < after[0] for before, after in pairwise(runs))

"""Below a ceiling everything may settle, in whatever pattern, and the settled set still fits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_keyshared.core.offsets.settled_set_codec import (
    Runs,
    bitmap_span,
    clip,
    pack,
    runs_size,
    settled_runs,
)
from kafka_keyshared.core.partitions.offset_ceilings import lease_end

positions = st.one_of(st.integers(0, 300), st.integers(0, 1 << 40))
gaps = st.one_of(st.integers(1, 4), st.integers(1, 400), st.integers(100, 20_000))
shares = st.sampled_from([0.1, 0.5, 0.9, None])
"""How much of what may settle does so, at random; None for every other record: the worst of all."""

spares = st.one_of(st.integers(0, 12), st.integers(0, 300))


@st.composite
def states(draw: st.DrawFn) -> tuple[int, int, list[int], Runs]:
    """A position, an end, what is held between them, and what a restart brought beyond."""
    position = draw(positions)
    held = [position] if draw(st.booleans()) else []
    for gap in draw(st.lists(gaps, max_size=40)):
        if draw(st.booleans()):
            start = (held[-1] if held else position) + gap
            held += range(start, start + draw(st.integers(1, 40)))
    held = sorted(set(held))
    if held:
        position = held[0]
    end = (held[-1] if held else position) + draw(st.integers(1, 50)) if held else position
    restored = []
    at = end
    for gap in draw(st.lists(gaps, max_size=20)):
        start = at + gap
        at = start + draw(gaps)
        restored.append((start, at))
        at += 1
    return position, end, held, tuple(restored)


@given(states(), spares, st.randoms(use_true_random=False), shares)
def test_whatever_settles_below_the_ceiling_the_set_fits(
    state: tuple[int, int, list[int], Runs], spare: int, chance: object, share: float | None
) -> None:
    position, end, held, restored = state
    now = settled_runs(position, end, held, restored)
    room = runs_size(position, now, end) + spare
    ceiling = lease_end(position, end, held, restored, room)
    assert ceiling > position

    # Some of what is held settles; of what is still to come some never existed, some settles.
    def settles(offset: int) -> bool:
        return offset % 2 == 0 if share is None else chance.random() < share  # type: ignore[attr-defined]

    kept = [offset for offset in held if offset >= ceiling or not settles(offset)]
    spans = [*clip(restored, end), (ceiling, ceiling)]
    covered = (
        {offset for lo, hi in spans for offset in range(lo, min(hi, max(lo, ceiling)))}
        if ceiling - end < 5_000
        else set()
    )
    fresh = [
        offset
        for offset in range(end, min(ceiling, end + 5_000))
        if offset not in covered and not settles(offset)
    ]
    received = max(end, min(ceiling, end + 5_000))
    still = [*kept, *fresh]
    at = min(still, default=received)
    below = sorted(offset for offset in still if offset < ceiling)
    after = settled_runs(at, max(at, min(received, ceiling)), below, restored)
    if after:
        assert pack(at, after, room).complete, (ceiling, at, after)


@given(positions, st.integers(0, 400), st.sets(st.integers(0, 3_000), max_size=300))
def test_whatever_settles_within_the_span_of_a_bitmap_fits(
    position: int, room: int, settled: set[int]
) -> None:
    inside = sorted(each for each in settled if 0 < each < bitmap_span(room))
    if not inside:
        return
    missing = [position + n for n in range(inside[-1]) if n not in settled or n == 0]
    runs = settled_runs(position, position + inside[-1] + 1, missing)
    if runs:
        assert pack(position, runs, room).complete


@pytest.mark.parametrize("block", [1, 2, 3, 7, 40, 130, 300])
@pytest.mark.parametrize("first", [0, 1])
def test_the_worst_pattern_fits_whatever_room_is_left(block: int, first: int) -> None:
    # Runs far apart, so that a bitmap helps nobody, and every other offset between them settles.
    ends = [(block + 2) * number + block for number in range(300)]
    restored = (*((end, end + 2) for end in ends), (10_000_000, 10_000_001))
    size = runs_size(0, restored, 0)
    for spare in range(5, 400, 7):
        ceiling = lease_end(0, 0, [], restored, size + spare)
        assert ceiling > (block if spare > 4 * block else 0)
        settled = {offset for offset in range(first, ceiling) if (offset - first) % 2 == 0}
        settled |= {offset for start, end in restored for offset in range(start, end)}
        missing = [offset for offset in range(ends[-1]) if offset not in settled]
        at = missing[0]
        after = settled_runs(at, ends[-1], missing, restored)
        assert pack(at, after, size + spare).complete

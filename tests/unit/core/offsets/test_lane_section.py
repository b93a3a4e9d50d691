"""What travels besides the set: its form, what fits, and everything that does not have it."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.offsets.commit_metadata import (
    LANES_BUDGET,
    OVERHEAD_CHARS,
    SET_BUDGET,
    TEXT_LIMIT,
    TRIED_BUDGET,
    decode,
    encode,
    lane_rooms,
)
from kafka_keyshared.core.offsets.metadata_sections import (
    LANES_MOST,
    LaneNotes,
    Tried,
    from_position,
    hash_of,
    merged,
    pack_lanes,
    pack_tried,
)
from kafka_keyshared.core.offsets.settled_set_codec import MAX_OFFSET
from kafka_keyshared.core.records.lane_identity import lane_of
from kafka_keyshared.hashing import lane_hash
from kafka_keyshared.lab.simulator.commit_text import read_commit, read_notes
from tests.support.commit_texts import here
from tests.support.records import P0, P1, record
from tests.unit.core.offsets.test_metadata_format import block, every_second, numbers, sealed, sized

A, B = b"a" * 16, b"b" * 16
NOTES = LaneNotes(frozenset({A, B}), {503: Tried(3), 600: Tried(0, archived=True)})
PAYLOADS = ((3, numbers(500) + A + B), (4, numbers(500, 3, 6, 96, 1)))


def many(count: int) -> frozenset[bytes]:
    return frozenset(lane_hash(b"%d" % number) for number in range(count))


def of_one(section: bytes) -> str:
    """A text with this section alone."""
    return sealed(sized(b"s") + sized(section), 0)


# --- the form ---


def test_notes_are_written_as_documented_behind_the_set() -> None:
    runs = {"s": ((502, 503),)}
    wanted = block("s", (1, numbers(500, 2, 0)), *PAYLOADS)
    assert encode(here(500), runs, notes={"s": NOTES}).text == sealed(wanted, 500)
    assert encode(here(500), {}, notes={"s": NOTES}).text == sealed(block("s", *PAYLOADS), 500)
    decoded = decode(sealed(wanted, 500), here(500))
    assert (decoded.sections, decoded.notes) == (runs, {"s": NOTES})


def test_the_checkers_reader_reads_what_is_documented() -> None:
    text = sealed(block("s", (1, numbers(500, 2, 0)), *PAYLOADS), 500)
    assert read_commit(text, 500) == {"s": {502}}
    found = read_notes(text, 500)["s"]
    assert found.lanes == {A, B}
    assert found.tried == {503: (3, False), 600: (0, True)}


def test_a_text_without_notes_is_what_it_was_before_there_were_any() -> None:
    runs = {"s": ((502, 503),)}
    assert encode(here(500), runs, notes={"s": LaneNotes()}).text == encode(here(500), runs).text
    assert decode(encode(here(500), runs).text, here(500)).notes == {}


def test_of_records_before_a_later_position_nothing_is_kept() -> None:
    assert from_position(NOTES, 504) == LaneNotes(NOTES.diverted, {600: Tried(0, True)})
    handed_on = sealed(block("s", *PAYLOADS), 504)
    assert decode(handed_on, here(504)).notes["s"] == from_position(NOTES, 504)
    assert read_notes(handed_on, 504)["s"].tried == {600: (0, True)}


def test_notes_of_a_subscription_that_is_not_known_are_handed_on_as_they_are() -> None:
    text = encode(here(500), {"s": ((502, 503),)}, notes={"s": NOTES}).text
    passed_on = encode(here(520), {}, decode(text, here(500), known=()).unknown).text
    assert decode(passed_on, here(520)).notes["s"].diverted == NOTES.diverted


@pytest.mark.parametrize(
    ("sections", "problem"),
    [
        (((3, numbers(501) + A),), "written for position 501"),
        (((4, numbers(501, 1, 2)),), "written for position 501"),
        (((3, numbers(500) + A[:-1]),), "claims more bytes"),
        (((3, numbers(500) + B + A),), "not in order"),
        (((3, numbers(500) + A + A),), "not in order"),
        (((3, numbers(500) + b"".join(sorted(many(LANES_MOST + 1)))),), "32 are the most"),
        (((3, b""),), "cut off"),
        (((4, numbers(500, 1)),), "cut off"),
        (((4, numbers(500, MAX_OFFSET - 500, 2)),), "larger than Kafka's"),
        (((3, numbers(500) + A), (3, numbers(500) + B)), "says twice"),
        (((4, numbers(500, 1, 2)), (4, numbers(500, 1, 2))), "says twice"),
    ],
)
def test_what_no_writer_makes_says_nothing_and_why(
    sections: tuple[tuple[int, bytes], ...], problem: str
) -> None:
    decoded = decode(sealed(block("s", (1, numbers(500, 2, 0)), *sections), 500), here(500))
    assert decoded.problem is not None
    assert problem in decoded.problem
    assert not (decoded.sections or decoded.notes)


def test_no_text_makes_anybody_count_beyond_reason() -> None:
    text = sealed(block("s", (4, numbers(500, 0, 2**62))), 500)
    assert decode(text, here(500)).notes["s"].tried[500].attempts == 2**31 - 1


# --- what stands for a lane ---


def test_a_lanes_hash_never_changes_and_tells_topic_partition_and_key_apart() -> None:
    assert hash_of(lane_of(record(1, "a", P0))).hex() == "ac94ea92782f914b129fb902708caf6e"
    lanes = [
        lane_of(record(1, "a", P0)),
        lane_of(record(1, "b", P0)),
        lane_of(record(1, "a", P0), "partition"),
        lane_of(record(1, "a", P1), "partition"),
        lane_of(record(1, "a", P0), "subscription"),
        ("1:-1:a", -1, b"", -1),
    ]
    assert len({hash_of(lane) for lane in lanes}) == len(lanes)


# --- what fits ---


def test_everything_at_its_most_fits_beside_a_full_set() -> None:
    full = every_second(1_000, 8_000, step=3)
    tried = {1_000 + 2 * each: Tried(5, each % 3 == 0) for each in range(2_000)}
    notes = LaneNotes(many(LANES_MOST), tried)
    for position in (1_000, MAX_OFFSET - 10**6):
        shift = position - 1_000
        runs = {"default": tuple((low + shift, high + shift) for low, high in full)}
        moved = {offset + shift: each for offset, each in tried.items()}
        encoded = encode(here(position), runs, notes={"default": LaneNotes(notes.diverted, moved)})
        alone = encode(here(position), runs)
        decoded = decode(encoded.text, here(position))
        assert (
            len(encoded.text)
            <= SET_BUDGET + LANES_BUDGET + TRIED_BUDGET + OVERHEAD_CHARS
            < TEXT_LIMIT
        )
        assert encoded.set_chars == alone.set_chars
        assert decoded.sections == decode(alone.text, here(position)).sections
        assert decoded.notes["default"].diverted == notes.diverted
        assert len(decoded.notes["default"].tried) >= 20


def test_the_lanes_that_a_subscription_may_divert_are_all_written() -> None:
    assert lane_rooms(["default"]) == {"default": LANES_MOST}
    for names in (["default", "audit"], [f"{each}-with-a-name" for each in range(7)], ["x" * 200]):
        rooms = lane_rooms(names)
        assert all(0 < room <= LANES_MOST // len(names) for room in rooms.values())
        notes = {name: LaneNotes(many(room)) for name, room in rooms.items()}
        text = encode(here(MAX_OFFSET - 1), {}, notes=notes).text
        assert decode(text, here(MAX_OFFSET - 1)).notes == notes
        assert len(text) <= LANES_BUDGET + OVERHEAD_CHARS


def test_of_attempts_what_is_archived_is_written_first_and_then_the_lowest() -> None:
    tried = {offset: Tried(2, archived=offset >= 100_000) for offset in range(0, 200_000, 500)}
    section = pack_tried(0, tried, 100)
    assert 70 < len(section) <= 100
    kept = decode(of_one(section), here(0)).notes["s"].tried
    archived = [offset for offset in tried if tried[offset].archived]
    assert sorted(kept) == archived[: len(kept)]
    plain = {offset: Tried(2) for offset in range(0, 200_000, 500)}
    kept = decode(of_one(pack_tried(0, plain, 100)), here(0)).notes["s"].tried
    assert sorted(kept) == sorted(plain)[: len(kept)]


def test_nothing_is_written_where_there_is_no_room() -> None:
    for room in range(20):
        assert len(pack_lanes(0, many(3), room)) <= room
        assert len(pack_tried(0, {1: Tried(3), 2: Tried(1)}, room)) <= room
    assert pack_lanes(0, many(3), -5) == pack_tried(0, {1: Tried(3)}, -5) == b""


def test_unknown_blocks_get_what_is_left_and_are_dropped_first() -> None:
    notes = {"s": LaneNotes(many(LANES_MOST), {each: Tried(4) for each in range(500, 900)})}
    full = {"s": every_second(500, 8_000, step=3)}
    encoded = encode(here(500), full, {"other": b"x" * 300, "small": b"x" * 20}, notes)
    assert encoded.dropped_unknown == 1
    decoded = decode(encoded.text, here(500), known=["s"])
    assert set(decoded.unknown) == {"small"}
    assert decoded.notes["s"].diverted == notes["s"].diverted


# --- two notes of one member ---


def test_of_two_notes_the_later_says_what_is_diverted_and_the_higher_what_was_tried() -> None:
    one = LaneNotes(frozenset({A}), {5: Tried(3, archived=True), 6: Tried(1)})
    later = LaneNotes(frozenset({B}), {5: Tried(2), 7: Tried(4)})
    wanted = {5: Tried(3, archived=True), 6: Tried(1), 7: Tried(4)}
    assert merged(one, later) == LaneNotes(frozenset({B}), wanted)

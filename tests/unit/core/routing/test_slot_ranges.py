"""Ranges of slots: what is written, what is meant, and what is refused with the parties named."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_keyshared.core.routing.slot_ranges import (
    SlotRange,
    check_ranges,
    membership,
    parse_ranges,
)
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import SLOTS


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("0-10000,20001-30000", [(0, 10_000), (20_001, 30_000)]),
        ("20001-30000,0-10000", [(0, 10_000), (20_001, 30_000)]),
        (" 0 - 1 , 7 ", [(0, 1), (7, 7)]),
        ("0-65535", [(0, 65_535)]),
        # They touch and share no slot.
        ("0-9,10-19", [(0, 9), (10, 19)]),
    ],
)
def test_ranges_are_read_with_both_ends_in_them(text: str, meant: list[tuple[int, int]]) -> None:
    assert list(parse_ranges(text)) == meant


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0-100,50-200", "the ranges 0-100 and 50-200 overlap in 50-100"),
        ("50-200,0-100", "the ranges 0-100 and 50-200 overlap in 50-100"),
        ("0-100,20-30", "the ranges 0-100 and 20-30 overlap in 20-30"),
        ("5,5", "the ranges 5-5 and 5-5 overlap in 5-5"),
        ("0-10,10-20", "the ranges 0-10 and 10-20 overlap in 10-10"),
        ("500-100", "the range 500-100 is inverted: write 100-500"),
        ("0-65536", "the range 0-65536 is out of bounds: slots go from 0 to 65535"),
        ("70000-80000", "the range 70000-80000 is out of bounds"),
        ("1" * 5_000, "out of bounds"),
        ("", "a range is empty"),
        ("0-10,", "a range is empty in '0-10,'"),
        ("a-b", "'a-b' is no range of slots"),
        ("0..10", "'0..10' is no range of slots"),
        ("-5", "'-5' is no range of slots"),
        ("0x1-0x2", "'0x1-0x2' is no range of slots"),
        ("\u0661-\u0662", "is no range of slots"),
    ],
)
def test_what_is_no_range_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_ranges(text)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "no range of slots is given"),
        ([5], "5 is no range of slots"),
        ([(0, 1, 2)], "(0, 1, 2) is no range of slots"),
        ([(0.0, 1)], "(0.0, 1) is no range of slots"),
        ([(False, True)], "(False, True) is no range of slots"),
        ([(-1, 5)], "the range -1-5 is out of bounds"),
        (["ab"], "'ab' is no range of slots"),
    ],
)
def test_what_a_program_gives_is_checked_alike(given: Any, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_ranges(given)
    assert said in str(refused.value)


def test_membership_says_of_each_slot_whether_it_is_in_a_range() -> None:
    table = membership([SlotRange(0, 2), SlotRange(65_534, 65_535)])
    assert len(table) == SLOTS
    assert [slot for slot in range(SLOTS) if table[slot]] == [0, 1, 2, 65_534, 65_535]

"""Which records of a batch are meant: by slot, in their order, whatever stands among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kafka_keyshared.config.keys import from_callable, from_header
from kafka_keyshared.core.keys.extraction import KeyOf
from kafka_keyshared.core.keys.selection import SelectionCounts, SlotSelection
from kafka_keyshared.core.routing.slot_ranges import parse_ranges
from kafka_keyshared.hashing import SLOT_FUNCTIONS, slot_of
from kafka_keyshared.model import Record, Retry, Undecodable, UnknownFormat
from tests.support.records import P0, FakeRecord

KEYS = [b"key-%d" % number for number in range(200)]
HALF = parse_ranges("0-10000,20001-42000")


def in_half(slot: int) -> bool:
    return 0 <= slot <= 10_000 or 20_001 <= slot <= 42_000


def batch(keys: Sequence[bytes | None]) -> list[Record]:
    return [FakeRecord(P0, offset, key) for offset, key in enumerate(keys)]


def offsets(records: Sequence[Record]) -> list[int]:
    return [each.offset() for each in records]


@pytest.mark.parametrize("name", list(SLOT_FUNCTIONS))
def test_those_whose_slot_is_in_a_range_are_chosen_in_order(name: str) -> None:
    slot = SLOT_FUNCTIONS[name]
    selection = SlotSelection(HALF, slot)
    found = selection.choose(batch(KEYS))
    assert offsets(found.records) == [at for at, key in enumerate(KEYS) if in_half(slot(key))]
    assert 0 < len(found.records) < 200
    assert selection.counts == SelectionCounts(read=200, chosen=len(found.records))


def mixed() -> list[Record]:
    """A batch with a keyless record at every fifth place and an event at every seventh."""
    records: list[Record] = []
    for offset, key in enumerate(KEYS):
        if offset % 7 == 0:
            records.append(FakeRecord(P0, offset, None, error="an event"))
        else:
            records.append(FakeRecord(P0, offset, None if offset % 5 == 0 else key))
    return records


@pytest.mark.parametrize("key_of", [None, from_callable(lambda record: record.key())])
@pytest.mark.parametrize("keyless", [False, True])
@pytest.mark.parametrize("slot", [slot_of, SLOT_FUNCTIONS["pulsar"]])
def test_records_without_a_key_and_events_are_told_apart(
    key_of: KeyOf | None, keyless: bool, slot: Callable[[bytes], int]
) -> None:
    selection = SlotSelection(HALF, slot, key_of, keyless=keyless)
    found = selection.choose(mixed())
    keyed = [at for at in range(200) if at % 7 and at % 5 and in_half(slot(KEYS[at]))]
    without = [at for at in range(200) if at % 7 and at % 5 == 0]
    assert offsets(found.records) == sorted(keyed + (without if keyless else []))
    assert offsets(found.events) == list(range(0, 200, 7))
    assert found.refused == []
    counts = selection.counts
    assert (counts.read, counts.keyless) == (200 - len(found.events), len(without))
    assert counts.chosen == len(found.records)


def test_the_empty_key_is_a_key() -> None:
    record = FakeRecord(P0, 0, b"")
    slot = slot_of(b"")
    assert SlotSelection(parse_ranges(str(slot))).choose([record]).records == [record]
    assert SlotSelection(parse_ranges(str(slot + 1))).choose([record]).records == []


@pytest.mark.parametrize("slot", [slot_of, SLOT_FUNCTIONS["pulsar"]])
def test_keys_out_of_headers_are_asked_for_at_once(slot: Callable[[bytes], int]) -> None:
    records: list[Record] = [
        FakeRecord(P0, offset, b"same", headers=[("customer", key)])
        for offset, key in enumerate(KEYS)
    ]
    found = SlotSelection(HALF, slot, from_header("customer")).choose(records)
    assert offsets(found.records) == [at for at, key in enumerate(KEYS) if in_half(slot(key))]
    without: list[Record] = [FakeRecord(P0, 0, b"same", headers=None)]
    selection = SlotSelection(HALF, slot, from_header("customer"))
    assert selection.choose(without).records == []
    assert selection.counts.keyless == 1


def test_a_key_that_cannot_be_read_is_told_with_its_reason_and_left_out() -> None:
    def key_of(record: Any) -> bytes:
        if record.offset() == 1:
            raise Undecodable("it is broken")
        if record.offset() == 2:
            raise KeyError("customer")
        return bytes(record.key())

    selection = SlotSelection(parse_ranges("0-65535"), slot_of, key_of, keyless=True)
    found = selection.choose(batch(KEYS[:4]))
    assert offsets(found.records) == [0, 3]
    assert [(each.record.offset(), each.reason) for each in found.refused] == [
        (1, "it is broken"),
        (2, "KeyError: 'customer'"),
    ]
    assert selection.counts == SelectionCounts(read=4, chosen=2, undecodable=2)


def test_a_key_that_cannot_be_read_just_now_counts_nothing() -> None:
    def key_of(record: Any) -> bytes | None:
        if record.offset() == 1:
            raise Retry(1)
        return None

    selection = SlotSelection(HALF, slot_of, key_of)
    with pytest.raises(Retry):
        selection.choose(batch(KEYS[:4]))
    assert selection.counts == SelectionCounts()


def test_one_record_of_an_unknown_format_is_left_out_and_many_are_waited_for() -> None:
    known: set[int] = set()
    held: list[int] = []

    def key_of(record: Any) -> bytes | None:
        if record.offset() in unknown - known:
            raise UnknownFormat("gzip", "gzip; the setting says plain JSON", 1.0)
        return b"k"

    def hold(record: Any, error: Retry) -> float:
        assert str(error) == "gzip; the setting says plain JSON"
        held.append(record.offset())
        if len(held) == 3:
            known.update(unknown)
        return 1.0

    selection = SlotSelection(parse_ranges("0-65535"), slot_of, key_of, hold=hold)
    unknown = {1}
    found = selection.choose(batch(KEYS[:4]))
    assert offsets(found.records) == [0, 2, 3]
    assert [each.reason for each in found.refused] == ["gzip; the setting says plain JSON"]
    unknown = {0, 1, 2}
    assert offsets(selection.choose(batch(KEYS[:4])).records) == [0, 1, 2, 3]
    assert held == [0, 0, 0]

"""The keys of records, as long as these are held."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.keys import key_cache
from kafka_keyshared.core.keys.key_cache import KeptKeys
from kafka_keyshared.core.records.pristine import Chunk
from kafka_keyshared.model import Record
from tests.support.records import record


def came(kept: KeptKeys, *keys: bytes | None, at: int = 0) -> Chunk:
    chunk = Chunk([record(at + number) for number in range(len(keys))], 1)
    kept.add(chunk.records, [*keys], chunk)
    return chunk


def test_a_key_is_told_as_long_as_the_chunk_of_its_record_is_there() -> None:
    kept = KeptKeys(4)
    chunk = came(kept, b"a", None)
    kept.keep(())
    first, second = chunk.records
    assert (kept.of(first), kept.of(second)) == (b"a", None)


def test_the_key_of_a_stray_is_told_when_its_chunk_is_gone_and_no_other_is_kept() -> None:
    kept = KeptKeys(4)
    chunk = came(kept, b"a", b"b", b"c")
    stray = chunk.records[1]
    del chunk
    kept.keep([stray])
    kept.keep([stray])  # what is kept of few is looked at like all else
    assert kept.of(stray) == b"b"
    assert len(kept) == 1


def test_of_two_records_at_one_address_the_later_one_is_meant() -> None:
    kept = KeptKeys(4)
    here = record(0)
    for key in (b"before", b"after"):
        chunk = Chunk([here], 1)
        kept.add(chunk.records, [key], chunk)
        assert kept.of(here) == key
        kept.keep([here])  # of both, whether their chunks are there or not
        assert kept.of(here) == key


def test_a_record_that_nobody_has_told_of_is_not_known() -> None:
    kept = KeptKeys(4)
    chunk = came(kept, b"a")
    assert kept.knows(chunk.records[0])
    assert not kept.knows(record(9))


def test_short_columns_are_put_together_and_long_ones_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_cache, "SPARE", 3)
    kept = KeptKeys(4)
    chunks = [came(kept, b"a"), came(kept, b"b", b"c"), came(kept, b"d")]
    assert [len(columns.keys) for columns in kept._columns] == [3, 1]
    found = [kept.of(each) for chunk in chunks for each in chunk.records]
    assert found == [b"a", b"b", b"c", b"d"]


def test_it_is_crowded_at_some_windows_full_and_not_again_at_once() -> None:
    kept = KeptKeys(1_000)
    held: list[Record] = []
    while not kept.crowded():
        held += came(kept, *[b"k"] * 500).records
    assert len(held) == 3_500
    kept.keep(held)
    assert (len(kept), kept.crowded()) == (3_500, False), "all of them are still held"
    kept.keep(())
    assert (len(kept), kept.crowded()) == (0, False)

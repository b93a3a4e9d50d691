"""The slot function blake3_u16: keys of 16 bytes go by their slot, any other is undecodable."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import SLOT_FUNCTIONS, _blake3
from kafka_keyshared.model import Record
from tests.support.core_harness import Harness
from tests.support.records import record

KEYS = [number.to_bytes(16, "little") for number in range(40)]
OTHERS = [b"", b"fifteen bytes..", b"seventeen bytes.."]


def member(**options: Any) -> Harness:
    made = Harness(
        SubscriptionSettings(
            workers=worker_names(4), slot_function="blake3_u16", undecodable="drop", **options
        )
    )
    made.assign()
    return made


def test_each_key_is_leased_to_the_owner_of_its_slot() -> None:
    made = member()
    made.fetch(*(record(at, key) for at, key in enumerate(KEYS)))
    owners = made.sub().table.owners
    leased = {
        item.offset(): each.slice.worker
        for each in made.sub().unsettled.leases()
        for item in each.slice.records
    }
    slot_of = SLOT_FUNCTIONS["blake3_u16"]
    assert leased == {at: owners[slot_of(key)] for at, key in enumerate(KEYS)}
    assert len(set(leased.values())) == 4
    assert sorted(made.work()) == list(range(40))


def test_keys_of_another_length_are_undecodable_and_null_keys_are_not() -> None:
    made = member()
    made.fetch(*(record(at, key) for at, key in enumerate([KEYS[7], *OTHERS, None])))
    assert sorted(made.work()) == [0, 4]
    assert made.committed() == (5, [])
    assert made.said("orders-0@1 is dropped: the key has 0 bytes, and has to have 16")
    assert made.sub().counts.dropped == 3


def test_null_keys_may_all_be_in_one_lane() -> None:
    made = member(null_keys="one-lane")
    made.fetch(*(record(at, None) for at in range(3)))
    assert made.work() == [0, 1, 2]


def test_it_is_the_derived_key_that_has_to_have_sixteen_bytes() -> None:
    def value(each: Record) -> bytes | None:
        key: bytes | None = each.key()
        return None if key is None else key * 8

    made = member(key_of=value)
    made.fetch(record(0, b"ab"), record(1, b"abc"), record(2, KEYS[0]))
    assert made.work() == [0]
    assert made.said("the key has 24 bytes, and has to have 16")


def test_without_its_package_it_is_refused_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "blake3", None)
    _blake3.cache_clear()
    with pytest.raises(ConfigError, match=r"pip install .kafka-keyshared\[blake3\]"):
        member()

"""Record, key, slot, row: the fused loops of the common case do what the plain way does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_keyshared.cli.routing import where
from kafka_keyshared.core.keys.extraction import DerivedKeys, KeyOf, NullKeys, OwnKeys
from kafka_keyshared.core.records.pristine import Chunk
from kafka_keyshared.core.routing.ring import ROUTING_VNODES, VnodeRing
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.hashing import SLOT_FUNCTIONS, SLOTS, SlotFunction, slot_of
from tests.support.core_harness import Harness
from tests.support.records import FakeRecord, record

ROWS = 7

chunks = st.lists(st.none() | st.binary(max_size=3), max_size=30)
nulls = st.sampled_from(["any", "one-lane", "reject"])


def plainly(key: bytes) -> int:
    """Give the same slot as the default function, without being it."""
    return slot_of(key)


class ByValue:
    """A key function that can tell many keys at once."""

    def __call__(self, each: Any) -> bytes | None:
        found: bytes | None = each.key()
        return found

    def of_all(self, records: Sequence[Any]) -> list[bytes | None]:
        return [self(each) for each in records]


def own(null_keys: NullKeys, slot: Callable[[bytes], int]) -> OwnKeys:
    return OwnKeys("topic", null_keys, slot)


def derived(key_of: KeyOf) -> Callable[[NullKeys, Callable[[bytes], int]], OwnKeys]:
    return lambda null_keys, slot: DerivedKeys(
        key_of, "topic", null_keys, undecodable_is_null=False, window_records=100, slot=slot
    )


@pytest.mark.parametrize("make", [own, derived(ByValue()), derived(lambda each: each.key())])
@given(keys=chunks, null_keys=nulls)
def test_the_fused_loop_routes_as_the_plain_one_does(
    make: Callable[[NullKeys, Callable[[bytes], int]], OwnKeys],
    keys: list[bytes | None],
    null_keys: NullKeys,
) -> None:
    records: list[FakeRecord] = [record(offset, key) for offset, key in enumerate(keys)]
    found = []
    for slot in (slot_of, plainly):
        rows: list[list[Any]] = [[] for _ in range(ROWS)]
        alone: list[Any] = []
        routing = make(null_keys, slot)
        events = routing.route(Chunk(records), [rows[slot % ROWS] for slot in range(SLOTS)], alone)
        found.append((rows, alone, events, [each.record for each in routing.refused]))
    assert found[0] == found[1]
    assert sum(map(len, found[0][0])) + len(found[0][1]) + len(found[0][3]) == len(records)


@pytest.mark.parametrize("name", sorted(SLOT_FUNCTIONS))
def test_a_key_goes_to_the_worker_that_routing_where_shows(name: SlotFunction) -> None:
    names = worker_names(5)
    member = Harness(SubscriptionSettings(workers=names, slot_function=name))
    member.assign()
    keys = [b"order-%010d" % number for number in range(40)]  # of 16 bytes, as blake3_u16 wants
    member.fetch(*(record(offset, key) for offset, key in enumerate(keys)))
    ring = VnodeRing(names, ROUTING_VNODES)
    shown = {key: where(key, ring, name)["worker"] for key in keys}
    had = {
        given.slice.records[index].key(): names[worker.index]
        for worker in member.pool.workers.values()
        for given in worker.given.values()
        for index in range(len(given.slice.records))
    }
    assert had == shown
    assert len(set(had.values())) > 1

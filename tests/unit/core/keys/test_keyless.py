"""Records without a key beside others that have one are logged once for each topic, and counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from kafka_keyshared.core.keys.extraction import NullKeys
from kafka_keyshared.core.keys.keyless import ALL_KEYLESS
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.hashing import SlotFunction
from kafka_keyshared.model import Record, TopicPartition
from tests.support.core_harness import Harness
from tests.support.records import P0, P1, FakeRecord

CDC = TopicPartition("cdc", 0)


def by_header(item: Record) -> bytes | None:
    found: bytes | None = dict(item.headers() or ()).get("key")
    return found


class AtOnce:
    """A key function that tells the keys of a chunk at once."""

    def __call__(self, item: Record) -> bytes | None:
        return by_header(item)

    def of_all(self, items: Sequence[Record]) -> list[bytes | None]:
        return [by_header(each) for each in items]


KEY_FUNCTIONS = [by_header, AtOnce()]


def member(
    key_of: Callable[[Record], bytes | None] | None,
    nulls: NullKeys = "any",
    *,
    slot_function: SlotFunction = "mmh3",
) -> Harness:
    made = Harness(
        SubscriptionSettings(key_of=key_of, null_keys=nulls, slot_function=slot_function)
    )
    made.assign(P0, P1, CDC)
    return made


def fetch(made: Harness, keys: Iterable[bytes | None], at: TopicPartition = P0) -> None:
    first = made.sub().window.received  # so no offset comes twice
    made.fetch(
        *(
            FakeRecord(at, offset, key, headers=None if key is None else [("key", key)])
            for offset, key in enumerate(keys, first)
        )
    )


def warnings(made: Harness) -> list[str]:
    return [each.text for each in made.notices if "no key" in each.text or "none of" in each.text]


@pytest.mark.parametrize("key_of", KEY_FUNCTIONS)
@pytest.mark.parametrize(
    "chunks",
    [
        [[b"a", None, b"b"]],
        [[None, b"a"]],
        [[b"a"], [None]],
        [[None], [b"a", b"b"]],
        [[None], [None, None, b"a"]],
    ],
)
def test_a_mixture_is_logged_when_both_kinds_have_come(
    key_of: Any, chunks: list[list[bytes | None]]
) -> None:
    made = member(key_of)
    for chunk in chunks[:-1]:
        fetch(made, chunk)
    assert warnings(made) == []
    fetch(made, chunks[-1])
    (line,) = warnings(made)
    assert line.startswith("topic orders: ")
    assert "no key by the key= setting" in line
    assert "key='record'" in line
    fetch(made, [b"c", None])
    assert len(warnings(made)) == 1, "once for a topic"


@pytest.mark.parametrize("key_of", KEY_FUNCTIONS)
def test_it_is_logged_and_counted_for_each_topic_by_itself(key_of: Any) -> None:
    made = member(key_of)
    event = FakeRecord(P0, 9, None, error="all brokers are down")
    made.fetch(event)
    fetch(made, [None, None])
    fetch(made, [b"a"], CDC)
    assert warnings(made) == []
    fetch(made, [None, b"a"], CDC)
    fetch(made, [None, b"a"], P1)
    assert [line.split(":")[0] for line in warnings(made)] == ["topic cdc", "topic orders"]
    keyless = made.sub().keys.keyless
    assert keyless is not None
    assert keyless.counts == {"orders": 3, "cdc": 1}


def test_one_lane_is_named_and_rejected_null_keys_are_logged_as_undecodable_alone() -> None:
    made = member(by_header, "one-lane")
    fetch(made, [b"a", None])
    assert "in a lane of their own (null_keys='one-lane')" in warnings(made)[0]
    rejecting = member(by_header, "reject")
    fetch(rejecting, [b"a", None])
    assert warnings(rejecting) == []


def test_null_keys_of_the_records_themselves_are_what_they_are() -> None:
    made = member(None)
    fetch(made, [b"a", None])
    assert warnings(made) == []
    made = member(None, slot_function="blake3_u16")
    fetch(made, [b"a" * 16, None])
    assert warnings(made) == []


@pytest.mark.parametrize("key_of", KEY_FUNCTIONS)
def test_a_topic_in_which_no_record_has_a_key_is_logged_too(key_of: Any) -> None:
    made = member(key_of)
    fetch(made, [None] * (ALL_KEYLESS - 1))
    assert warnings(made) == []
    fetch(made, [None])
    (line,) = warnings(made)
    assert line.startswith(f"topic orders: none of the first {ALL_KEYLESS:,} records has a key")
    fetch(made, [b"a"])
    assert len(warnings(made)) == 1

"""What a key function makes of a sample, by topic."""

from __future__ import annotations

from collections import Counter

from kafka_keyshared.config.keys.sampled import REASONS_MAX, KeySample
from kafka_keyshared.model import Record, Retry, Undecodable, UnknownFormat
from tests.support.records import record

ERRORS: dict[bytes, Exception] = {
    b"broken": Undecodable("no JSON"),
    b"bug": ValueError("a bug"),
    b"gzip": UnknownFormat("gzip", "gzip; the setting says plain JSON"),
    b"away": Retry(1.0),
}


def key_of(item: Record) -> bytes | None:
    key: bytes | None = item.key()
    if key is not None and key.startswith(b"reason"):
        raise Undecodable(key.decode())
    if key in ERRORS:
        raise ERRORS[key]
    return key


def test_records_are_counted_by_topic_and_the_readable_keys_returned() -> None:
    sample = KeySample(key_of)
    names = ["a", None, "broken", "bug", "gzip", "gzip", "away", "b"]
    assert sample.keys("orders", [record(at, name) for at, name in enumerate(names)]) == [
        b"a",
        None,
        b"b",
    ]
    assert sample.keys("other", [record(0, "a")]) == [b"a"]
    orders, other = sample.topics["orders"], sample.topics["other"]
    assert (orders.keyed, orders.keyless, orders.without, orders.mixed) == (2, 1, 5, True)
    assert orders.broken == Counter({"no JSON": 1, "ValueError: a bug": 1})
    assert orders.unknown == Counter({"gzip; the setting says plain JSON": 2})
    assert (other.without, other.mixed) == (0, False)


def test_no_more_than_a_few_reasons_are_kept() -> None:
    sample = KeySample(key_of)
    sample.keys("orders", [record(at, f"reason {at}") for at in range(3 * REASONS_MAX)])
    broken = sample.topics["orders"].broken
    assert len(broken) == REASONS_MAX + 1
    assert broken["other reasons"] == 2 * REASONS_MAX

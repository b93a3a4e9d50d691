"""Skew counts by key and slot what there is, as advise counts it, and time from the log."""

from __future__ import annotations

from collections import Counter

import pytest

pytest.importorskip("pyspark")

from kafka_keyshared.hashing import slot_of
from kafka_keyshared.spark.session import Session
from kafka_keyshared.spark.skew import measure


def test_records_bytes_and_seconds_are_counted_by_key_and_slot(session: Session) -> None:
    keys: list[bytes | None] = [b"key-%d" % (number**2 % 97) for number in range(900)]
    keys += [None] * 30
    spark = session.spark
    source = spark.createDataFrame([(key, 10) for key in keys], "key binary, bytes bigint")
    rows = spark.createDataFrame(
        [
            ("handled", b"key-1", 0, 2_000_000_000, 1),
            ("handled", b"key-1", 0, 1_000_000_000, 2),
            ("dead_lettered", b"key-1", 0, 9_000_000_000, None),
        ],
        "event string, key binary, started bigint, ended bigint, attempt int",
    )
    found = measure(source, rows)
    keyed = [key for key in keys if key is not None]
    assert found.keys == len(set(keyed))
    assert found.slots["records"] == Counter(map(slot_of, keyed))
    assert found.totals == {"records": 930, "bytes": 9_300, "seconds": 3}
    assert found.keyless == {"records": 30, "bytes": 300, "seconds": 0}
    most = Counter(keyed).most_common(1)[0]
    assert found.heaviest["records"][0]["records"] == most[1]
    assert [each["key"] for each in found.heaviest["seconds"]] == ["key-1"]
    assert found.slots["seconds"][slot_of(b"key-1")] == 3

"""Keys that are made before records are given their places."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.model import Undecodable
from kafka_keyshared.spark.driver.batch import _keys_of
from kafka_keyshared.spark.placement import RecordPlacement

pd = pytest.importorskip("pandas")


def made(key_of: Callable[[Any], bytes | None], records: int = 5) -> Any:
    """Make the keys of so many records, whose values are their numbers."""
    columns = [
        ["t"] * records,
        [0] * records,
        list(range(records)),
        *([1] * records, [1] * records, [None] * records),
        [b"%d" % number for number in range(records)],
        [None] * records,
    ]
    settings = SubscriptionSettings(workers=worker_names(2))
    return _keys_of(RecordPlacement(settings), key_of)(*map(pd.Series, columns))


def test_a_function_that_says_the_same_again_is_taken() -> None:
    def by_value(record: Any) -> bytes | None:
        number = int(record.value())
        if number == 3:
            raise Undecodable("no 3")
        return None if number == 4 else b"k%d" % (number % 2)

    found = made(by_value)
    assert list(found["made_key"]) == [b"k0", b"k1", b"k0", None, None]
    assert dict(found["unreadable"].dropna()) == {3: "no 3"}
    assert len(set(found["place"][:3])) == 2
    assert len(made(by_value, 0)) == 0


def test_a_function_that_says_something_else_when_asked_again_is_refused() -> None:
    """As one that goes by the time, by chance, or by what it has seen before."""
    numbers = count()
    with pytest.raises(KeySharedError, match=r"key of t-0@\d was b'k\d', and asked again b'k\d'"):
        made(lambda _: b"k%d" % next(numbers))

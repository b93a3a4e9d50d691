"""Records as handlers get them, from columns as Spark gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kafka_keyshared.spark.rows import records_of

np = pytest.importorskip("numpy")

TWO = [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (None, None),
        ([], []),
        (TWO[:1], [("a", b"1")]),
        (TWO, [("a", b"1"), ("b", None)]),
    ],
)
@pytest.mark.parametrize("made", [list, np.array], ids=["in a task", "where keys are made"])
def test_headers_are_the_clients_whatever_they_come_in(
    given: Sequence[Any] | None, told: Any, made: Any
) -> None:
    column = None if given is None else made(given)
    (record,) = records_of([["t"], [1], [7], [1_700], [1], [b"k"], [None], [column]])
    assert record.headers() == told
    assert (record.topic(), record.partition(), record.offset()) == ("t", 1, 7)
    assert (record.timestamp(), record.key(), record.value()) == ((1, 1_700), b"k", None)

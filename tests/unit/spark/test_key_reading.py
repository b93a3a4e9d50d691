"""A task of Spark judges records of an unknown format as a pod does, and ends where it cannot."""

from __future__ import annotations

import pytest

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.model import Record, Retry, UnknownFormat
from kafka_keyshared.spark.key_reading import KEY_WAIT, read_keys
from tests.support.records import FakeRecord, record

NEW = "schema 44: the registry knows no such schema"


class Task:
    """Reads the keys of one batch; time passes only where the task waits."""

    def __init__(self, *values: bytes) -> None:
        self.now = 0.0
        self.began = 0.0
        self.registered_at = float("inf")
        self.away = False
        self.records: list[FakeRecord] = []
        for offset, value in enumerate(values):
            self.records.append(record(offset))
            self.records[-1].set_value(value)

    def key_of(self, item: Record) -> bytes | None:
        value: bytes = item.value()
        if self.away:
            raise Retry(1.0) from ConnectionError("no route")
        if value == b"new" and self.now < self.registered_at:
            raise UnknownFormat("schema 44", NEW, 1.0, patience=max(0.0, 10.0 - self.now))
        if value == b"gzip":
            raise UnknownFormat("gzip", "gzip; the setting says plain JSON", 10.0)
        if value == b"protobuf":
            raise UnknownFormat("schema 42", "schema 42 is PROTOBUF", 1.0)
        return value

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def read(self) -> list[tuple[bytes | None, str | None]]:
        return read_keys(self.key_of, self.records, self.wait, lambda: self.now)


def test_a_single_record_of_an_unknown_format_is_left_to_the_policy() -> None:
    task = Task(b"a", b"gzip", b"new", b"b")
    assert task.read() == [
        (b"a", None),
        (None, "gzip; the setting says plain JSON"),
        (None, NEW),
        (b"b", None),
    ]
    assert task.now == pytest.approx(10.0), "it waited as long as the schema may yet come"


@pytest.mark.parametrize(
    ("values", "text", "seconds"),
    [
        ((b"gzip", b"gzip", b"gzip"), "gzip; the setting says plain JSON", 0.0),
        ((b"a", b"gzip", b"gzip"), "orders-0@1 cannot be read, for 0 s: gzip", 0.0),
        ((b"protobuf", b"protobuf"), "schema 42 is PROTOBUF; the batch ends here", 0.0),
        ((b"new", b"new"), NEW, 10.0),
        ((b"new",), NEW, KEY_WAIT),
    ],
)
def test_a_batch_whose_reader_is_at_fault_ends_with_the_reason(
    values: tuple[bytes, ...], text: str, seconds: float
) -> None:
    task = Task(*values)
    with pytest.raises(KeySharedError, match=text):
        task.read()
    assert task.now == pytest.approx(seconds)


def test_a_schema_that_is_registered_meanwhile_is_waited_for() -> None:
    task = Task(b"new", b"new", b"a")
    task.registered_at = 7.0
    assert task.read() == [(b"new", None), (b"new", None), (b"a", None)]


def test_a_registry_that_is_away_for_a_minute_ends_the_batch() -> None:
    task = Task(b"a", b"b")
    task.away = True
    with pytest.raises(KeySharedError, match="ConnectionError: no route; the batch ends here"):
        task.read()
    assert task.now == pytest.approx(KEY_WAIT)

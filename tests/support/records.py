"""Records without a broker: what tests of the core feed it with."""

from __future__ import annotations

from typing import Any

from kafka_keyshared.core.contract.outcomes import Disposition, Failure
from kafka_keyshared.hashing import SLOTS, slot_of
from kafka_keyshared.model import TopicPartition

TOPIC = "orders"
P0 = TopicPartition(TOPIC, 0)
P1 = TopicPartition(TOPIC, 1)


class FakeRecord:
    """The methods of a message. ``epoch`` is the test's own mark of who received it when.

    ``came_as`` is topic and key as the broker delivered them, whatever has been set since.
    """

    __slots__ = (
        "_error",
        "_headers",
        "_key",
        "_offset",
        "_partition",
        "_topic",
        "_value",
        "came_as",
        "epoch",
    )

    def __init__(
        self,
        partition: TopicPartition,
        offset: int,
        key: bytes | None,
        *,
        size: int = 10,
        error: object = None,
        epoch: int = 0,
        headers: list[tuple[str, Any]] | None = None,
    ) -> None:
        self._topic, self._partition = partition
        self._offset = offset
        self._key = key
        self._value: Any = b"v" * size
        self.came_as = (partition.topic, key)
        self._error = error
        self._headers = headers
        self.epoch = epoch

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> Any:
        return self._key

    def value(self) -> Any:
        return self._value

    def set_topic(self, topic: Any) -> None:
        self._topic = topic

    def set_key(self, key: Any) -> None:
        self._key = key

    def set_value(self, value: Any) -> None:
        self._value = value

    def set_headers(self, headers: Any) -> None:
        self._headers = headers

    def headers(self) -> list[tuple[str, Any]] | None:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return (1, self._offset)

    def leader_epoch(self) -> int | None:
        return self.epoch

    def error(self) -> Any:
        return self._error

    def __len__(self) -> int:
        return len(self._value or b"")

    def __repr__(self) -> str:
        return f"{self._topic}-{self._partition}@{self._offset}({self._key!r})"


def record(offset: int, key: bytes | str | None = "k", at: TopicPartition = P0) -> FakeRecord:
    """A record of :data:`P0` unless told otherwise."""
    return FakeRecord(at, offset, key.encode() if isinstance(key, str) else key)


def failure(
    outcome: Disposition = Disposition.ERROR, *, jitter: float = 0.0, after: float | None = None
) -> Failure:
    """A failed attempt."""
    return Failure(outcome, "ValueError", "no such flight", "", 0, jitter, after)


ERROR = failure()
NOT_NOW = failure(Disposition.RETRY, after=3.0)
GIVE_UP = failure(Disposition.DEAD_LETTER)


def colliding_keys() -> tuple[bytes, bytes]:
    """Two keys that share a slot, and so a worker whatever the ring."""
    seen: dict[int, bytes] = {}
    for number in range(SLOTS):
        key = b"%d" % number
        other = seen.setdefault(slot_of(key), key)
        if other is not key:
            return other, key
    raise AssertionError("no two keys of so many share a slot")

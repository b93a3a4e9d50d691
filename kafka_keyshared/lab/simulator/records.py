"""Records of the simulated client, with the methods of a message."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError

from kafka_keyshared.lab.simulator.logs import Written
from kafka_keyshared.model import TopicPartition

GROUP = "group"
"""The header that every record with a key has."""

GROUPS = 7


def group_of(key: bytes) -> bytes:
    """Return the header value that the producer writes for a record with this key."""
    return b"key-%d" % (sum(key) % GROUPS)


class SimRecord:
    """A message. ``assignment`` is the number of its :class:`~.history.Reading`."""

    __slots__ = (
        "_epoch",
        "_error",
        "_headers",
        "_key",
        "_offset",
        "_partition",
        "_topic",
        "_value",
        "_written",
        "assignment",
        "came",
    )

    def __init__(
        self,
        partition: TopicPartition,
        offset: int,
        written: Written,
        assignment: int = 0,
        error: KafkaError | None = None,
    ) -> None:
        self._topic, self._partition = partition
        self._offset = offset
        self._key: Any
        self._value: Any
        self._key, self._value, self._epoch = written
        self._written = written[0]
        self.assignment = assignment
        self.came = (partition, offset, assignment)
        self._error = error
        self._headers: Any = None

    def topic(self) -> str:
        """Return its topic."""
        return self._topic

    def partition(self) -> int:
        """Return the number of its partition."""
        return self._partition

    def offset(self) -> int:
        """Return its offset."""
        return self._offset

    def key(self) -> Any:
        """Return its key, None if it has none."""
        return self._key

    def value(self) -> Any:
        """Return its value."""
        return self._value

    def headers(self) -> list[tuple[str, Any]] | None:
        """Return its headers: those of its producer, or those that its handler has written."""
        if self._headers is None and self._written is not None:
            return [(GROUP, group_of(self._written))]
        return self._headers  # type: ignore[no-any-return]

    def timestamp(self) -> tuple[int, int]:
        """Return a time that grows with the offset."""
        return (1, self._offset)

    def leader_epoch(self) -> int | None:
        """Return the epoch of the leader that it was written to."""
        return self._epoch

    def error(self) -> KafkaError | None:
        """Return the error that the client delivers in place of a record."""
        return self._error

    def set_topic(self, topic: Any) -> None:
        """Write into it, as a handler may."""
        self._topic = topic

    def set_key(self, key: Any) -> None:
        """Write into it, as a handler may."""
        self._key = key

    def set_value(self, value: Any) -> None:
        """Write into it, as a handler may."""
        self._value = value

    def set_headers(self, headers: Any) -> None:
        """Write into it, as a handler may."""
        self._headers = headers

    def __len__(self) -> int:
        return len(self._value or b"")

    def __repr__(self) -> str:
        what = "" if self._error is None else f": {self._error.name()}"
        return f"{self._topic}-{self._partition}@{self._offset}{what}"


def client_event(
    code: int, reason: str, partition: TopicPartition, offset: int = -1, *, fatal: bool = False
) -> SimRecord:
    """Return an event of the client, as a message among the records."""
    error = KafkaError(code, reason, fatal)
    return SimRecord(partition, offset, (None, reason.encode(), -1), error=error)

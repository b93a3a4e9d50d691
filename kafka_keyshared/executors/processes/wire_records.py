"""Column format of records that cross the pipe to worker processes.

Records cross the pipe by columns. To read one field of all records of a batch costs a quarter of
reading record after record. The same holds for pickling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import methodcaller
from typing import Any, NamedTuple

import msgspec
from confluent_kafka import Message

from kafka_keyshared.executors.processes.shm_values import LARGE, Segment
from kafka_keyshared.headers import ask_headers, headers_of_all
from kafka_keyshared.model import Record

ASKED = ("topic", "partition", "offset", "key", "value", "timestamp", "leader_epoch")
VALUE = ASKED.index("value")
OF_MESSAGES: tuple[Callable[[Any], Any], ...] = tuple(getattr(Message, name) for name in ASKED)
OF_OTHERS: tuple[Callable[[Any], Any], ...] = tuple(map(methodcaller, ASKED))


class ProcessRecord(msgspec.Struct, eq=False, gc=False):
    """A record in the worker process; it has the methods of the client's own message.

    A message of the client takes ten times as long to make, and most handlers read two fields.
    """

    _topic: str
    _partition: int
    _offset: int
    _key: Any
    _value: Any
    _headers: list[tuple[str, Any]] | None
    _timestamp: tuple[int, int]
    _leader_epoch: int | None

    def topic(self) -> str:
        """Return the topic's name."""
        return self._topic

    def partition(self) -> int:
        """Return the partition's number."""
        return self._partition

    def offset(self) -> int:
        """Return the offset in the partition."""
        return self._offset

    def key(self) -> Any:
        """Return the key, None if there is none."""
        return self._key

    def value(self) -> Any:
        """Return the value, None if there is none."""
        return self._value

    def headers(self) -> list[tuple[str, Any]] | None:
        """Return the headers in order, None if there are none."""
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        """Return the type of the timestamp, and milliseconds since 1970."""
        return self._timestamp

    def leader_epoch(self) -> int | None:
        """Return the epoch of the leader that the record was read from."""
        return self._leader_epoch

    def error(self) -> None:
        """Return None: this is a record, not an event of the client."""

    def latency(self) -> None:
        """Return None: only a produced message has a latency."""

    def set_headers(self, headers: Any) -> None:
        """Make :meth:`headers` return this; the parent's record does not change."""
        self._headers = headers

    def set_key(self, key: Any) -> None:
        """Make :meth:`key` return this; the parent's record does not change."""
        self._key = key

    def set_value(self, value: Any) -> None:
        """Make :meth:`value` return this; the parent's record does not change."""
        self._value = value

    def __len__(self) -> int:
        return len(self._value) if self._value is not None else 0


class Columns(NamedTuple):
    """The fields of a batch's records as they cross the pipe, in columns of raw bytes.

    - ``asked``: a column for each of :data:`ASKED`. A column has one item if all records share
      the value.
    - ``headers``: None if no record has any.
    - ``large``: indices and sizes of the values that are in the segment instead.
    """

    many: int
    asked: list[list[Any]]
    headers: list[list[tuple[str, Any]] | None] | None
    large: dict[int, int]

    def records(self, segment: Segment) -> Iterator[ProcessRecord]:
        """Return the records in order. Raises :class:`OSError` as the segment does."""
        for at, found in zip(self.large, segment.take([*self.large.values()]), strict=True):
            self.asked[VALUE][at] = found
        topic, partition, offset, key, value, timestamp, epoch = (
            column if len(column) == self.many else column * self.many for column in self.asked
        )
        headers = self.headers or [None] * self.many
        return map(ProcessRecord, topic, partition, offset, key, value, headers, timestamp, epoch)


def columns_of(records: Sequence[Record], segment: Segment) -> Columns:
    """Return the columns of at least one record.

    Large values are put into the segment, which must have no pending reader.
    """
    ours = set(map(type, records)) == {Message}
    asked = [list(map(ask, records)) for ask in (OF_MESSAGES if ours else OF_OTHERS)]
    for number in (0, len(ASKED) - 1):  # most batches have one topic and one leader
        column = asked[number]
        if column.count(column[0]) == len(column):
            asked[number] = column[:1]
    headers = headers_of_all(records, Message.headers if ours else ask_headers)
    some = headers if headers.count(None) < len(headers) else None
    return Columns(len(records), asked, some, _set_apart(asked[VALUE], segment))


def _set_apart(values: list[Any], segment: Segment) -> dict[int, int]:
    """Move large values into the segment; return their indices and sizes."""
    segment.shrink()
    large = [at for at, each in enumerate(values) if type(each) is bytes and len(each) >= LARGE]
    if not large or not segment.put([values[at] for at in large]):
        return {}
    sizes = {at: len(values[at]) for at in large}
    for at in large:
        values[at] = None
    return sizes

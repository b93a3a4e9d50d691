"""Records on their way to another process: what of them crosses the pipe, and what is made of it.

They go by columns: what asks one thing of all of a batch costs a quarter of what asks one record
after the other, and so does the pickling of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import methodcaller
from typing import Any, NamedTuple

import msgspec
from confluent_kafka import Message

from kafka_keyshared.headers import ask_headers, headers_of_all
from kafka_keyshared.model import Record
from kafka_keyshared.pools.segment import LARGE, Segment

ASKED = ("topic", "partition", "offset", "key", "value", "timestamp", "leader_epoch")
VALUE = ASKED.index("value")
OF_MESSAGES: tuple[Callable[[Any], Any], ...] = tuple(getattr(Message, name) for name in ASKED)
OF_OTHERS: tuple[Callable[[Any], Any], ...] = tuple(map(methodcaller, ASKED))


class ReceivedRecord(msgspec.Struct, eq=False, gc=False):
    """The record in the process that runs it: it answers as the client's own message does.

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
        """Return the key, None where there is none."""
        return self._key

    def value(self) -> Any:
        """Return the value, None where there is none."""
        return self._value

    def headers(self) -> list[tuple[str, Any]] | None:
        """Return the headers in order, None where there are none."""
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        """Return the kind of the timestamp, and milliseconds since 1970."""
        return self._timestamp

    def leader_epoch(self) -> int | None:
        """Return the epoch of the leader that the record was read from."""
        return self._leader_epoch

    def error(self) -> None:
        """Return nothing: this is a record, and no event of the client."""

    def latency(self) -> None:
        """Return nothing: that is known of what was produced."""

    def set_headers(self, headers: Any) -> None:
        """Let :meth:`headers` return this; the record itself stays as it came."""
        self._headers = headers

    def set_key(self, key: Any) -> None:
        """Let :meth:`key` return this; the record itself stays as it came."""
        self._key = key

    def set_value(self, value: Any) -> None:
        """Let :meth:`value` return this; the record itself stays as it came."""
        self._value = value

    def __len__(self) -> int:
        return len(self._value) if self._value is not None else 0


class Columns(NamedTuple):
    """What of the records of a batch crosses the pipe: the raw bytes, and where they stand.

    ``asked`` has a column for each of :data:`ASKED`, one that is the same for all as a single one.
    ``headers`` is None where none has any. ``large`` are the places and sizes of values that are in
    the batch's segment instead.
    """

    many: int
    asked: list[list[Any]]
    headers: list[list[tuple[str, Any]] | None] | None
    large: dict[int, int]

    def records(self, segment: Segment) -> Iterator[ReceivedRecord]:
        """Return the records one after the other. Raises :class:`OSError` as the segment does."""
        for at, found in zip(self.large, segment.take([*self.large.values()]), strict=True):
            self.asked[VALUE][at] = found
        topic, partition, offset, key, value, timestamp, epoch = (
            column if len(column) == self.many else column * self.many for column in self.asked
        )
        headers = self.headers or [None] * self.many
        return map(ReceivedRecord, topic, partition, offset, key, value, headers, timestamp, epoch)


def columns_of(records: Sequence[Record], segment: Segment) -> Columns:
    """Return what of records crosses the pipe; there is one at least.

    Large values are put into the segment, which nobody reads any more.
    """
    ours = set(map(type, records)) == {Message}
    asked = [list(map(ask, records)) for ask in (OF_MESSAGES if ours else OF_OTHERS)]
    for number in (0, len(ASKED) - 1):  # mostly they have one topic and one leader
        column = asked[number]
        if column.count(column[0]) == len(column):
            asked[number] = column[:1]
    headers = headers_of_all(records, Message.headers if ours else ask_headers)
    some = headers if headers.count(None) < len(headers) else None
    return Columns(len(records), asked, some, _set_apart(asked[VALUE], segment))


def _set_apart(values: list[Any], segment: Segment) -> dict[int, int]:
    """Put the large ones into the segment; return where they stood and how large they are."""
    segment.shrink()
    large = [at for at, each in enumerate(values) if type(each) is bytes and len(each) >= LARGE]
    if not large or not segment.put([values[at] for at in large]):
        return {}
    sizes = {at: len(values[at]) for at in large}
    for at in large:
        values[at] = None
    return sizes

"""A worker's share of records, and what they were when it was made.

A handler has the client's own message, whose key, value, topic and headers can be set; it is how a
``DeserializingConsumer`` decodes. Order, retries and dead letters go by what the broker delivered,
so each slice remembers that: three columns, filled at C speed as the slice is made, before anybody
could write. Nothing is compared until something is out of the ordinary.

Headers are not remembered: the client converts them when asked, which costs more than all the rest
of a record's way. What a handler does to them its later attempts and its dead letter see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import is_, methodcaller
from typing import Any, TypeAlias

from kafka_keyshared.core.lanes import Lane, lane_of
from kafka_keyshared.model import Record, TopicPartition, partition_of

Place: TypeAlias = tuple[TopicPartition, int]
"""Where a record stands: its partition and its offset there."""


def place_of(record: Record) -> Place:
    """Return where a record stands that no handler has seen."""
    return partition_of(record), record.offset()


class AsItCame:
    """A record as it came; for whoever looks at it while its handler may be writing into it."""

    __slots__ = ("_key", "_topic", "_value", "raw")

    def __init__(self, raw: Record, key: Any, value: Any, topic: str) -> None:
        self.raw = raw
        self._key = key
        self._value = value
        self._topic = topic

    def key(self) -> Any:
        """Return the key that the broker delivered."""
        return self._key

    def value(self) -> Any:
        """Return the value that the broker delivered."""
        return self._value

    def topic(self) -> str:
        """Return the topic that the record came from."""
        return self._topic

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)

    def __len__(self) -> int:
        return len(self._value or b"")


class Originals:
    """What the records of a slice were when they were leased.

    ``records`` is the slice's own list, which may lose records at its end. ``topic`` is the topic
    of all of them where that is known; else each is asked.
    """

    __slots__ = ("_keys", "_records", "_topics", "_values", "topic")

    def __init__(self, records: list[Record], topic: str | None) -> None:
        self.topic = topic
        self._records = records
        self._keys = column("key", records)
        self._values = column("value", records)
        self._topics = None if topic is not None else column("topic", records)

    def __getitem__(self, index: int) -> Record:
        """Return a record of the slice as it came, also while it runs."""
        as_it_came: Any = AsItCame(
            self._records[index], self._keys[index], self._values[index], self._topic_of(index)
        )
        return as_it_came  # type: ignore[no-any-return] # it has a record's methods

    def partition_of(self, index: int) -> TopicPartition:
        """Return the partition that a record of the slice came from."""
        return TopicPartition(self._topic_of(index), self._records[index].partition())

    def restore(self, record: Record) -> None:
        """Make the record what it was, now that its handler is through with it."""
        self._restore(record, self._records.index(record))

    def restore_all(self) -> None:
        """Make every record what it was; only keys and topics, because these are all settled."""
        count = len(self._records)
        if not all(map(is_, column("key", self._records), self._keys)) or self._topics_written():
            for index in range(count):
                self._restore(self._records[index], index)

    def _topics_written(self) -> bool:
        topics = column("topic", self._records)
        if self._topics is not None:
            return not all(map(is_, topics, self._topics))
        return not all(_same(topic, str(self.topic)) for topic in topics)

    def _restore(self, record: Any, index: int) -> None:
        key, value, topic = self._keys[index], self._values[index], self._topic_of(index)
        if record.key() is not key:
            record.set_key(key)
        if record.value() is not value:
            record.set_value(value)
        if not _same(record.topic(), topic):
            record.set_topic(topic)

    def _topic_of(self, index: int) -> str:
        if self._topics is None:
            return str(self.topic)
        topic: str = self._topics[index]
        return topic


def _same(topic: object, came: str) -> bool:
    # Compared by the type first: what a handler has set may be anything, and refuse to be compared.
    return topic is came or (type(topic) is str and topic == came)


def column(name: str, records: Sequence[Record]) -> list[Any]:
    """Return what this method says of each of the records."""
    try:
        # The method of their class: a C function, called five times as fast as by its name.
        return list(map(getattr(type(records[0]), name), records))
    except (TypeError, AttributeError, IndexError):  # records of several classes, or none
        return list(map(methodcaller(name), records))


@dataclass(slots=True, eq=False)
class Slice:
    """A worker's share of records: one lease for each, handed over together.

    ``records`` are in the order in which they will start. ``unsettled`` are those of them that came
    back without being settled (failed, set aside); ``aside`` counts those that were not run for it.
    ``dropped`` is written by the worker. ``lane_of`` names the lane of each of them, ``topic`` the
    topic of them all where that is known, and ``came`` is what they were. ``heads`` are the places
    of a few of them of which one arrived before all others.
    """

    subscription: str
    worker: int
    records: list[Record]
    retries: tuple[Lane, ...] = ()
    lane_of: Callable[[Record], Lane] = lane_of
    topic: str | None = None
    heads: tuple[Place, ...] = ()
    unsettled: list[Record] = field(default_factory=list)
    aside: int = 0
    dropped: list[Record] = field(default_factory=list)
    stale: set[tuple[TopicPartition, int]] = field(default_factory=set)
    came: Originals = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.came = Originals(self.records, self.topic)

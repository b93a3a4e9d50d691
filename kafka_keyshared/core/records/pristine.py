"""Original keys, values and topics of records, protected from changes by handlers.

A handler gets the client's own message, whose key, value and topic can be set. This is how a
``DeserializingConsumer`` decodes. Order, retries and dead letters use the bytes that the broker
delivered. So the keys and values of each fetch are stored in two columns when they arrive, at C
speed. They are in the processor's cache then, so this costs almost nothing; at the time of a lease
they no longer are. Nothing is compared or looked up on the normal path.

A column keeps its contents alive. A slow worker may hold a few records of a long fetch. Their
originals are copied, so that the others can be freed (:meth:`Originals.let_go`).

Headers are not stored: the client converts them on each call, which costs more than all other work
on a record. Later attempts and the dead letter see the changes that a handler makes to headers.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import methodcaller
from typing import Any

from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import Coordinates, Record, TopicPartition, topic_partition


class Chunk:
    """Records of one fetch and their originals, stored before any handler could modify them.

    ``records`` changes only at its end. ``received`` is the number of records received before the
    next chunk, 0 if the records did not just arrive.
    """

    __slots__ = ("__weakref__", "_index", "keys", "received", "records", "values")

    def __init__(self, records: Sequence[Record], received: int = 0) -> None:
        self.records = records
        self.received = received
        self.keys, self.values = contents_of(records)
        self._index: dict[int, int] | None = None

    @classmethod
    def apart(cls, records: Sequence[Record], came: Originals) -> Chunk:
        """Copy these records out of a slice; they may have been modified since."""
        chunk = cls((), 0)
        found = [came.find(record) for record in records]
        chunk.records = records
        chunk.keys = [each.keys[at] for each, at in found]
        chunk.values = [each.values[at] for each, at in found]
        return chunk

    def __getstate__(self) -> tuple[None, dict[str, object]]:
        """Pickle without the addresses of records, which differ in another process."""
        kept = ("records", "received", "keys", "values")
        return None, {"_index": None, **{name: getattr(self, name) for name in kept}}

    def find(self, record: Record) -> int | None:
        """Return the record's index in this chunk, None if it came in another."""
        # An address is unique while its record is alive, and this chunk keeps its records alive.
        index = self._index
        if index is None:
            self._index = index = dict(zip(map(id, self.records), itertools.count()))
        return index.get(id(record))

    def forget_where(self) -> None:
        """Drop the index of the records, which takes a hundred bytes for each."""
        self._index = None


class Originals:
    """The originals of the records of a slice.

    Each of the ``records`` is in one of the ``chunks``. ``topic`` is the topic of all of them if it
    is known. Otherwise each record is asked for its topic now, before its handler gets it.
    """

    __slots__ = ("_chunks", "_records", "_topics", "topic")

    def __init__(
        self, records: Sequence[Record], topic: str | None, chunks: Sequence[Chunk] = ()
    ) -> None:
        self.topic = topic
        self._records = records
        self._chunks = chunks or (Chunk(records),)
        self._topics = None if topic is not None else column("topic", records)

    def __len__(self) -> int:
        return len(self._records)

    def __reduce__(self) -> tuple[type[Originals], tuple[object, ...]]:
        """Pickle with the slice's own records, without the rest of their chunks."""
        apart = Chunk.apart(self._records, self)
        return Originals, (self._records, self.topic, (apart,))

    def __getitem__(self, index: int) -> Record:
        """Return a record of the slice as it came, also while it runs."""
        as_it_came: Any = AsItCame(self._records[index], self, self.topic_of(index))
        return as_it_came  # type: ignore[no-any-return] # it has a record's methods

    def topic_of(self, index: int) -> str:
        """Return the topic that a record of the slice came from."""
        if self._topics is None:
            return str(self.topic)
        topic: str = self._topics[index]
        return topic

    def partition_of(self, index: int) -> TopicPartition:
        """Return the partition that a record of the slice came from."""
        return topic_partition(self.topic_of(index), self._records[index].partition())

    def numbers_of(self, indices: Sequence[int]) -> tuple[list[int], Sequence[str] | None]:
        """Return the partition numbers of these records, and their topics; None for ``topic``."""
        records, topics = self._records, self._topics
        if isinstance(indices, range):
            part = slice(indices.start, indices.stop)
            records, topics = records[part], topics and topics[part]
        else:
            records = [records[index] for index in indices]
            topics = topics and [topics[index] for index in indices]
        return column("partition", records), topics

    def coordinates_of(self, index: int) -> Coordinates:
        """Return the coordinates of a record of the slice."""
        return self.partition_of(index), self._records[index].offset()

    def find(self, record: Record) -> tuple[Chunk, int]:
        """Return the chunk that a record of the slice came in, and its index there."""
        for chunk in self._chunks:
            at = chunk.find(record)
            if at is not None:
                return chunk, at
        raise InvariantError(f"the original of {record} is not known")

    def restore(self, index: int) -> None:
        """Restore the original key, value and topic of a record whose handler has ended."""
        record: Any = self._records[index]
        topic = self.topic_of(index)
        chunk, at = self.find(record)
        key, value = chunk.keys[at], chunk.values[at]
        if record.key() is not key:
            record.set_key(key)
        if record.value() is not value:
            record.set_value(value)
        if not _same(record.topic(), topic):
            record.set_topic(topic)

    def forget_where(self) -> None:
        """Drop the chunk indexes of the records; the next lookup builds them again."""
        for chunk in self._chunks:
            chunk.forget_where()

    def strays(self) -> Sequence[Record]:
        """Return the records if some may have left the chunk they were fetched in."""
        return () if all(chunk.received for chunk in self._chunks) else self._records

    def chunks(self) -> Iterator[tuple[Chunk, int]]:
        """Yield each chunk and a rough count of the slice's records in it: equal parts."""
        records, chunks, at = len(self._records), len(self._chunks), 0
        for number, chunk in enumerate(self._chunks, 1):
            end = records * number // chunks
            yield chunk, end - at
            at = end

    def let_go(self, received: int) -> None:
        """Copy the slice's originals if a chunk is older than ``received`` and longer than it.

        The chunks can be freed then.
        """
        count = len(self._records)
        if any(len(each.records) > count and each.received < received for each in self._chunks):
            self._chunks = (Chunk.apart(self._records, self),)


class RecordOrigins:
    """Partitions of records, noted at the cost of a list and counted together."""

    def __init__(self) -> None:
        self._numbers: dict[str, list[int]] = {}
        self._pairs: list[tuple[str, int]] = []

    def take(self, came: Originals, indices: Sequence[int]) -> None:
        """Note where these records of a slice came from."""
        numbers, topics = came.numbers_of(indices)
        if topics is None:
            self._numbers.setdefault(str(came.topic), []).extend(numbers)
        else:
            self._pairs.extend(zip(topics, numbers, strict=True))

    def counts(self) -> Iterator[tuple[TopicPartition, int]]:
        """Yield how many came from each partition since the last call."""
        noted, self._numbers = self._numbers, {}
        pairs, self._pairs = self._pairs, []
        for topic, numbers in noted.items():
            for number, count in Counter(numbers).items():
                yield topic_partition(topic, number), count
        for (topic, number), count in Counter(pairs).items():
            yield topic_partition(topic, number), count


def kept_from(held: Iterable[tuple[Chunk, int]], most: int) -> int:
    """Return the received count from which chunks may be kept; 0 when all may be.

    ``held`` has the chunks and how many records are held of each. All other records in the kept
    chunks are at most ``most`` together.
    """
    chunks: dict[int, Chunk] = {}
    by_partition: Counter[int] = Counter()
    for chunk, count in held:
        chunks[id(chunk)] = chunk
        by_partition[id(chunk)] += count
    # No chunk may be kept if the newest alone exceeds ``most``.
    rest, young = 0, max((each.received for each in chunks.values()), default=0) + 1
    for chunk in sorted(chunks.values(), key=_received, reverse=True):
        rest += max(0, len(chunk.records) - by_partition[id(chunk)])
        if rest > most:
            return young
        young = chunk.received
    return 0


def _received(chunk: Chunk) -> int:
    return chunk.received


class AsItCame:
    """A record as it came, for readers while its handler may be modifying it."""

    __slots__ = ("_came", "_topic", "raw")

    def __init__(self, raw: Record, came: Originals, topic: str) -> None:
        self.raw = raw
        self._came = came
        self._topic = topic

    def key(self) -> Any:
        """Return the key that the broker delivered."""
        chunk, at = self._came.find(self.raw)
        return chunk.keys[at]

    def value(self) -> Any:
        """Return the value that the broker delivered."""
        chunk, at = self._came.find(self.raw)
        return chunk.values[at]

    def topic(self) -> str:
        """Return the topic that the record came from."""
        return self._topic

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)

    def __len__(self) -> int:
        return len(self.value() or b"")


def _same(topic: object, came: str) -> bool:
    # The type is compared first: a handler may set any object, even one that cannot be compared.
    return topic is came or (type(topic) is str and topic == came)


def contents_of(records: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the keys and the values of the records."""
    if len(records) == 1:  # common with slow handlers: a slice of one record
        record = records[0]
        return [record.key()], [record.value()]
    return column("key", records), column("value", records)


def column(name: str, records: Sequence[Record]) -> list[Any]:
    """Return the result of this method for each of the records."""
    try:
        # The method of their class is a C function: five times as fast as a call by name.
        return list(map(getattr(type(records[0]), name), records))
    except (TypeError, AttributeError, IndexError):  # records of several classes, or none
        return list(map(methodcaller(name), records))

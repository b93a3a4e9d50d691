"""What waits to be leased, and the chunks that it came in."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypeVar

from kafka_keyshared.core.originals import Chunk, Originals, kept_from
from kafka_keyshared.core.places import without
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import Record, TopicPartition


class Backlog:
    """Records in the order in which they will be leased.

    ``records`` is one list for its whole life, so that routing can append to it without asking
    anybody; :meth:`came_in` then says what they came in. Whoever else changes it does it here.
    """

    __slots__ = ("_counted", "_parts", "records")

    def __init__(self) -> None:
        self.records: list[Record] = []
        # Chunks and how many of the records, in order, came in each.
        self._parts: list[tuple[Chunk, int]] = []
        self._counted = 0

    def __len__(self) -> int:
        return len(self.records)

    def came_in(self, chunk: Chunk) -> int:
        """Note that whatever was appended since came in this chunk; return how many these are."""
        new = len(self.records) - self._counted
        if new:
            self._parts.append((chunk, new))
            self._counted += new
        return new

    def take(self, most: int) -> tuple[list[Record], list[Chunk]]:
        """Take the first records, and what they came in."""
        taken = self.records[:most]
        del self.records[:most]
        left = len(taken)
        self._counted -= left
        chunks: list[Chunk] = []
        parts = self._parts
        while left:
            chunk, count = parts[0]
            chunks.append(chunk)
            if count > left:
                parts[0] = chunk, count - left
                break
            del parts[0]
            left -= count
        return taken, chunks

    def take_all(self, records: list[Record], chunks: dict[int, Chunk]) -> None:
        """Move all records to the end of these, and what they came in to the chunks, by address."""
        records += self.records
        self.records.clear()
        for chunk, _ in self._parts:
            chunks[id(chunk)] = chunk
        self._parts.clear()
        self._counted = 0

    def take_last(self, count: int) -> list[Record]:
        """Take so many of the last records, of which there are as many."""
        at = len(self.records) - count
        taken = self.records[at:]
        del self.records[at:]
        self._counted -= count
        while count:
            chunk, came = self._parts.pop()
            if came > count:
                self._parts.append((chunk, came - count))
            count -= min(count, came)
        return taken

    def pick(self, wanted: Sequence[bool]) -> list[Record]:
        """Take the records for which that is said, one by one and in order; the others stay."""
        records = self.records
        picked = [record for record, out in zip(records, wanted, strict=True) if out]
        at = 0
        parts: list[tuple[Chunk, int]] = []
        for chunk, count in self._parts:
            left = count - sum(wanted[at : at + count])
            if left:
                parts.append((chunk, left))
            at += count
        records[:] = [record for record, out in zip(records, wanted, strict=True) if not out]
        self._parts = parts
        self._counted = len(records)
        return picked

    def put_first(self, records: Sequence[Record]) -> None:
        """Put records that no handler has at the head."""
        if records:
            self.records[:0] = records
            self._parts.insert(0, (Chunk(records), len(records)))
            self._counted += len(records)

    def extend(self, records: Sequence[Record]) -> None:
        """Put records that no handler has at the end."""
        if records:
            self.records += records
            self.came_in(Chunk(records))

    def replace(self, records: Sequence[Record]) -> None:
        """Hold these records, which no handler has, and no others."""
        self.records[:] = records
        self._parts.clear()
        self._counted = 0
        self.came_in(Chunk(records))

    def waiting(self) -> Iterator[Record]:
        """Yield every record that waits here."""
        yield from self.records

    def empty(self) -> bool:
        """Say whether nothing waits here."""
        return not self.records

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop what is of these partitions."""
        self.replace(without(self.records, partitions))

    def chunks(self) -> Iterator[tuple[Chunk, int]]:
        """Yield what the records came in, and how many of them in each."""
        yield from self._parts

    def strays(self) -> Iterator[Record]:
        """Yield the records that are in no chunk that is as it came in."""
        at = 0
        for chunk, count in self._parts:
            if not chunk.received:
                yield from self.records[at : at + count]
            at += count

    def let_go(self, received: int) -> None:
        """Let go of what came before so many records were received and does not wait here."""
        at = 0
        for index, (chunk, count) in enumerate(self._parts):
            if chunk.received < received and len(chunk.records) > count:
                self._parts[index] = Chunk(self.records[at : at + count]), count
            at += count

    def check(self) -> None:
        """Raise :class:`InvariantError` unless each record came in the chunk that is noted."""
        at = 0
        for chunk, count in self._parts:
            for record in self.records[at : at + count]:
                if chunk.find(record) is None:
                    raise InvariantError(f"nobody remembers what {record} was when it came")
            at += count
        if not at == self._counted == len(self.records):
            raise InvariantError(f"{len(self.records)} records wait, and {at} came in chunks")


B = TypeVar("B", bound=Backlog)


def came_in(backlogs: Iterable[B], chunk: Chunk) -> list[tuple[B, int]]:
    """Do as :meth:`Backlog.came_in` for all of these; return those that got some, and how many."""
    found = []
    for each in backlogs:
        if new := len(each.records) - each._counted:
            each._parts.append((chunk, new))
            each._counted += new
            found.append((each, new))
    return found


def let_go(keepers: Sequence[Backlog | Originals], spare: int) -> None:
    """Let go of chunks of which little is held, but for ``spare`` records of them in all."""
    young = kept_from((of for each in keepers for of in each.chunks()), spare)
    if young:
        for each in keepers:
            each.let_go(young)

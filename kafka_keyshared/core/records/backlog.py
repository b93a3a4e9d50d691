"""Containers of records to be leased, and the queue among them.

Each container is registered with its subscription. A commit, a revoke and the checks need all held
records and read them from the registry. A new place is therefore included in all of them at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from kafka_keyshared.core.records.pristine import Chunk, Originals, kept_from
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import Record, TopicPartition, partition_of


class WaitingPlace(Protocol):
    """Holds records that are received, not settled and not leased."""

    def waiting(self) -> Iterator[Record]:
        """Yield every record that waits here."""

    def empty(self) -> bool:
        """Say whether nothing waits here."""

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the records of these partitions; this settles nothing."""


def without(records: Iterable[Record], partitions: Collection[TopicPartition]) -> list[Record]:
    """Return the records of all other partitions, in order."""
    return [record for record in records if partition_of(record) not in partitions]


class Backlog:
    """Records in the order in which they will be leased.

    ``records`` is the same list object for its whole life, so routing can append to it directly.
    :meth:`came_in` then notes the chunk of those records. All other changes go through the methods
    of this class.
    """

    __slots__ = ("_chunks", "_counted", "_counts", "records")

    def __init__(self) -> None:
        self.records: list[Record] = []
        # Chunks, and how many of the records, in order, came in each. These are two lists, not one
        # of pairs, because a pair takes 64 bytes. Many queues hold only a few records of a chunk.
        self._chunks: list[Chunk] = []
        self._counts: list[int] = []
        self._counted = 0

    def __len__(self) -> int:
        return len(self.records)

    def came_in(self, chunk: Chunk) -> int:
        """Note that all records appended since came in this chunk; return their number."""
        new = len(self.records) - self._counted
        if new:
            self._chunks.append(chunk)
            self._counts.append(new)
            self._counted += new
        return new

    def take(self, most: int) -> tuple[list[Record], list[Chunk]]:
        """Take the first ``most`` records, and the chunks that they came in."""
        taken = self.records[:most]
        del self.records[:most]
        left = len(taken)
        self._counted -= left
        counts, whole = self._counts, 0
        while left and (count := counts[whole]) <= left:
            left -= count
            whole += 1
        chunks = self._chunks[: whole + bool(left)]
        del self._chunks[:whole], counts[:whole]
        if left:
            counts[0] -= left
        return taken, chunks

    def take_all(self, records: list[Record], chunks: dict[int, Chunk]) -> None:
        """Move all records to the end of ``records``, their chunks to ``chunks``, by address."""
        records += self.records
        self.records.clear()
        for chunk in self._chunks:
            chunks[id(chunk)] = chunk
        self._forget_parts()

    def take_last(self, count: int) -> list[Record]:
        """Take the last ``count`` records; there must be at least as many."""
        at = len(self.records) - count
        taken = self.records[at:]
        del self.records[at:]
        self._counted -= count
        while count:
            if self._counts[-1] > count:
                self._counts[-1] -= count
                break
            count -= self._counts.pop()
            self._chunks.pop()
        return taken

    def pick(self, wanted: Sequence[bool]) -> list[Record]:
        """Take the records that ``wanted`` marks, one by one and in order; the others stay."""
        records = self.records
        picked = [record for record, out in zip(records, wanted, strict=True) if out]
        at = 0
        parts = [*self.chunks()]
        self._forget_parts()
        for chunk, count in parts:
            left = count - sum(wanted[at : at + count])
            if left:
                self._chunks.append(chunk)
                self._counts.append(left)
            at += count
        records[:] = [record for record, out in zip(records, wanted, strict=True) if not out]
        self._counted = len(records)
        return picked

    def put_first(self, records: Sequence[Record]) -> None:
        """Put records that no handler has at the head."""
        if records:
            self.records[:0] = records
            self._chunks.insert(0, Chunk(records))
            self._counts.insert(0, len(records))
            self._counted += len(records)

    def extend(self, records: Sequence[Record]) -> None:
        """Put records that no handler has at the end."""
        if records:
            self.records += records
            self.came_in(Chunk(records))

    def replace(self, records: Sequence[Record]) -> None:
        """Replace all records with these, which no handler has."""
        self.records[:] = records
        self._forget_parts()
        self.came_in(Chunk(records))

    def waiting(self) -> Iterator[Record]:
        """Yield every waiting record."""
        yield from self.records

    def empty(self) -> bool:
        """Return whether no record waits here."""
        return not self.records

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the records of these partitions."""
        self.replace(without(self.records, partitions))

    def chunks(self) -> Iterator[tuple[Chunk, int]]:
        """Yield each chunk, and how many of the records came in it."""
        yield from zip(self._chunks, self._counts, strict=True)

    def strays(self) -> Iterator[Record]:
        """Yield the records whose chunk is not one as it was received."""
        at = 0
        for chunk, count in self.chunks():
            if not chunk.received:
                yield from self.records[at : at + count]
            at += count

    def let_go(self, received: int) -> None:
        """Free the records of old chunks that do not wait here.

        A chunk is old if it came in before ``received`` records had been received.
        """
        at = 0
        for index, (chunk, count) in enumerate(self.chunks()):
            if chunk.received < received and len(chunk.records) > count:
                self._chunks[index] = Chunk(self.records[at : at + count])
            at += count

    def check(self) -> None:
        """Raise :class:`InvariantError` unless each record came in the chunk that is noted."""
        at = 0
        for chunk, count in self.chunks():
            for record in self.records[at : at + count]:
                if chunk.find(record) is None:
                    raise InvariantError(f"the original of {record} is not known")
            at += count
        if not at == self._counted == len(self.records):
            raise InvariantError(f"{len(self.records)} records wait, and {at} came in chunks")

    def _forget_parts(self) -> None:
        self._chunks.clear()
        self._counts.clear()
        self._counted = 0


B = TypeVar("B", bound=Backlog)


def came_in(backlogs: Iterable[B], chunk: Chunk) -> list[tuple[B, int]]:
    """Call :meth:`Backlog.came_in` for each; return those that got records, and how many."""
    found = []
    for each in backlogs:
        if new := len(each.records) - each._counted:
            each._chunks.append(chunk)
            each._counts.append(new)
            each._counted += new
            found.append((each, new))
    return found


def let_go(keepers: Sequence[Backlog | Originals], spare: int) -> None:
    """Free old chunks of which little is held, but keep ``spare`` records of them in all."""
    young = kept_from((of for each in keepers for of in each.chunks()), spare)
    if young:
        for each in keepers:
            each.let_go(young)

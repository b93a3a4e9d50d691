"""Derived keys, kept while their records are held.

Keys are stored beside the addresses of their records, because a client message can be neither
hashed nor extended. An address belongs to one record while that record is held. If an address has
several keys, the last one is valid.

The keys of a chunk are one column, which is not processed until a key is requested. A column is
kept as long as its chunk, which is alive while any of its records is held. A *stray* is a record
that has left its chunk because it came back or waits elsewhere. Strays are passed individually when
columns are dropped. A single dictionary with one write per record took a third of the time spent on
a record. It fit in no processor cache, and cleaning it up meant a walk over all held records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias
from weakref import ref

from kafka_keyshared.core.records.pristine import Chunk
from kafka_keyshared.model import Record

KEPT = 2
"""Windows full of keys that are kept before unneeded columns are dropped."""

SPARE = 1_000
"""Extra keys kept beside ``KEPT``, for small windows; columns merge up to this length."""

Key: TypeAlias = bytes | None
Of: TypeAlias = "ref[Chunk]"


class _Columns:
    """Addresses and their keys; immutable, because workers read it while the owner thread adds."""

    __slots__ = ("_index", "addresses", "chunks", "keys")

    def __init__(self, addresses: list[int], keys: list[Key], chunks: tuple[Of, ...] = ()) -> None:
        self.addresses = addresses
        self.keys = keys
        self.chunks = chunks
        self._index: dict[int, Key] | None = None

    def index(self) -> dict[int, Key]:
        """Return the keys by address, the last one for each address."""
        index = self._index
        if index is None:  # two threads may build it at once, with the same result
            self._index = index = dict(zip(self.addresses, self.keys, strict=True))
        return index

    def needed(self) -> bool:
        """Return whether one of the chunks is still alive."""
        return any(chunk() is not None for chunk in self.chunks)

    def behind(self, others: _Columns) -> _Columns:
        """Return both columns as one, ``others`` first."""
        return _Columns(
            others.addresses + self.addresses,
            others.keys + self.keys,
            others.chunks + self.chunks,
        )


class KeptKeys:
    """The keys of the records that one subscription holds, and of some that it held.

    Only the owner thread adds and drops. Any thread may read.
    """

    def __init__(self, window_records: int) -> None:
        self._least = self._most = KEPT * window_records + SPARE
        # Replaced as a whole or in one place, so that a concurrent reader misses nothing.
        self._columns: list[_Columns] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, records: Sequence[Record], keys: list[Key], chunk: Chunk) -> None:
        """Keep the keys of records received in this chunk; the arguments are not changed."""
        self._count += len(keys)
        columns, last = _Columns(list(map(id, records)), keys, (ref(chunk),)), self._columns[-1:]
        if last and len(last[0].keys) + len(keys) <= SPARE:
            self._columns[-1] = columns.behind(last[0])
        elif keys:
            self._columns.append(columns)

    def of(self, record: Record) -> Key:
        """Return the key of a held record; raise KeyError if it is unknown."""
        address = id(record)
        # Copied in one C call, because the owner thread may add at the same time.
        for columns in reversed(self._columns.copy()):
            index = columns.index()
            if address in index:
                return index[address]
        raise KeyError(address)

    def knows(self, record: Record) -> bool:
        """Return whether the record's key is known."""
        try:
            self.of(record)
        except KeyError:
            return False
        return True

    def crowded(self) -> bool:
        """Return whether most of the keys must belong to settled records, by their number."""
        return self._count > self._most

    def keep(self, strays: Iterable[Record]) -> None:
        """Drop all keys but those of these records and of chunks that are still alive."""
        wanted = set(map(id, strays))
        kept: list[_Columns] = []
        for columns in self._columns:
            if columns.needed():
                kept.append(columns)
            elif found := wanted.intersection(columns.addresses):
                index = columns.index()
                few = _Columns([*found], [index[address] for address in found])
                if kept and not kept[-1].chunks:
                    few = few.behind(kept.pop())
                kept.append(few)
        self._columns = kept
        self._count = sum(len(columns.keys) for columns in kept)
        self._most = max(self._least, 2 * self._count)

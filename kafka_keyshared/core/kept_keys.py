"""Derived keys, kept for as long as their records are held.

They stand beside the addresses of their records, because a message of the client's can be neither
hashed nor extended. An address belongs to one record for as long as that is held, so of several
keys that stand beside one the last is meant.

The keys of a chunk are a column, and nothing is done about it until somebody asks. It is kept as
long as the chunk is, which whoever has records of it keeps alive; a record that has left its chunk
(it came back, or waits somewhere) is a *stray*, and is asked for by itself when columns are
dropped. One dictionary into which each record wrote took a third of a record's time: no processor's
cache held it, and to clean it up all that was held had to be looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias
from weakref import ref

from kafka_keyshared.core.originals import Chunk
from kafka_keyshared.model import Record

KEPT = 2
"""So many windows full of keys are kept before columns are dropped that nobody needs."""

SPARE = 1_000
"""And so many more, for windows of a few records. Columns are put together up to that length."""

Key: TypeAlias = bytes | None
Of: TypeAlias = "ref[Chunk]"


class _Columns:
    """Addresses and the keys beside them. Nothing in it changes: workers look into it meanwhile."""

    __slots__ = ("_index", "addresses", "chunks", "keys")

    def __init__(self, addresses: list[int], keys: list[Key], chunks: tuple[Of, ...] = ()) -> None:
        self.addresses = addresses
        self.keys = keys
        self.chunks = chunks
        self._index: dict[int, Key] | None = None

    def index(self) -> dict[int, Key]:
        """Return the keys by the addresses, the last one of each."""
        index = self._index
        if index is None:  # two threads may make it at once; both make the same
            self._index = index = dict(zip(self.addresses, self.keys, strict=True))
        return index

    def needed(self) -> bool:
        """Say whether one of the chunks is still there."""
        return any(chunk() is not None for chunk in self.chunks)

    def behind(self, others: _Columns) -> _Columns:
        """Return both as one, the others first."""
        return _Columns(
            others.addresses + self.addresses,
            others.keys + self.keys,
            others.chunks + self.chunks,
        )


class KeptKeys:
    """The keys of the records that one subscription holds, and of some that it held.

    The owner adds and drops, any thread may ask.
    """

    def __init__(self, window_records: int) -> None:
        self._least = self._most = KEPT * window_records + SPARE
        # Replaced as a whole, or at one place, so that whoever looks meanwhile misses nothing.
        self._columns: list[_Columns] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, records: Sequence[Record], keys: list[Key], chunk: Chunk) -> None:
        """Keep the keys of records that have come in with this chunk; nothing of it changes."""
        self._count += len(keys)
        columns, last = _Columns(list(map(id, records)), keys, (ref(chunk),)), self._columns[-1:]
        if last and len(last[0].keys) + len(keys) <= SPARE:
            self._columns[-1] = columns.behind(last[0])
        elif keys:
            self._columns.append(columns)

    def of(self, record: Record) -> Key:
        """Return the key of a record that is held. Raises KeyError where it is not known."""
        address = id(record)
        # A copy in one call of C: the owner adds meanwhile.
        for columns in reversed(self._columns.copy()):
            index = columns.index()
            if address in index:
                return index[address]
        raise KeyError(address)

    def knows(self, record: Record) -> bool:
        """Say whether it is known."""
        try:
            self.of(record)
        except KeyError:
            return False
        return True

    def crowded(self) -> bool:
        """Say whether there are so many that most of them must be of records long settled."""
        return self._count > self._most

    def keep(self, strays: Iterable[Record]) -> None:
        """Drop all but the keys of these, and of chunks that are still there."""
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

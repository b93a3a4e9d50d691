"""Log of a simulated partition: records, and offsets that are never delivered."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from itertools import compress
from typing import NamedTuple, Protocol

Written = tuple[bytes | None, bytes | None, int]
"""Key, value, and the epoch of the leader that it was written to."""


New = tuple[int, bytes | None, int]
"""A record that can be read from now on: offset, key, and the bytes of key and value."""


class TailReader(Protocol):
    """A reader of a log, which waits at its end."""

    def wake(self) -> None:
        """Look at the log again: there may be more."""


class FetchResult(NamedTuple):
    """The result of a fetch. ``next_position`` is behind the markers too if the end was reached."""

    offsets: Sequence[int]
    written: Sequence[Written]
    next_position: int
    at_end: bool


class SimulatedLog:
    """One log. While a transaction is open, it has another end for readers."""

    def __init__(self) -> None:
        self.readers: dict[int, TailReader] = {}
        self.made = 0
        """Number of logs of that name so far. The remainder of a truncated one is one more.
        """
        self.topics = 0
        """Number of topics of that name so far."""
        self.clear()

    def clear(self) -> None:
        """Become the log of a topic that was just created."""
        self.made += 1
        self.topics += 1
        # Logs that replaced another or were truncated, and up to where each equals the one before.
        self._shared = {self.made: 0}
        self.start = 0
        self.end = 0
        self.epoch = 0
        # Epochs that began with a truncation, and where the log ended then.
        self._cuts: list[tuple[int, int]] = []
        self._offsets: list[int] = []
        self._written: list[Written] = []
        # From the start of an open transaction on: offset, record, and whether it is part of that.
        self._behind_open: list[tuple[int, Written, bool]] = []
        self._open_from: int | None = None

    @property
    def readable_end(self) -> int:
        """Return the end for a reader of committed records."""
        return self.end if self._open_from is None else self._open_from

    @property
    def has_open_transaction(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._open_from is not None

    def append(
        self, records: Sequence[tuple[bytes | None, bytes | None]], *, in_transaction: bool = False
    ) -> list[New]:
        """Write records at the end; return those that can be read already."""
        first = self.end
        if in_transaction and self._open_from is None:
            self._open_from = first
        self.end += len(records)
        new = [(first + at, (key, value, self.epoch)) for at, (key, value) in enumerate(records)]
        if self._open_from is not None:
            self._behind_open += [(offset, each, in_transaction) for offset, each in new]
            return []
        self._offsets += [offset for offset, _ in new]
        self._written += [each for _, each in new]
        return [_new(offset, each) for offset, each in new]

    def end_transaction(self, *, commit: bool) -> list[New]:
        """Write the marker; return the records that become readable."""
        kept = [(at, each) for at, each, part in self._behind_open if commit or not part]
        self._behind_open.clear()
        self._open_from = None
        self._offsets += [at for at, _ in kept]
        self._written += [each for _, each in kept]
        self.end += 1
        return [_new(at, each) for at, each in kept]

    def skip(self, count: int) -> None:
        """Use up offsets that are never delivered: an aborted transaction, markers."""
        self.end += count

    def fetch(self, position: int, most: int) -> FetchResult:
        """Return the result of a fetch at that position."""
        offsets = self._offsets
        first = bisect_left(offsets, position)
        last = min(first + most, len(offsets))
        at_end = last == len(offsets)
        if at_end:
            following = max(position, self.readable_end)
        else:
            following = offsets[last - 1] + 1 if last > first else position
        return FetchResult(offsets[first:last], self._written[first:last], following, at_end)

    def offsets(self) -> Sequence[int]:
        """Return the offsets of the records that can be read."""
        return self._offsets

    def outdated(self) -> list[int]:
        """Return the offsets that compaction may remove: a later record has the same key."""
        seen: set[bytes] = set()
        found = []
        for offset, (key, _, _) in zip(
            reversed(self._offsets), reversed(self._written), strict=True
        ):
            if key in seen:
                found.append(offset)
            elif key is not None:
                seen.add(key)
        return found[::-1]

    def remove(self, gone: Collection[int]) -> None:
        """Remove records; their offsets stay gaps."""
        kept = [offset not in gone for offset in self._offsets]
        self._offsets = [*compress(self._offsets, kept)]
        self._written = [*compress(self._written, kept)]

    def move_start(self, start: int) -> list[int]:
        """Remove all records before that offset; return their offsets."""
        self.start = max(self.start, min(start, self.readable_end))
        at = bisect_left(self._offsets, self.start)
        gone = self._offsets[:at]
        del self._offsets[:at], self._written[:at]
        return gone

    def was_cut_off(self, epoch: int, position: int) -> bool:
        """Return whether the log before that position has changed since that epoch (KIP-320)."""
        return any(began > epoch and end < position for began, end in self._cuts)

    def shared(self, made: int) -> int:
        """Return the offset up to which it equals that log of its name."""
        if made < min(self._shared):
            return 0
        return min((end for since, end in self._shared.items() if since > made), default=self.end)

    def cut_off(self, end: int) -> list[int]:
        """Elect a leader that lagged behind; return the offsets of the removed records."""
        self.epoch += 1
        self._behind_open.clear()
        self._open_from = None
        self.end = max(self.start, min(end, self.end))
        self._cuts.append((self.epoch, self.end))
        self.made += 1
        self._shared[self.made] = self.end
        at = bisect_left(self._offsets, self.end)
        gone = self._offsets[at:]
        del self._offsets[at:], self._written[at:]
        return gone


def _new(offset: int, written: Written) -> New:
    key, value, _ = written
    return offset, key, len(key or b"") + len(value or b"")

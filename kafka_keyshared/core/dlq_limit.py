"""The dead-letter limit: a partition of which too much is dead-lettered is stopped.

A dead-letter topic is for single records. When most of a partition goes there, the fault is not in
the records (a service is down, a release is broken), and to go on would be to move the topic over.
So nothing more of the partition is fetched, and nothing of it starts, until somebody lifts the
limit or the process is started anew; what has settled stays committed. The rule is that of Danube's
Key-Shared dispatcher. It is off unless asked for.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from operator import methodcaller
from typing import NamedTuple

from kafka_keyshared.core.slices import Leased
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.model import Record, TopicPartition, counted, partition_of


class DlqLimit(NamedTuple):
    """More than this ``share`` of the last ``records``, or so many ``in_a_row``, is too much."""

    share: float = 0.5
    records: int = 5_000
    in_a_row: int = 1_000

    def check(self, where: str) -> None:
        """Raise :class:`ConfigError` for a limit that makes no sense; ``where`` begins it."""
        if not 0 < self.share <= 1:
            raise ConfigError(f"{where}: dlq_limit_share={self.share!r}: give a share above 0 to 1")
        for name, value in (("records", self.records), ("in_a_row", self.in_a_row)):
            if value < 1:
                raise ConfigError(f"{where}: dlq_limit_{name}={value!r}: give at least 1")


class _Recent:
    """What became of the last records of a partition, as runs of letters and of others.

    ``in_a_row`` counts the letters since the last record that was none.
    """

    __slots__ = ("in_a_row", "letters", "most", "runs", "total")

    def __init__(self, most: int) -> None:
        self.most = most
        self.runs: deque[tuple[bool, int]] = deque()
        self.total = 0
        self.letters = 0
        self.in_a_row = 0

    def add(self, count: int, *, letter: bool) -> None:
        if self.runs and self.runs[-1][0] is letter:
            self.runs[-1] = letter, self.runs[-1][1] + count
        else:
            self.runs.append((letter, count))
        self.in_a_row = self.in_a_row + count if letter else 0
        self.total += count
        self.letters += count * letter
        while self.total > self.most:
            first, size = self.runs[0]
            gone = min(size, self.total - self.most)
            self.total -= gone
            self.letters -= gone * first
            if gone == size:
                self.runs.popleft()
            else:
                self.runs[0] = first, size - gone


class DlqWatch:
    """Counts the letters of each partition of a subscription, and has those that are too many.

    ``stopped`` are the partitions of which nothing starts; ``reached`` those that have just come to
    their limit, with what that was. It is a waiting place: what is routed and is not to start waits
    here, and all of it is older than what waits in the rows.
    """

    def __init__(self, limit: DlqLimit) -> None:
        self.limit = limit
        self.stopped: set[TopicPartition] = set()
        self.reached: dict[TopicPartition, str] = {}
        self._recent: dict[TopicPartition, _Recent] = {}
        self._kept: dict[TopicPartition, list[Record]] = {}

    # --- what is counted ---

    def settled(self, leased: Leased, indices: Collection[int], unsettled: Collection[int]) -> None:
        """Count the records of a slice that a handler has done.

        ``unsettled`` are the others. Records that were written off with their worker are among
        them: they do not count for the limit.
        """
        partition_at = leased.slice.came.partition_of
        ended = (partition_at(index) for index in indices if index not in unsettled)
        for partition, count in Counter(ended).items():
            self._of(partition).add(count, letter=False)

    def letter(self, partition: TopicPartition) -> None:
        """Count a letter that was acknowledged; see whether it is one too many."""
        recent, limit = self._of(partition), self.limit
        recent.add(1, letter=True)
        if partition in self.stopped:
            return
        if recent.in_a_row >= limit.in_a_row:
            self.reached[partition] = f"{counted(recent.in_a_row, 'record')} in a row"
        elif recent.letters > limit.share * limit.records:
            last = f"the last {recent.total:,} records"
            self.reached[partition] = f"{recent.letters:,} of {last}"

    def _of(self, partition: TopicPartition) -> _Recent:
        recent = self._recent.get(partition)
        if recent is None:
            recent = self._recent[partition] = _Recent(self.limit.records)
        return recent

    # --- what waits ---

    def keep(self, record: Record) -> None:
        """Take in a record of a partition that is stopped."""
        self._kept.setdefault(partition_of(record), []).append(record)

    def lift(self, partitions: Iterable[TopicPartition]) -> list[Record]:
        """Let these go on, their counts at 0; return what has waited, in order."""
        records: list[Record] = []
        for partition in sorted(partitions):
            self.stopped.discard(partition)
            self._recent.pop(partition, None)
            records += sorted(self._kept.pop(partition, ()), key=methodcaller("offset"))
        return records

    def waiting(self) -> Iterator[Record]:
        """Yield every record that is kept from starting."""
        for records in self._kept.values():
            yield from records

    def empty(self) -> bool:
        """Say whether none is."""
        return not self._kept

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop what concerns these partitions: their next owner counts anew."""
        for partition in partitions:
            self._recent.pop(partition, None)
            self.reached.pop(partition, None)
            self._kept.pop(partition, None)
            self.stopped.discard(partition)

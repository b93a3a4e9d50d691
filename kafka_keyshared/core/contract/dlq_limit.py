"""The dead-letter limit, which stops a partition with too many dead letters.

A dead-letter topic is for single records. When most of a partition goes there, the records are not
at fault. A service is down, or a release is broken. To go on would move the whole topic over. So
nothing of the partition is fetched or started until an operator lifts the limit or the process
restarts. Settled records stay committed. The rule is that of Danube's Key-Shared dispatcher. It is
off by default.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from operator import methodcaller
from typing import NamedTuple

from kafka_keyshared.core.contract.slices import SliceState
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.model import Record, TopicPartition, partition_of


class DlqLimit(NamedTuple):
    """Limit of dead letters: above ``share`` of the last ``records``, or ``consecutive`` ones."""

    share: float = 0.5
    records: int = 5_000
    consecutive: int = 1_000

    def check(self, where: str) -> None:
        """Raise :class:`ConfigError` for an invalid limit; ``where`` begins the message."""
        if not 0 < self.share <= 1:
            raise ConfigError(f"{where}: dlq_limit_share={self.share!r}: give a share above 0 to 1")
        for name, value in (("records", self.records), ("consecutive", self.consecutive)):
            if value < 1:
                raise ConfigError(f"{where}: dlq_limit_{name}={value!r}: give at least 1")


class _Recent:
    """Outcomes of the last records of a partition, as runs of dead letters and of others.

    ``consecutive`` counts the dead letters since the last record that was none.
    """

    __slots__ = ("consecutive", "letters", "most", "runs", "total")

    def __init__(self, most: int) -> None:
        self.most = most
        self.runs: deque[tuple[bool, int]] = deque()
        self.total = 0
        self.letters = 0
        self.consecutive = 0

    def add(self, count: int, *, letter: bool) -> None:
        if self.runs and self.runs[-1][0] is letter:
            self.runs[-1] = letter, self.runs[-1][1] + count
        else:
            self.runs.append((letter, count))
        self.consecutive = self.consecutive + count if letter else 0
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
    """Dead-letter counts of a subscription's partitions, and the records of stopped ones.

    ``stopped`` are the partitions of which nothing starts. ``reached`` are those that have just
    reached their limit: how many dead letters of how many records, None for a run of them.

    This is a waiting place: routed records that may not start wait here. All of
    them are older than the records in the rows.
    """

    def __init__(self, limit: DlqLimit) -> None:
        self.limit = limit
        self.stopped: set[TopicPartition] = set()
        self.reached: dict[TopicPartition, tuple[int, int | None]] = {}
        self._recent: dict[TopicPartition, _Recent] = {}
        self._kept: dict[TopicPartition, list[Record]] = {}

    # --- counts ---

    def settled(
        self, leased: SliceState, indices: Collection[int], unsettled: Collection[int]
    ) -> None:
        """Count the records of a slice that a handler has done.

        ``unsettled`` are the others. They include records that were written off with their worker,
        which do not count for the limit.
        """
        partition_at = leased.slice.came.partition_of
        ended = (partition_at(index) for index in indices if index not in unsettled)
        for partition, count in Counter(ended).items():
            self._of(partition).add(count, letter=False)

    def letter(self, partition: TopicPartition) -> None:
        """Count an acknowledged dead letter; check whether the limit is reached."""
        recent, limit = self._of(partition), self.limit
        recent.add(1, letter=True)
        if partition in self.stopped:
            return
        if recent.consecutive >= limit.consecutive:
            self.reached[partition] = recent.consecutive, None
        elif recent.letters > limit.share * limit.records:
            self.reached[partition] = recent.letters, recent.total

    def _of(self, partition: TopicPartition) -> _Recent:
        recent = self._recent.get(partition)
        if recent is None:
            recent = self._recent[partition] = _Recent(self.limit.records)
        return recent

    # --- waiting records ---

    def keep(self, record: Record) -> None:
        """Take in a record of a stopped partition."""
        self._kept.setdefault(partition_of(record), []).append(record)

    def lift(self, partitions: Iterable[TopicPartition]) -> list[Record]:
        """Resume these partitions with counts at 0; return their waiting records, in order."""
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
        """Return whether no record is kept from starting."""
        return not self._kept

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the state of these partitions: their next owner counts anew."""
        for partition in partitions:
            self._recent.pop(partition, None)
            self.reached.pop(partition, None)
            self._kept.pop(partition, None)
            self.stopped.discard(partition)

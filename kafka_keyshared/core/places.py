"""Where records of a subscription wait.

Whatever holds records that are not leased is a place, and is registered with its subscription.
Who has to see all that is held (a commit, a partition that goes, the checks) asks the registry, so
that a new place is in all of them from its first line.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Protocol

from kafka_keyshared.model import Record, TopicPartition, partition_of


class WaitingPlace(Protocol):
    """Holds records that are received, not settled and not leased."""

    def waiting(self) -> Iterator[Record]:
        """Yield every record that waits here."""

    def empty(self) -> bool:
        """Say whether nothing waits here."""

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop what is of these partitions: it settles nothing."""


def without(records: Iterable[Record], partitions: Collection[TopicPartition]) -> list[Record]:
    """Return the records that are of other partitions, in order."""
    return [record for record in records if partition_of(record) not in partitions]

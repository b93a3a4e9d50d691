"""Waiting places: containers of received records that are not leased.

Each container of such records is registered with its subscription. A commit, a revoke and the
checks need all held records and read them from the registry. A new place is therefore included in
all of them at once.
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
        """Drop the records of these partitions; this settles nothing."""


def without(records: Iterable[Record], partitions: Collection[TopicPartition]) -> list[Record]:
    """Return the records of all other partitions, in order."""
    return [record for record in records if partition_of(record) not in partitions]

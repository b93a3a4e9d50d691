"""Received ends of partitions, queried from the client after each chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafka_keyshared.client.port import Client
from kafka_keyshared.core.records.pristine import column
from kafka_keyshared.model import Record, TopicPartition, topic_partition

AT_ONCE = 64
"""Number of assigned partitions up to which all positions are queried.

That query takes some microseconds, less than finding the partitions of a chunk. With 1,000
partitions it takes a millisecond, with 3,000 sixty.
"""

ALL_EVERY = 5.0
"""Seconds between queries of all positions when there are more than :data:`AT_ONCE`."""


class ReceivedPositions:
    """Queries positions from the client of one instance. ``clock`` is in monotonic seconds."""

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._all_at = float("-inf")

    def behind(
        self, chunk: Sequence[Record], assigned: int, topic: str | None
    ) -> dict[TopicPartition, int]:
        """Return the positions after a chunk; with many partitions, only those in the chunk.

        ``assigned`` is the number of assigned partitions. ``topic`` is their only topic, or None
        when they belong to several. A record of a partition that was revoked since only widens the
        query.

        A transaction marker moves the position without a record. With many partitions the move is
        seen at the next query of all. Until then the position is too low. That is harmless, because
        nothing was received from that range.
        """
        if assigned <= AT_ONCE:
            return self._client.positions()
        now = self._clock()
        if now >= self._all_at:
            self._all_at = now + ALL_EVERY
            return self._client.positions()
        numbers = column("partition", chunk)
        if topic is not None:
            return self._client.positions([topic_partition(topic, each) for each in set(numbers)])
        places = set(zip(column("topic", chunk), numbers, strict=True))
        return self._client.positions([TopicPartition(*place) for place in places])

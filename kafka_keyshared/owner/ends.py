"""How far partitions have been received, asked of the client behind each chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafka_keyshared.client.port import Client
from kafka_keyshared.core.originals import column
from kafka_keyshared.model import Record, TopicPartition, topic_partition

AT_ONCE = 64
"""Of up to so many partitions all are asked for: that takes the client some microseconds, and less
than to see which of them a chunk has. Of 1,000 it takes a millisecond, of 3,000 sixty."""

ALL_EVERY = 5.0
"""Seconds after which all are asked for where they are more."""


class Ends:
    """Asks the client of one instance. ``clock`` is in monotonic seconds."""

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._all_at = float("-inf")

    def behind(
        self, chunk: Sequence[Record], assigned: int, topic: str | None
    ) -> dict[TopicPartition, int]:
        """Return the positions behind a chunk: of many partitions those that it has records of.

        ``assigned`` is how many there are, ``topic`` the only one that they are of, None where they
        are of several. A record of another one, that was taken away meanwhile, asks for too much.
        Behind the marker of a transaction one moves without a record; of many that is seen when all
        are asked for again. Until then it is too low, which is no harm: nothing of it was received.
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

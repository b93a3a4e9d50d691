"""Ends of partitions: received positions, and end-of-partition events for members.

Positions are queried from the client after each chunk. The client reports the end of a partition
when it has fetched the last record. A loop that stops at that event expects every earlier record to
be handled. Members that read with ``enable.partition.eof`` therefore get the event after every
record before it has settled. Each member gets each end once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kafka_keyshared.client.port import Client
from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.core.records.pristine import column
from kafka_keyshared.model import Record, TopicPartition, partition_of, topic_partition

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


LOOK_EVERY = 0.05
"""Seconds between two checks. Each check walks over every held record."""


class PartitionEnds:
    """The latest end of each partition that was not delivered yet; owner thread only.

    ``deliver`` passes an event to the members. It is None when no member waits for one.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: dict[TopicPartition, Record] = {}
        self._look_at = float("-inf")
        self.deliver: Callable[[Record], None] | None = None

    def note(self, event: Record) -> None:
        """Store the client's end-of-partition event until it can be delivered."""
        if self.deliver is not None:
            self._waiting[partition_of(event)] = event

    def hand_on(self, core: Dispatcher) -> None:
        """Deliver the ends before which every record has settled."""
        if not self._waiting or self.deliver is None or self._clock() < self._look_at:
            return
        self._look_at = self._clock() + LOOK_EVERY
        for partition in [each for each in self._waiting if each not in core.partitions]:
            del self._waiting[partition]
        held = (place for sub in core.subscriptions.values() for place in sub.unsettled.records({}))
        for partition in self._waiting.keys() - self._before(held):
            self.deliver(self._waiting.pop(partition))

    def _before(self, held: Iterable[tuple[TopicPartition, Record]]) -> set[TopicPartition]:
        """Return the partitions that still hold a record before the end."""
        ends = {partition: event.offset() for partition, event in self._waiting.items()}
        return {each for each, record in held if record.offset() < ends.get(each, -1)}

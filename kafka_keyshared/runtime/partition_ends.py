"""End-of-partition events for members that read with ``enable.partition.eof``.

The client reports the end of a partition when it has fetched the last record. A loop that stops at
that event expects every earlier record to be handled. Members therefore get the event after every
record before it has settled. Each member gets each end once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.model import Record, TopicPartition, partition_of

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

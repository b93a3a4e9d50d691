"""Ends of partitions on their way to members that read with ``enable.partition.eof``.

The client says that a partition is at its end when it has fetched the last record. A loop that ends
there expects to have handled all records before it. So members hear of an end once every record
before it has settled, each member once for each end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kafka_keyshared.core.dispatcher import Dispatcher
from kafka_keyshared.model import Record, TopicPartition, partition_of

LOOK_EVERY = 0.05
"""Seconds between two looks: each one passes over everything that is held."""


class PartitionEnds:
    """The last end of each partition that has not been handed on; owner's thread only.

    ``deliver`` hands an event to the members; None where no member waits for one.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: dict[TopicPartition, Record] = {}
        self._look_at = float("-inf")
        self.deliver: Callable[[Record], None] | None = None

    def note(self, event: Record) -> None:
        """Keep the client's event for the end of a partition until it can be handed on."""
        if self.deliver is not None:
            self._waiting[partition_of(event)] = event

    def hand_on(self, core: Dispatcher) -> None:
        """Hand on the ends before which everything has settled."""
        if not self._waiting or self.deliver is None or self._clock() < self._look_at:
            return
        self._look_at = self._clock() + LOOK_EVERY
        for partition in [each for each in self._waiting if each not in core.partitions]:
            del self._waiting[partition]
        held = (place for sub in core.subscriptions.values() for place in sub.unsettled({}))
        for partition in self._waiting.keys() - self._before(held):
            self.deliver(self._waiting.pop(partition))

    def _before(self, held: Iterable[tuple[TopicPartition, Record]]) -> set[TopicPartition]:
        """Return the partitions of which a record before the end is held."""
        ends = {partition: event.offset() for partition, event in self._waiting.items()}
        return {each for each, record in held if record.offset() < ends.get(each, -1)}

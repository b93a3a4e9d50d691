"""Going back to the received end of a partition, after the client lost records or its place.

The client's own reset (``auto.offset.reset``) decides only where a partition without a committed
position starts. It must not decide anything later: one answer "out of range", as a replica that
lags behind may give it, would rewind to records that have run or leap over some that have not.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaException

from kafka_keyshared.core.offsets import PartitionState
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.runtime.client import Client

log = logging.getLogger("kafka_keyshared.loop")

BOUNDS_TIMEOUT = 1.0
OUT_OF_RANGE_WAIT = 0.1
"""Seconds before a partition is read again that was out of range: its broker may need them."""


@dataclass
class Reseek:
    """Partitions that have to be read again from the received end; nothing else of them counts.

    ``out_of_range`` says from when on (monotonic seconds) one may be that the broker found to be
    out of range.
    """

    partitions: set[TopicPartition] = field(default_factory=set)
    out_of_range: dict[TopicPartition, float] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.partitions)

    def misplaced(self, partition: TopicPartition, now: float) -> None:
        """The broker has nothing at the place that was fetched from."""
        self.partitions.add(partition)
        self.out_of_range[partition] = now + OUT_OF_RANGE_WAIT

    def seek(
        self, client: Client, states: Mapping[TopicPartition, PartitionState], now: float
    ) -> None:
        """Seek as far as that can be done now; what cannot stays for the next time."""
        for partition in list(self.partitions):
            state = states.get(partition)
            if state is None or self._seek_one(client, partition, state.received_end, now):
                self.partitions.discard(partition)
                self.out_of_range.pop(partition, None)

    def _seek_one(
        self, client: Client, partition: TopicPartition, position: int | None, now: float
    ) -> bool:
        since = self.out_of_range.get(partition)
        try:
            if since is None or position is None:
                client.seek(partition, position)
            elif now < since or (bounds := client.log_bounds(partition, BOUNDS_TIMEOUT)) is None:
                return False
            else:
                client.restart(partition, inside(partition, position, bounds))
        except KafkaException as error:
            log.debug("%s: cannot seek yet: %s", partition, error)
            return False
        return True


def inside(partition: TopicPartition, position: int, bounds: tuple[int, int]) -> int:
    """Return where to read on of a log with these bounds, and say what is lost by that."""
    start, end = bounds
    if position < start:
        log.warning(
            "%s: retention has removed the log up to %d, past the received end %d; %d offsets are "
            "gone, reading goes on at the start of the log",
            partition,
            start,
            position,
            start - position,
        )
        return start
    if position > end:
        log.error(
            "%s: the log ends at %d, before the received end %d: it was cut off or made anew; "
            "reading goes on at its end",
            partition,
            end,
            position,
        )
        return end
    log.info("%s: out of range at %d, which the log has; reading on there", partition, position)
    return position

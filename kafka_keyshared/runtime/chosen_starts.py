"""Start positions chosen by the user's ``on_assign``, as log offsets."""

from __future__ import annotations

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END

from kafka_keyshared.client.port import LogBounds
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import TopicPartition

log = log_of("kafka_keyshared.rebalance")

OFFSET_TAIL_BASE = -2000
"""``RD_KAFKA_OFFSET_TAIL_BASE`` of librdkafka; the Python client has no name for it."""


def chosen_offset(partition: TopicPartition, offset: int, bounds: LogBounds) -> int:
    """Return the absolute offset for a start position chosen by the user.

    An offset outside the log is moved to the nearer end, with a warning.
    """
    if offset == OFFSET_BEGINNING:
        return bounds.start
    if offset == OFFSET_END:
        return bounds.end
    # librdkafka encodes "the last n" as OFFSET_TAIL_BASE - n.
    wanted = bounds.end - (OFFSET_TAIL_BASE - offset) if offset <= OFFSET_TAIL_BASE else offset
    at = min(max(wanted, bounds.start), bounds.end)
    if offset >= 0 and at != offset:
        log.warning(
            "%s: on_assign chose offset %d, and the log has %d to %d: it starts at %d",
            partition,
            offset,
            bounds.start,
            bounds.end,
            at,
        )
    return at

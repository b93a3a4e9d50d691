"""Where a commit text of a test was written."""

from __future__ import annotations

from kafka_keyshared.core.offsets.metadata_sections import LogPosition
from kafka_keyshared.model import TopicPartition
from tests.support.records import P0


def here(offset: int, partition: TopicPartition = P0, topic_id: str | None = None) -> LogPosition:
    """Return a position of a partition of the tests; its topic has no id unless one is given."""
    return LogPosition(partition, offset, topic_id)

"""Why a record may not start although its lane is open."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_keyshared.model import TopicPartition


@dataclass(slots=True)
class Restrictions:
    """Partitions of which not everything may start; false on the common path.

    ``closing`` are partitions about to be given up. ``gates`` hold partitions back whose commit
    metadata fills up: only offsets up to the gate start.
    """

    closing: set[TopicPartition] = field(default_factory=set)
    gates: dict[TopicPartition, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.closing or self.gates)

    def hold(self, partition: TopicPartition, offset: int) -> bool:
        """Say whether the record may not start now."""
        return partition in self.closing or offset > self.gates.get(partition, offset)

"""Events of slot ranges, beside those of :mod:`.history`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kafka_keyshared.model import TopicPartition


class RangeAssigned(NamedTuple):
    """By order, the slots ``first`` to ``last`` of the process are this worker's, or have none."""

    member: int
    subscription: str
    first: int
    last: int
    worker: str | None


class SettledUnrun(NamedTuple):
    """A member reports that these records are settled, although no handler settled them.

    Each comes with its partition, its offset and its assignment. The report is made where an order
    may leave slots without a worker, and their records are skipped. Elsewhere the books work it
    out.
    """

    member: int
    subscription: str
    records: Sequence[tuple[TopicPartition, int, int]]

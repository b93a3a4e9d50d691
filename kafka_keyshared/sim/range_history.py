"""What happened to ranges, as a value beside those of :mod:`.history`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kafka_keyshared.model import TopicPartition


class RangeAssigned(NamedTuple):
    """The slots ``first`` to ``last`` are this worker's, or nobody's, in the process by order."""

    member: int
    subscription: str
    first: int
    last: int
    worker: str | None


class SettledUnrun(NamedTuple):
    """A member tells whoever keeps a log that these are settled, and their handler did not say so.

    Each with its partition, its offset and the assignment it came in. Told where slots may be made
    nobody's and what is nobody's is skipped: elsewhere the books work it out.
    """

    member: int
    subscription: str
    records: Sequence[tuple[TopicPartition, int, int]]

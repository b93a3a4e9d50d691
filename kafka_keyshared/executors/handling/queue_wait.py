"""Wait times of records before their handler calls, total and per key.

Only spans use them (:mod:`.tracing`). An app without tracing records no waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from kafka_keyshared.core.records.lane_identity import Lane, is_keyless, lane_of
from kafka_keyshared.model import Record, TopicPartition, partition_of

Arrived: TypeAlias = Callable[[TopicPartition, int], "float | None"]
"""Returns when the record at an offset of a partition was fetched; None if it is not known."""


class Wait(NamedTuple):
    """Wait of a record at the start of its call, in seconds. None: not known.

    ``queued`` is the whole wait. ``behind_key`` is the part of it until the previous call of the
    same key ended. That call may be an earlier attempt of the same record. For the rest, the record
    waited for a worker or for its retry.
    """

    lane: Lane
    queued: float | None
    behind_key: float | None


def _unknown(partition: TopicPartition, offset: int) -> None:
    del partition, offset


class QueueWaits:
    """Waits of an app's records. All workers share one; ``clock`` is the owner's.

    It remembers the end of the last call for at least the last ``most`` lanes. A record that waits
    behind a call is in the window. An entry is therefore forgotten only after a whole window of
    other records has run.
    """

    def __init__(self, clock: Callable[[], float], most: int) -> None:
        self._clock = clock
        self._most = most
        self._arrived: Arrived = _unknown
        self._lane_of: Callable[[Record], Lane] = lane_of
        self._ended: dict[Lane, float] = {}
        self._ended_before: dict[Lane, float] = {}

    def learn(self, arrived: Arrived, lane_of: Callable[[Record], Lane]) -> None:
        """Use the lookups of the core; called at the start of the instance."""
        self._arrived, self._lane_of = arrived, lane_of

    def begins(self, record: Record) -> Wait:
        """Return the wait of a record whose handler call starts now."""
        lane = self._lane_of(record)
        try:
            since = self._arrived(partition_of(record), record.offset())
        except IndexError:  # the owner thread has just removed entries
            since = None
        if since is None:
            return Wait(lane, None, None)
        queued = max(0.0, self._clock() - since)
        if is_keyless(lane):
            return Wait(lane, queued, 0.0)
        ended = self._ended.get(lane)
        if ended is None:
            ended = self._ended_before.get(lane, since)
        return Wait(lane, queued, min(queued, max(0.0, ended - since)))

    def ends(self, lane: Lane) -> None:
        """Note that a call of a lane has ended."""
        if is_keyless(lane):
            return
        self._ended[lane] = self._clock()
        if len(self._ended) >= self._most:
            self._ended_before, self._ended = self._ended, {}
